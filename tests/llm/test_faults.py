"""Whatever a server does, there is a report with the verdict of the evidence, by every door, and it says what failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.core.report import Report
from traindoctor.agent.doors.cli import main
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.agent.llm.wire import Wire
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session import session
from traindoctor.evals.endpoint import Fault, Say, ScriptedEndpoint
from traindoctor.evals.faults import FAULTS

LOG = "step 1 loss 2.1\n[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
ENDLESS = ("drip", "drip-head")  # nothing but the clock ends these


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.log").write_text(LOG)
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wire that waits hundredths of a second between attempts."""
    made = Wire.__init__

    def quick(self: Wire, *args: object, **more: object) -> None:
        made(self, *args, **more)  # pyright: ignore
        self.backoff = 0.01

    monkeypatch.setattr(Wire, "__init__", quick)


def told(report: Report) -> str:
    return " ".join(d for d in report.meta.degraded if d.startswith("model "))


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_ends_in_a_report(kind: str, run: Path, tmp_path: Path) -> None:
    seconds = 1.0 if FAULTS[kind].play in ENDLESS else 60.0
    with ScriptedEndpoint([Fault(kind)]) as server:
        model = ModelSettings("scripted", server.url, "k", timeout=0.3, window=32_000, max_seconds=seconds)
        events = list(session.diagnose(Workspace([run]), "why did it die?", state=tmp_path / "state", model=model))
    assert isinstance(events[-1], ReportReady)
    report = events[-1].report
    assert (report.root_cause.id or "").startswith("memory.")
    assert report.meta.planner == "offline" and told(report).startswith("model scripted: ")
    assert "\x1b" not in told(report)


def cli(
    argv: list[str], server: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> tuple[int, Report]:
    monkeypatch.setenv("DOCTOR_TIMEOUT", "0.3")
    monkeypatch.setenv("DOCTOR_WINDOW", "32000")
    monkeypatch.setenv("DOCTOR_MAX_SECONDS", "2")
    code = main([*argv, "--json", "--quiet", "--model", "scripted", "--base-url", server.url])
    return code, Report.model_validate(json.loads(capsys.readouterr().out))


@pytest.mark.soak
@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("door", ["ask", "triage"])
def test_every_fault_by_the_command_line(
    kind: str, door: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    argv = ["ask", "why did it die?", "--run", str(run)] if door == "ask" else ["triage", str(run)]
    with ScriptedEndpoint([Fault(kind)]) as server:
        code, report = cli(argv, server, monkeypatch, capsys)
    assert code == 0 and (report.root_cause.id or "").startswith("memory.") and told(report)


def test_a_required_model_that_fails_is_exit_4_after_the_report(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    argv = ["ask", "why did it die?", "--run", str(run), "--require-model"]
    with ScriptedEndpoint([Fault("unauthorized")]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdefghijklmnop")
        code, report = cli(argv, server, monkeypatch, capsys)
    assert code == 4 and report.root_cause.id


def test_a_server_without_tools_is_asked_for_plain_json(run: Path, tmp_path: Path) -> None:
    said = {"cause": "memory.batch_too_large", "sentences": [{"text": "Memory ran out.", "cites": ["train.log:2"]}]}
    with ScriptedEndpoint([Fault("tools-flag"), Say(json.dumps(said))]) as server:
        model = ModelSettings("scripted", server.url, "k", timeout=2.0, window=32_000)
        events = list(session.diagnose(Workspace([run]), "why did it die?", state=tmp_path / "state", model=model))
    assert isinstance(events[-1], ReportReady) and events[-1].report.meta.planner == "llm"
    assert "tools" not in server.requests[1].body


def test_a_context_that_is_too_small_is_tried_once_with_less(run: Path, tmp_path: Path) -> None:
    look = Say(calls=[("read_lines", {"file": "train.log", "start": n, "count": 1}) for n in range(1, 9)])
    said = {"cause": "memory.batch_too_large", "sentences": [{"text": "Memory ran out.", "cites": ["train.log:2"]}]}
    with ScriptedEndpoint([look, Fault("overflow-vllm"), Say(calls=[("diagnosis", said)])]) as server:
        model = ModelSettings("scripted", server.url, "k", timeout=2.0, window=8_000)
        events = list(session.diagnose(Workspace([run]), "why did it die?", state=tmp_path / "state", model=model))
    assert isinstance(events[-1], ReportReady) and events[-1].report.meta.planner == "llm"
    assert len(server.requests[2].raw) <= len(server.requests[1].raw)
