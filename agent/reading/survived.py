"""Exceptions that a program caught, printed and went on from: an optional package that is not there.

A script whose own import fails makes no step. So an import error of the modules' own level, printed before any
progress of a log that has progress and then ends in another way, was caught. What is printed from inside functions is
left alone: it may be the end, with buffered output behind it. What one process printed again and again before it came
to its end was caught each time, wherever it was raised: nobody dies five times.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from .attempts import attempt_at
from .failure import Failure
from .finished import finished_line
from .harvest import template

if TYPE_CHECKING:
    from .logpass import LogPass

AGAIN = 5  # times
_IMPORT = frozenset({"ImportError", "ModuleNotFoundError"})


def survived(found: LogPass, units: list[Failure]) -> list[Failure]:
    """Of these failures, those that ended nothing."""
    caught = [u for u in units if _of_an_import(u) and _followed_by_progress(found, u)]
    kept = [u for u in caught if _another_end(found, u, units, caught)]
    return [*kept, *_raised_again(found, units)]


def _raised_again(found: LogPass, units: list[Failure]) -> list[Failure]:
    """The same exception of one attempt and rank, many times, in a log that then says that the end was reached."""
    alike: dict[tuple[object, ...], list[Failure]] = defaultdict(list)
    for u in units:
        if u.cascade is None and u.file.name in found.files:
            alike[u.file.name, u.attempt, u.rank, u.name, template(u.message[:160])].append(u)
    again = [us for us in alike.values() if len(us) >= AGAIN]
    return [u for us in again if _came_to_the_end(found, us) for u in us]


def _came_to_the_end(found: LogPass, alike: list[Failure]) -> bool:
    """A tracker says that it is through when a process dies as well: its word does not count."""
    summary = found.files[alike[0].file.name]
    line = finished_line(summary, max(u.line.number for u in alike))
    return line is not None and b"wandb" not in line.data


def _of_an_import(unit: Failure) -> bool:
    frames = [f for f in unit.frames if "importlib" not in f.path]
    return unit.name in _IMPORT and bool(frames) and all(f.function == "<module>" for f in frames)


def _followed_by_progress(found: LogPass, unit: Failure) -> bool:
    summary = found.files.get(unit.file.name)
    if summary is None or summary.last_progress is None or summary.last_progress.number < unit.line.number:
        return False
    # what another attempt did later says nothing about this one
    return attempt_at(summary, unit.line.number) == attempt_at(summary, summary.last_progress.number)


def _another_end(found: LogPass, unit: Failure, units: list[Failure], caught: list[Failure]) -> bool:
    """Whether the log ends in another way: by a later failure, or as planned."""
    later = [u for u in units if u.file is unit.file and u.line.number > unit.line.number and u.cascade is None]
    if any(not any(u is c for c in caught) for u in later):
        return True
    last = max([unit.line.number, *(u.line.number for u in later)])
    return finished_line(found.files[unit.file.name], last) is not None
