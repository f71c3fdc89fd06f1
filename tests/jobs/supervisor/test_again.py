"""A job is started again only as its report advises."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.jobs.supervisor.supervised_job import Start, Stop, next_start

COMMAND = ["torchrun", "--nproc-per-node", "8", "train.py", "--lr", "1e-3"]


def report(run: Path, attempt: int = 1, step: int | None = 40, cause: str = "hw.gpu_lost", **restart: Any) -> Path:
    """A run with a report of its last attempt."""
    place = run / "doctor-run" / f"try_{attempt}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "record.json").write_text(json.dumps({"schema": "traindoctor.run/1", "steps": {"last": step}}))
    path = run / "doctor-report.json"
    path.write_text(json.dumps({"root_cause": {"id": cause}, "restart": restart or None}))
    return path


def after(path: Path, argv: list[str] | None = None, resume: str = "", left: int = 3) -> Start | Stop:
    """What is decided; the pause is not waited for."""
    return next_start(path, argv or COMMAND, resume, left, lambda _: True)


@pytest.mark.parametrize("advice", ["fix_first", "stop", "anything", ""])
def test_only_where_it_is_advised(tmp_path: Path, advice: str) -> None:
    assert isinstance(after(report(tmp_path, advice=advice)), Stop)


def test_no_report_no_advice_none_left(tmp_path: Path) -> None:
    assert isinstance(after(tmp_path / "doctor-report.json"), Stop)
    (tmp_path / "doctor-report.json").write_text("[1, 2")
    assert isinstance(after(tmp_path / "doctor-report.json"), Stop)
    assert isinstance(after(report(tmp_path)), Stop)
    assert isinstance(after(report(tmp_path, advice="restart"), left=0), Stop)


def test_the_checkpoint_takes_its_place(tmp_path: Path) -> None:
    saved = tmp_path / "out" / "step 40"
    saved.mkdir(parents=True)
    path = report(tmp_path, advice="restart", from_checkpoint="out/step 40")
    added = after(path, resume="--resume_from {checkpoint} --strict")
    assert isinstance(added, Start)
    assert added.argv == [*COMMAND, "--resume_from", str(saved), "--strict"]
    assert added.environ["DOCTOR_CHECKPOINT"] == str(saved) and added.environ["DOCTOR_ATTEMPT"] == "2"
    filled = after(path, ["python", "train.py", "--load={checkpoint}"])
    assert isinstance(filled, Start) and filled.argv[-1] == f"--load={saved}"
    alone = after(path)
    assert isinstance(alone, Start) and alone.argv == COMMAND and "itself" in alone.why


def test_no_checkpoint_that_is_there(tmp_path: Path) -> None:
    """Arguments that need one are left out; a command that cannot do without is not started."""
    path = report(tmp_path, advice="restart", from_checkpoint="gone/step-3")
    begun = after(path, resume="--resume_from {checkpoint}")
    assert isinstance(begun, Start) and begun.argv == COMMAND and "beginning" in begun.why
    assert isinstance(after(path, ["python", "train.py", "{checkpoint}"]), Stop)


def test_nodes_are_left_out(tmp_path: Path) -> None:
    path = report(tmp_path, advice="restart_excluding", exclude=["n7", "n9; rm -rf /"])
    job = after(path, ["srun", "-N2", "--exclude=n1", "python", "train.py"])
    assert isinstance(job, Start) and job.argv == ["srun", "--exclude=n1,n7", "-N2", "python", "train.py"]
    assert job.environ["DOCTOR_EXCLUDE"] == "n7"
    other = after(path)
    assert isinstance(other, Start) and other.argv == COMMAND and "n7" in other.why
    here = report(tmp_path, advice="restart_excluding", exclude=[socket.gethostname()])
    assert isinstance(after(here), Stop)


def test_the_same_again_without_a_new_step_is_a_loop(tmp_path: Path) -> None:
    assert isinstance(after(report(tmp_path, 1, 40, advice="restart")), Start)
    assert isinstance(after(report(tmp_path, 2, 55, advice="restart")), Start)  # it came further
    stuck = after(report(tmp_path, 3, 55, advice="restart"))
    assert isinstance(stuck, Stop) and "without a new step" in stuck.why
    assert isinstance(after(report(tmp_path, 3, 55, "io.disk_full", advice="restart")), Start)


def test_the_pause_ends_at_once_when_we_are_asked_to_end(tmp_path: Path) -> None:
    """A scheduler that ends the job while we wait is not kept waiting."""
    path = report(tmp_path, advice="restart")
    code = (
        "import signal, sys; from pathlib import Path; from traindoctor.agent.jobs.supervisor.supervised_job import next_start\n"
        "from traindoctor.agent.jobs.supervisor.loop import Signals\n"
        "taken = Signals(); print('ready', flush=True)\n"
        f"print(next_start(Path({str(path)!r}), ['true'], '', 1, taken.calm_for))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert "asked to end" in out
