"""The diagnosis of an attempt, in a child: the loop goes on beside it, and whoever is in a hurry can end it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from .folder import Peers, claim
from .job import Job
from .signals import ENDING, Signals
from .wishes import Voice, Wishes

_PEERS_SECONDS = 10.0
_SPARE_SECONDS = 15.0  # beyond the bound, which the diagnosis keeps itself


def begin(job: Job, record: Path, wishes: Wishes, taken: Signals) -> int:
    """Fork a child that diagnoses and tells; its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number in ENDING:
            signal.signal(number, _end)
        signal.pthread_sigmask(signal.SIG_SETMASK, taken.before)
        from .children import lift_limits
        from .judging import judge

        lift_limits()

        code = 0 if judge(job, record, wishes.seconds, wishes.also, wishes.notify) is not None else 1
    except SystemExit:
        code = 3
    except Exception as e:  # noqa: BLE001 - a failed diagnosis is one line, and the job's exit code wins
        Voice()(f"the diagnosis failed: {type(e).__name__}: {e}")
    finally:
        os._exit(code)


def _end(_number: int, _frame: object) -> None:
    raise SystemExit


def wait(pid: int, wishes: Wishes, taken: Signals, say: Voice) -> tuple[bool, bool]:
    """Wait for a diagnosis: whether it came to a verdict, and whether somebody asked us to end meanwhile."""
    end = time.monotonic() + wishes.seconds + _SPARE_SECONDS
    asked = False
    while True:
        info = taken.take(min(1.0, max(end - time.monotonic(), 0.01)))
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return False, asked
        if done:
            return os.waitstatus_to_exitcode(status) == 0, asked
        if info is not None and info.si_signo in ENDING and info.si_signo not in taken.ignored and not asked:
            asked = True
            say("asked to end: the diagnosis is left unfinished")
            end = min(end, time.monotonic() + 3.0)
            os.kill(pid, signal.SIGTERM)
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)


def ours_to_judge(place: Path, peers: Peers | None, taken: Signals) -> bool:
    """Whether we are the one of several supervisors that diagnoses: the first whose rank failed.

    It waits 10 s at most for the others to end, so that the report knows all of them.
    """
    if not peers:
        return True
    if not claim(place, "triage.claim"):
        return False
    end = time.monotonic() + _PEERS_SECONDS
    while time.monotonic() < end and not _all_ended(place, peers):
        info = taken.take(0.2)
        if info is not None and info.si_signo == signal.SIGTERM:
            break
    return True


def _all_ended(place: Path, peers: Peers) -> bool:
    ended = 0
    for record in place.glob("rank_*.json"):
        try:
            ended += '"state": "ended"' in record.read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
    return ended >= peers.count


def fresh_report(run: Path, began: float) -> Path | None:
    """The report of an attempt, if one was written since it began (`time.time()`)."""
    report = run / "doctor-report.json"
    try:
        if report.stat().st_mtime >= began:
            return report
    except OSError:
        return None
    return None
