"""Whether a job went on after what its logs say went wrong: a failure that was caught is no end."""

from __future__ import annotations

from collections import defaultdict

from ..reading.failures import Failures
from ..reading.logpass import LogPass

_LATER = 30.0  # seconds by which a log that did not fail was written after those that did
_ENDS = ("exit", "killed", "signal")


def goes_on(found: LogPass, wrong: Failures) -> bool:
    """Whether every failure is followed by progress: in its own log, or in a log without one that came long after."""
    last: dict[str, int] = defaultdict(int)
    for unit in wrong.units:
        last[unit.file.name] = max(last[unit.file.name], unit.line.number)
    for note in wrong.notes:
        if note.kind in _ENDS or note.value == "watchdog":
            last[note.file.name] = max(last[note.file.name], note.read.line.number)
    if not last:
        return False
    dead = [name for name, number in last.items() if not _progress_after(found, name, number)]
    return not dead or _later_elsewhere(found, dead, set(last) - set(dead))


def _progress_after(found: LogPass, name: str, number: int) -> bool:
    place = found.files[name].last_progress if name in found.files else None
    return place is not None and place.number > number


def _later_elsewhere(found: LogPass, dead: list[str], recovered: set[str]) -> bool:
    written = [t for name in dead if name in found.files and (t := _written(found, name))]
    others = [
        t for name, s in found.files.items()
        if name not in dead and s.file.role == "log" and not s.file.good
        and (s.last_progress is not None or name in recovered) and (t := _written(found, name))
    ]  # fmt: skip
    return bool(written and others) and max(others) > max(written) + _LATER


def _written(found: LogPass, name: str) -> float:
    try:
        return found.files[name].file.path.stat().st_mtime
    except OSError:
        return 0.0
