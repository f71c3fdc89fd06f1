"""The verdict of a failed job: a few inert lines on standard error, within a bound, and no more than is known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from traindoctor.agent.jobs.supervisor.judging import NO_KNOWN_FAILURE, verdict_of
from traindoctor.agent.jobs.supervisor.run_folder import named_paths

MEMORY = """step 1 loss 2.0
step 2 loss 1.9
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    y = model(x)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which \
1.10 GiB is free. Of the allocated memory 76.00 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but \
unallocated.
"""
CALL = """
import sys, time
from pathlib import Path
from traindoctor.agent.jobs.supervisor.supervised_job import Job
from traindoctor.agent.jobs.supervisor.judging import judge
run = Path(sys.argv[1]); place = run / "doctor-run" / "try_1"
job = Job(["python", "train.py"], run, place, 999999999, time.time(), place / "console.log")
found = judge(job, place / "record.json", float(sys.argv[2]))
raise SystemExit(0 if found else 1)
"""


def judged(run: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    """A diagnosis as `doctor run` has it made."""
    place = run / "doctor-run" / "try_1"
    place.mkdir(parents=True)
    (place / "console.log").write_text(MEMORY)
    ending = {"schema": "traindoctor.run/1", "attempt": 1, "state": "ended", "exit": {"code": 1, "signal": None}}
    (place / "record.json").write_text(json.dumps(ending))
    argv = [sys.executable, "-c", CALL, str(run), str(seconds)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=240, cwd=run.parent)


def test_a_verdict_in_a_few_lines(tmp_path: Path) -> None:
    run = tmp_path / "a run"
    done = judged(run, 200)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert done.stdout == "" and 3 <= len(lines) <= 14
    assert all(line.startswith("doctor: ") for line in lines)
    assert "memory" in lines[0] and any("console.log:" in line and "CUDA out of memory" in line for line in lines)
    report = json.loads((run / "doctor-report.json").read_text())
    assert report["root_cause"]["id"].startswith("memory.") and f"[{report['root_cause']['id']}]" in lines[0]
    assert (run / "doctor-report.md").exists() and (run / "doctor-report.html").exists()


def test_a_diagnosis_that_takes_too_long_is_one_line_and_a_command(tmp_path: Path) -> None:
    began = time.monotonic()
    done = judged(tmp_path / "a run", 0.2)
    assert done.returncode == 1 and time.monotonic() - began < 60
    assert "no diagnosis" in done.stderr and f"doctor triage '{tmp_path / 'a run'}' --write" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_nothing_known_is_said_so() -> None:
    found = verdict_of(
        {"status": "insufficient_evidence", "root_cause": {"id": "none.insufficient_evidence"}}, Path("r")
    )
    assert found.lines == ["what the run left does not tell the cause"]
    told = {"summary": [{"text": "The material does not identify a cause: it ended by “ValueError: 4”, and no"}]}
    assert verdict_of({"status": "insufficient_evidence", **told}, Path("r")).lines == [NO_KNOWN_FAILURE]
    assert verdict_of({}, Path("r")).lines  # whatever it is


def test_what_a_command_line_names(tmp_path: Path) -> None:
    began = time.time() - 60
    for name in ("train.py", "ds.json", "data.bin"):
        (tmp_path / name).write_text("{}")
    for name in ("out", "old", "inputs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.log").write_text("x")
    os.utime(tmp_path / "old" / "a.log", (1, 1))
    run = tmp_path / "runs" / "r1"
    run.mkdir(parents=True)
    argv = ["torchrun", f"{tmp_path}/train.py", "--deepspeed", f"{tmp_path}/ds.json", f"--output_dir={tmp_path}/out"]
    argv += ["--data", f"{tmp_path}/inputs", "--save-dir", f"{tmp_path}/old", f"trainer.log_dir={tmp_path}/out"]
    argv += [
        "--work-dir",
        str(tmp_path),
        "--log-dir",
        "/",
        f"{tmp_path}/data.bin",
        "gone.py",
        "--config",
        str(Path.home()),
    ]
    found = named_paths(argv, run, began)
    assert [Path(p).name for p in found] == ["train.py", "ds.json", "out"]
    assert named_paths(["x"], run, began, [str(run), str(tmp_path / "inputs")]) == [str(tmp_path / "inputs")]


def test_a_tree_too_large_is_left_out(tmp_path: Path) -> None:
    big, run = tmp_path / "out", tmp_path / "run"
    big.mkdir()
    run.mkdir()
    for n in range(4200):
        (big / f"{n}").touch()
    assert named_paths(["x", "--output_dir", str(big)], run, 0.0) == []
