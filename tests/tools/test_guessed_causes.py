"""Lists of what may have happened to a worker say nothing of what did."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.tools.logs.log_tools import scan_logs
from traindoctor.agent.tools.memory.memory_tools import oom_report

from tests.tools.captured import look

LIST = (
    "(1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. "
    "(3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors."
)
GONE = "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."
RAISED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"


@pytest.mark.parametrize(
    "log",
    [
        f"{RAISED}The actor is dead because its worker process has died. {GONE} There are some potential root causes. {LIST}\n",
        f"(raylet) A worker died or was killed. {GONE} There are some potential root causes. {LIST}\n",
        f"{RAISED}{GONE} Possible causes:\n {LIST}\n",
    ],
)
def test_a_list_of_guesses_is_no_evidence_of_any(tmp_path: Path, log: str) -> None:
    (tmp_path / "worker.log").write_text("step 12 loss 1.2\n" + log)
    told = look(scan_logs, tmp_path)
    assert not told.values("error.signal") and not told.values("sig.memory.host_oom")
    assert not look(oom_report, tmp_path).values("memory.killed")


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: DataLoader worker (pid 311) is killed by signal: Killed.",
        "traceback : Signal 9 (SIGKILL) received by PID 4711",
        "Worker 3 was killed by SIGKILL. Possible causes: the node ran out of memory",  # stated before it guesses
    ],
)
def test_what_is_stated_still_counts(tmp_path: Path, line: str) -> None:
    (tmp_path / "worker.log").write_text(f"step 12 loss 1.2\n{line}\n")
    assert look(scan_logs, tmp_path).values("sig.memory.host_oom")
