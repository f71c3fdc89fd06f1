"""`doctor ask --record DIR`: a diagnosis becomes an incident that replays, tells no verdict, and waits for its labels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.shell import Recording
from traindoctor.agent.doors.cli import main
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.collect import kept_incident
from traindoctor.agent.telling.collect.report_copy import diagnosed
from traindoctor.evals import case, run

from tests.telling.collect.runs import SECRET, everything
from tests.telling.collect.test_bundle import Sick

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.20 GiB is free."


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text(f"learning_rate: 1.0e-4\nhub_token: {SECRET}\n")
    lines = "".join(f"step {n} loss {2 - n / 50:.2f}\n" for n in range(20))
    (folder / "logs" / "train.log").write_text(f"{lines}login with {SECRET}\n{OOM}\n")
    (folder / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    return folder


def test_the_labels_are_blanks_and_nothing_tells_secret_or_verdict(job, tmp_path, capsys):
    out = tmp_path / "lantern"
    assert main(["ask", f"why did it die? {SECRET}", "--run", str(job), "--record", str(out), "--json"]) == 0
    said = capsys.readouterr()
    assert '"root_cause"' in said.out  # the report is what it was without the option
    assert f"recorded {out}: 2 of 3 files, 0 commands" in said.err and f"doctor eval {out}" in said.err
    written = everything(out)
    assert SECRET.encode() not in written and b"<SECRET:hf:1>" in written
    assert b"memory." not in (out / "incident.yaml").read_bytes()
    labels = yaml.safe_load((out / "incident.yaml").read_text())
    assert labels["id"] == "lantern" and labels["question"].startswith("why did it die?")
    assert not any(labels[k] for k in ("family", "difficulty", "expected", "acceptable", "evidence", "why"))
    assert sorted(p.name for p in out.iterdir()) == ["files", "incident.yaml"]
    assert not list(tmp_path.glob(".doctor-record-*")) and (out.stat().st_mode & 0o077) == 0


def test_it_is_scored_once_somebody_says_what_it_was(job, tmp_path, capsys):
    out = tmp_path / "lantern"
    assert main(["ask", "why?", "--run", str(job), "--record", str(out), "-q"]) == 0
    assert "recorded" not in capsys.readouterr().err
    page = out / "incident.yaml"
    assert main(["eval", str(out), "-q"]) == 2
    assert "still to be filled in: family, difficulty, expected" in capsys.readouterr().err
    half = page.read_text().replace("family: ", "family: memory ").replace("difficulty: ", "difficulty: easy ")
    page.write_text(half)
    assert main(["eval", str(out), "-q"]) == 2
    assert "still to be filled in: expected (" in capsys.readouterr().err
    page.write_text(half.replace("expected: []", "expected: memory.batch_too_large"))  # one alone, without brackets
    assert case.load(out).expected == ("memory.batch_too_large",)
    assert main(["eval", str(out), "-q", "--json"]) == 0 and "lantern" in capsys.readouterr().out


def test_what_the_machine_answered_replays_without_it(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.log").write_text(
        "step 1 loss 2.0\nstep 2 loss 1.9\nRuntimeError: CUDA error: unspecified launch failure\n"
    )
    shell = Recording(Sick())
    ws = Workspace([job], live=True, shell=shell)
    report = diagnosed(ws, "why did it die?")
    kept = kept_incident.record(ws, shell, tmp_path / "lamp", report)
    assert kept.files == kept.of == 1 and kept.commands == len(shell.answers) > 0
    answer = run.diagnose(run.Task(tmp_path / "lamp" / "files", report.question, tmp_path / "lamp" / "shell.json"))
    assert report.root_cause.id == "hw.gpu_fell_off_bus" and '"id": "hw.gpu_fell_off_bus"' in answer.report


def test_nothing_is_overwritten_and_nothing_begun_in_vain(job, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for place, why in (
        ("mine", "exists"),
        ("dangling", "exists"),
        ("no/such", "no folder"),
        ("job/x", "inside the run"),
    ):
        assert main(["ask", "why?", "--run", str(job), "--record", str(tmp_path / place)]) == 2
        said = capsys.readouterr()
        assert why in said.err and not said.out
    for more, other in ((["--session", "abc"], "--session"), (["--show-prompt"], "--show-prompt")):
        assert main(["ask", "why?", "--run", str(job), "--record", str(tmp_path / "new"), *more]) == 2
        assert other in capsys.readouterr().err
    assert not list((tmp_path / "mine").iterdir()) and not (tmp_path / "new").exists()


def test_without_a_run_named_this_folder_is_it(job, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(job)
    assert main(["ask", "why?", "--record", "lantern"]) == 2 and "inside the run" in capsys.readouterr().err
    assert main(["ask", "what does NCCL_DEBUG do?", "--record", "../lantern", "-q"]) == 0
    assert (tmp_path / "lantern" / "files" / "logs" / "train.log").is_file()


def test_a_place_taken_or_refused_after_the_diagnosis_costs_the_incident_alone(job, tmp_path, monkeypatch):
    shell = Recording(Sick())
    ws = Workspace([job], live=False, shell=shell)
    report = diagnosed(ws)
    (tmp_path / "late").mkdir()
    with pytest.raises(UsageError, match="exists"):
        kept_incident.record(ws, shell, tmp_path / "late", report)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(UsageError, match="No space left"):
        kept_incident.record(ws, shell, tmp_path / "lamp", report)
    assert not list(tmp_path.glob(".doctor-record-*")) and not (tmp_path / "lamp").exists()


def test_it_is_bounded(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traindoctor.agent.telling.collect.kept_incident.LIMIT", 256 << 10)
    (job / "logs" / "long.log").write_bytes(b"some ordinary line of a log\n" * 60_000 + b"RuntimeError: the end\n")
    assert main(["ask", "why?", "--run", str(job), "--record", str(tmp_path / "lamp"), "-q"]) == 0
    files = [p for p in (tmp_path / "lamp").rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 260 << 10
    assert (tmp_path / "lamp" / "files" / "logs" / "long.log").read_text().endswith("RuntimeError: the end\n")


def test_a_healthy_run_beside_it_stays_away(job: Path, tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.mkdir()
    (good / "fine.log").write_text("step 1 loss 2.0\n")
    words = ["ask", "why?", "--run", str(job), "--good", str(good), "--record", str(tmp_path / "lamp"), "-q"]
    assert main(words) == 0 and not list((tmp_path / "lamp").rglob("fine.log"))
