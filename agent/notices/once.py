"""One message for one event: many ranks and supervisors say the same, and a job that restarts in a loop says it again.

An event is a cause in a job. Several announcements of it are one where they name the same attempt; where they name
none, if they stand on files in the same state, or come within `TOGETHER` seconds of each other. Further ones count, and
are told at the 2nd, 4th, 8th, ... time.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .spool import locked, read, replace

if TYPE_CHECKING:
    from ..report import Report

TOGETHER = 60.0  # seconds
FORGOTTEN = 7 * 24 * 3600.0
_MARKS, _EVENTS = 64, 2_000
_LOCK_SECONDS = 1.0
_JOB = ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID", "RAY_JOB_ID", "PBS_JOBID", "LSB_JOBID")


def job_of(run: Path) -> str:
    """What stays the same while a job is started again and again: its number, else the folder and name of its runs.

    `doctor-runs/20261122-180000-train` and a later `doctor-runs/20261122-190000-train` are runs of one job.
    """
    numbers = [f"{name}={os.environ[name]}" for name in _JOB if os.environ.get(name)]
    if numbers:
        return " ".join(numbers)
    folder, stamp = run.absolute(), run.name[:15]
    dated = len(stamp) == 15 and stamp[8] == "-" and (stamp[:8] + stamp[9:]).isdigit()
    return str(folder.parent / run.name[16:]) if dated else str(folder)


def state_of(report: Report, run: Path) -> str:
    """What is the same when the same failure is diagnosed twice, by a job's end and a hook, or later by hand.

    The latest attempt of a supervised run; else when the files last changed that the verdict stands on.
    """
    attempts = [p.name[4:] for p in run.glob("doctor-run/try_*") if p.name[4:].isdecimal()]
    if attempts:
        return f"try_{max(map(int, attempts))}"
    roots, newest = [Path(r.root) for r in report.runs] or [run], 0
    for file in {e.file for e in report.evidence if e.file}:
        for root in roots:
            with suppress(OSError, ValueError):
                newest = max(newest, (root / file if root.is_dir() else root).stat().st_mtime_ns)
    return str(newest) if newest else ""


def occurrence(folder: Path, run: Path, event: str, again: str = "", state: str = "") -> tuple[int, float] | None:
    """Count an event. None where it was told already or needs no message now.

    Args:
        folder: the spool, where events of this user on this machine are counted.
        run: its folder; where it holds `doctor-run`, supervisors on other machines are told apart there.
        event: what happened, as a cause or the kind of an alarm.
        again: names the attempt, where the caller knows; another attempt is another time.
        state: from `state_of`, where it does not.

    Returns:
        How many times by now, and when the first was (seconds since 1970).
    """
    if not again and state.startswith("try_"):
        again = state
    mark = again or state
    key = hashlib.sha256(f"{job_of(run)}\0{event}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
    now = time.time()
    with locked(folder / "events.lock", _LOCK_SECONDS) as held:
        if not held:
            return 1, now  # rather twice than never
        events = _events(folder, now)
        known = events.setdefault(key, {"first": now, "last": 0.0, "count": 0, "marks": []})
        close = not again and abs(now - known["last"]) < TOGETHER
        if close or mark in known["marks"] or not _first_of_all_machines(run, event, again, now):
            return None
        known["count"] += 1
        known["last"] = now
        known["marks"] = [*known["marks"], mark][-_MARKS:] if mark else known["marks"]
        with suppress(OSError):
            replace(folder / "events.data", events)
    count = known["count"]
    return (count, known["first"]) if count & (count - 1) == 0 else None


def _events(folder: Path, now: float) -> dict[str, Any]:
    """What is known, without what is long over or damaged."""
    data = read(folder / "events.data")
    if not isinstance(data, dict):
        return {}
    sound = {
        key: e for key, e in data.items()
        if isinstance(e, dict) and isinstance(e.get("marks"), list) and isinstance(e.get("count"), int)
        and all(isinstance(e.get(k), int | float) for k in ("first", "last")) and now - e["last"] < FORGOTTEN
    }  # fmt: skip
    newest = sorted(sound, key=lambda key: sound[key]["last"])[-_EVENTS:]
    return {key: sound[key] for key in newest}


def _first_of_all_machines(run: Path, event: str, again: str, now: float) -> bool:
    """Whether no other machine has told it: an empty file in the run's folder, which they share, is who was first."""
    folder = run / "doctor-run"
    if not folder.is_dir():
        return True
    key = hashlib.sha256(event.encode("utf-8", "surrogatepass")).hexdigest()
    span = int(now // TOGETHER)
    marks = [hashlib.sha256(again.encode()).hexdigest()[:8]] if again else [str(span), str(span - 1)]
    names = [folder / f".told-{key[:12]}-{mark}" for mark in marks]
    if any(name.exists() for name in names[1:]):
        return False
    try:
        os.close(os.open(names[0], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    except OSError:
        return True
    return True
