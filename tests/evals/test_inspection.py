"""The evaluation on inspect-ai: the same scores, transcripts, no network. `make inspection` sets it up and runs this."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("inspect_ai")

from traindoctor.agent.core.report import Report
from traindoctor.evals.asked import Task
from traindoctor.evals.case import load
from traindoctor.evals.endpoint import Say, ScriptedEndpoint
from traindoctor.evals.run import diagnose
from traindoctor.evals.score import score

ROOT = Path(__file__).parents[2]
DEMO = load(ROOT / "evals" / "demo")


def log_of(folder: Path) -> dict:
    from inspect_ai.log import read_eval_log

    (path,) = folder.glob("*.eval")
    return json.loads(read_eval_log(str(path)).model_dump_json())


def inspect(folder: Path, *arguments: str) -> dict:
    """Run `inspect eval` from the repository as a user does."""
    command = [sys.executable, "-m", "inspect_ai", "eval", "evals/inspection/task.py", "--log-dir", str(folder),
               "--display", "none", "-T", "paths=evals/demo", *arguments]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return log_of(folder)


@pytest.mark.parametrize("solver", ["offline", "grep"])
def test_the_scores_are_those_of_doctor_eval(solver: str, tmp_path: Path) -> None:
    log = inspect(tmp_path, "--model", "none", "-T", f"solver={solver}")
    assert log["status"] == "success", log["error"]
    (sample,) = log["samples"]
    (found,) = sample["scores"].values()
    answer = diagnose(Task(DEMO.files, DEMO.question, DEMO.shell, solver=solver))
    ours = score(DEMO, Report.model_validate_json(answer.report))
    assert (found["answer"], found["value"]["exact"]) == (ours.said, ours.exact)
    assert found["value"]["evidence_recall"] == ours.marks_cited / ours.marks
    assert any(e["event"] == "info" and e["source"] == "evidence" for e in sample["events"])
    assert sample["messages"][-1]["role"] == "assistant"


def test_a_plain_model_gets_the_logs_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = json.dumps({"cause": DEMO.expected[0], "confidence": 0.7, "lines": [], "fix": "Look at it."})
    with ScriptedEndpoint([Say(said)]) as server:
        monkeypatch.setenv("SCRIPTED_BASE_URL", server.url)
        monkeypatch.setenv("SCRIPTED_API_KEY", "none")
        (sample,) = inspect(tmp_path, "--model", "openai-api/scripted/any", "-T", "solver=paste")["samples"]
    (found,) = sample["scores"].values()
    assert (found["value"]["exact"], found["value"]["confidence"], found["value"]["model_calls"]) == (1, 0.7, 1)
    assert found["value"]["tokens"] > 0
    assert DEMO.question in sample["messages"][1]["content"] and DEMO.id not in json.dumps(sample["messages"])


def test_doctor_eval_writes_a_log(doctor, tmp_path: Path) -> None:
    done = doctor("eval", ROOT / "evals" / "demo", "--log", tmp_path / "logs", "--keep", tmp_path / "kept")
    assert done.returncode == 0, done.stderr
    (sample,) = log_of(tmp_path / "logs")["samples"]
    (found,) = sample["scores"].values()
    assert found["value"]["exact"] == 1 and found["value"]["seconds"] > 0
