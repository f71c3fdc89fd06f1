"""Tell people of a verdict or an alarm. It takes milliseconds, never raises, and leaves the sending to `sender.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import facts
from .once import occurrence, state_of
from .spool import put, spool_folder, waiting

if TYPE_CHECKING:
    from ..report import Report

SCHEMA = "traindoctor.notice/1"
SENDER = "DOCTOR_NOTICE_SENDER"  # set in the environment of the sender, which outlives whoever started it
LAST_SECONDS = 10.0  # that `tell` waits where everything ends with the job
SECRETS = ("DOCTOR_NOTIFY", "DOCTOR_NOTIFY_FILE", "DOCTOR_SERVE_TOKEN")  # variables that no child needs
_ENDED_WITH = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "KUBERNETES_SERVICE_HOST")
_STARTED: list[subprocess.Popen[bytes]] = []


def tell(report: Report, run: Path, flags: Sequence[str] = (), again: str = "") -> list[str]:
    """Send a verdict to whom it may concern (`targets.whom`), as every command does. Never raises.

    Where a scheduler or a container ends all processes with the job, it waits until the notices are out, for
    `LAST_SECONDS` at most.

    Returns:
        What went wrong, in lines for the user.
    """
    from .targets import whom

    urls, wrong = whom(flags)
    if (why := announce(report, run, urls, again)) or not urls:
        return [line for line in (wrong, why) if line]
    if _ends_with_the_job() and not delivered(LAST_SECONDS):
        wrong = wrong or "notices: not sent yet; what waits goes out when doctor next sends something"
    return [wrong] if wrong else []


def announce(report: Report, run: Path, urls: Sequence[str], again: str = "") -> str:
    """Send a verdict to the targets, once for each event (`once.py`), in the background.

    Args:
        run: the folder of the run, where its report lies.
        urls: from `targets`; without any nothing is kept and nothing is sent.
        again: names the attempt of a job that is started again, as in `try_3`; without it, the latest attempt in the
            folder, or the state of the files that the verdict stands on, tells one failure from the next.

    Returns:
        Why nothing will be sent, in one line; else nothing. What goes wrong later stands in `notices/sender.log`.
    """
    if not urls:
        return ""
    event = report.root_cause.id or report.status
    return _told(lambda: facts.of_report(report, run), run, event, urls, lambda: (again, state_of(report, run)))


def announce_alarm(alarm: dict[str, Any], run: str, urls: Sequence[str]) -> str:
    """Send an alarm of a live run to the targets, likewise. The same kind at the same rank is one event."""
    if not urls:
        return ""
    kind = next((str(alarm[k]) for k in ("kind", "cause", "key") if alarm.get(k)), "alarm")
    event = f"alarm {kind} {alarm.get('rank')}"
    return _told(lambda: facts.of_alarm(alarm, run), Path(run), event, urls, lambda: ("", ""))


def send_again() -> None:
    """Start sending what an earlier sender left, as one that ended with its job. At once, and silent."""
    with suppress(OSError):
        folder = spool_folder()
        if waiting(folder):
            _start_sender(folder)


def delivered(seconds: float) -> bool:
    """Wait for the notices to be sent, so long at most; says whether they are."""
    end = time.monotonic() + seconds
    with suppress(OSError):
        folder = spool_folder()
        while waiting(folder):
            if time.monotonic() >= end:
                return False
            time.sleep(0.05)
    return True


def _ends_with_the_job() -> bool:
    """Whether the machine takes every process down when the job ends."""
    marks = ("/.dockerenv", "/run/.containerenv")
    return any(os.environ.get(name) for name in _ENDED_WITH) or any(Path(mark).exists() for mark in marks)


def _told(
    make: Callable[[], dict[str, Any]], run: Path, event: str, urls: Sequence[str], mark: Callable[[], tuple[str, str]]
) -> str:
    try:
        folder = spool_folder()
        if (counted := occurrence(folder, run, event, *mark())) is None:
            return ""
        count, first = counted
        left = {url: {"tries": 0, "due": 0.0} for url in urls}
        since = time.strftime("%H:%M", time.localtime(first))
        said = {"facts": make(), "count": count, "since": since, "left": left}
        put(folder, {"schema": SCHEMA, "made": time.time(), **said})
        _start_sender(folder)
    except OSError as e:
        return f"notices: {e.strerror or 'cannot be kept'}"
    except Exception as e:  # noqa: BLE001 - a notice may not cost the job whose end it tells
        return f"notices: {type(e).__name__} (a fault of doctor's)"
    return ""


def _start_sender(folder: Path) -> None:
    """A process of its own session, that a signal to the job does not reach; it ends at once if one is at work."""
    _STARTED[:] = [p for p in _STARTED if p.poll() is None]
    kept = {k: v for k, v in os.environ.items() if k not in (*SECRETS, "LD_PRELOAD")}
    argv = [sys.executable, "-P", "-m", "traindoctor.agent.notices.sender", str(folder)]
    nowhere = subprocess.DEVNULL
    started = subprocess.Popen(
        argv, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True, cwd="/", env=kept | {SENDER: "1"}
    )
    _STARTED.append(started)
