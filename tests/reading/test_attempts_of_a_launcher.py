"""A launcher that reports the failure of its group begins another attempt only where something follows."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.reading.logs.attempts import attempt_at, restarts, stillborn
from traindoctor.agent.reading.logs.failures import failures
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.scan.logpass import logpass

STEPS = "".join(f"step {n}/60 loss {2 - n / 60:.4f}\n" for n in range(1, 31))
FAILED = (
    "E1122 22:52:46.212000 16302 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) "
    "local_rank: 0 (pid: {pid}) of binary: /opt/venv/bin/python\n"
)
GAVE_UP = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
RAISED = """Traceback (most recent call last):
  File "/data/run/train.py", line 61, in main
    {code}
{error}
"""
KEY = RAISED.format(code='text = record["body"]', error="KeyError: 'body'")
PORT = RAISED.format(code="server.bind(address)", error="OSError: [Errno 98] Address already in use")
FOLDER = RAISED.format(code="folder.mkdir()", error="FileExistsError: [Errno 17] File exists: 'runs/a'")
BLOCK = """Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_22:38:51
  host      : node01
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 6622)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 6622
============================================================
"""


def failed(code: int, pid: int) -> str:
    return FAILED.format(code=code, pid=pid)


@pytest.mark.parametrize(
    ("log", "attempts", "dead"),
    [
        (STEPS + KEY + failed(1, 10) + PORT + "waiting\n" * 6 + failed(1, 20) + GAVE_UP, 2, True),
        (STEPS + KEY + failed(1, 10) + STEPS + "Training completed.\n", 2, False),
        (STEPS + KEY + failed(1, 10) + GAVE_UP, 1, False),
        (STEPS + KEY + failed(1, 10) + failed(1, 11) + GAVE_UP, 1, False),  # two workers of one group
        (STEPS + KEY + failed(1, 10) + "Resuming from step 20\n" + STEPS + PORT + failed(1, 20) + GAVE_UP, 2, False),
    ],
    ids=["dead at once", "came to the end", "gave up", "two workers", "says so itself"],
)
def test_attempts_are_counted(tmp_path: Path, log: str, attempts: int, dead: bool) -> None:
    (tmp_path / "train.log").write_text(log)
    summary = logpass(Workspace([tmp_path], live=False)).files["train.log"]
    assert len(restarts(summary)) == attempts - 1
    assert (stillborn(summary) is not None) == dead
    if attempts == 2:
        assert (attempt_at(summary, 35), attempt_at(summary, summary.lines)) == (1, 2)


def test_what_its_launcher_saw_killed_comes_before_what_the_next_attempt_raised(tmp_path: Path) -> None:
    again = FOLDER + "waiting\n" * 8 + failed(1, 20) + GAVE_UP
    (tmp_path / "train.log").write_text(STEPS + failed(-9, 10) + GAVE_UP + BLOCK + again)
    first = failures(Workspace([tmp_path], live=False)).first
    assert first is not None and first.name == "exit"


def test_an_exception_before_the_launchers_report_stays_the_first(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(STEPS + KEY + failed(-9, 10) + GAVE_UP + BLOCK + FOLDER)
    first = failures(Workspace([tmp_path], live=False)).first
    assert first is not None and first.name == "KeyError"
