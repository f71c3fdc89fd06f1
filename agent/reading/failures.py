"""Everything that went wrong in a run's logs: failures as units, consequences, deaths, and which came first.

found = failures(ws)
found.first          # the initiating failure, or None
found.groups         # one event on many ranks is one group
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import TYPE_CHECKING

from .attempts import attempt_at
from .clocks import earlier
from .failure import Failure, Read, reads
from .harvest import template
from .logpass import LogPass, logpass
from .notes import Note, notes
from .survived import survived
from .torchelastic import error_json, read_block
from .tracebacks import Parser
from .windows import close_lines

if TYPE_CHECKING:
    from ..workspace import Workspace

RUN_BUDGET, FILE_BUDGET = 12 << 20, 2 << 20  # bytes that are read closely
FILE_SHARE = 8 << 10  # bytes that every troubled file gets, however many there are
NOTES = 400  # lines of one kind that are kept of one file
_KILLED = re.compile(r"SIG(?:KILL|SEGV|BUS|ABRT)")
UNITS = 1500  # failures that are kept of one file


@dataclass(slots=True)
class Group:
    """One event: the same failure on any number of ranks, told by its earliest unit."""

    lead: Failure
    members: list[Failure] = field(default_factory=list)

    @property
    def ranks(self) -> list[int]:
        return sorted({m.rank for m in self.members if m.rank is not None})


@dataclass(slots=True)
class Failures:
    """All failures of a run. `notes` are in order of file and line."""

    units: list[Failure] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    first: Failure | None = None
    first_known: bool = True  # whether times allow to say which was first
    survived: list[Failure] = field(default_factory=list)  # caught: the program went on; not among `units`

    def is_survived(self, file: str, number: int) -> bool:
        """Whether a line stands in the print of an exception that was caught."""
        return any(s.file.name == file and (s.start or s.line).number <= number <= s.line.number for s in self.survived)

    def noted(self, kind: str) -> list[Note]:
        return [n for n in self.notes if n.kind == kind]


def failures(ws: Workspace) -> Failures:
    """Read closely where the pass saw trouble; made once."""
    return ws.memo("failures", lambda: _make(ws, logpass(ws)))


def _make(ws: Workspace, found: LogPass) -> Failures:
    result = Failures()
    troubled = [summary for summary in found.files.values() if summary.harvest.events]
    # A fair share each: of a thousand ranks that complain, the one that failed may be the last in the list.
    share = min(FILE_BUDGET, max(FILE_SHARE, RUN_BUDGET // max(1, len(troubled))))
    for summary in troubled:
        parser = Parser(summary.file)
        kept: dict[str, int] = {}
        block: dict[str, Read] = {}
        for read in reads(close_lines(ws, summary, share), summary.labels):
            inside = len(parser.failures) < UNITS and parser.feed(read)
            read_block(block, read, summary.file, result.units)
            for note in notes(read, summary.file, inside):
                kept[note.kind] = kept.get(note.kind, 0) + 1
                if kept[note.kind] <= NOTES:
                    result.notes.append(note)
        result.units += [u for u in parser.finish() if not summary.file.good]
    result.units += [u for f in ws.files if f.name.endswith("error.json") and not f.good for u in error_json(ws, f)]
    _place_attempts(found, result)
    result.survived = survived(found, result.units)
    result.units = [u for u in result.units if not any(u is s for s in result.survived)]
    result.groups = _grouped(result.units)
    result.first, result.first_known = _first(result)
    return result


def _place_attempts(found: LogPass, result: Failures) -> None:
    for unit in result.units:
        summary = found.files.get(unit.file.name)
        if summary is not None and unit.attempt is None:
            unit.attempt = attempt_at(summary, unit.line.number)


def _grouped(units: list[Failure]) -> list[Group]:
    """The same failure on many ranks is one event."""
    groups: dict[tuple[object, ...], Group] = {}
    for unit in units:
        key = (unit.name, template(unit.message[:160]), unit.attempt, unit.file.variant, unit.file.run)
        group = groups.setdefault(key, Group(unit))
        group.members.append(unit)
        if earlier(unit.stamp, group.lead.stamp) or (len(unit.frames) > len(group.lead.frames) == 0):
            group.lead = unit
    return list(groups.values())


def _first(result: Failures) -> tuple[Failure | None, bool]:
    """The initiating failure: no consequence, the origin of its chain, the smallest comparable time."""
    candidates = [u.origin for u in result.units if not u.origin.cascade]
    candidates = [u for u in candidates if not _only_ended(u)] or candidates
    candidates = [u for u in candidates if u.name or u.message] or candidates  # others are cut off, or mixed up
    unique = list({id(u): u for u in candidates}.values())
    if not unique:  # a process that was killed leaves no exception, only what its launcher saw
        killed = [u for u in result.units if u.name == "exit" and "SIG" in u.message]
        return (killed[0] if killed else None), True
    known = True

    def order(a: Failure, b: Failure) -> int:
        nonlocal known
        before = earlier(a.stamp, b.stamp)
        if before is None:
            if a.file.name != b.file.name and (a.stamp is None or b.stamp is None or a.stamp.kind != b.stamp.kind):
                known = False
            same = a.file.name == b.file.name
            return (a.line.number - b.line.number) if same else _weight(b) - _weight(a)
        return -1 if before else 1

    first = sorted(unique, key=cmp_to_key(order))[0]
    killed = next((u for u in result.units if u.name == "exit" and _KILLED.search(u.message)), None)
    if killed is not None and _is_before(killed, first, unique):
        return killed, True
    return first, known


def _is_before(killed: Failure, first: Failure, unique: list[Failure]) -> bool:
    """Whether the launcher had reported a kill before any exception, itself or its copy, stood in the same log."""
    here = [u for u in unique if u.file is killed.file]
    copied = any((u.name, u.message) == (first.name, first.message) for u in here)
    return copied and all(u.line.number > killed.line.number for u in here)


def _only_ended(unit: Failure) -> bool:
    return unit.name in ("SystemExit", "KeyboardInterrupt", "StopIteration")


def _weight(unit: Failure) -> int:
    return 2 * (unit.kind == "python") + (unit.kind == "native") + bool(unit.frames)
