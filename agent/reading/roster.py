"""Which ranks (or hosts) a run has, which spoke, which fell silent, and how far each came."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .clocks import Stamp, stamp_of
from .failures import Failures, failures
from .files import Line, RunFile, open_regular
from .inflate import packing_of
from .lines import strip
from .logpass import LogPass, logpass
from .summaries import FileSummary

if TYPE_CHECKING:
    from ..workspace import Workspace

_WORLD = (
    re.compile(r"(?i)\bworld[_ -]?size\b *[.=:]* *(\d{1,6})\b"),
    re.compile(r"(?i)\bnranks (\d{1,6})\b"),
    re.compile(r"(?i)\brank:? \d+ ?(?:/|of) ?(?:world )?(\d{1,6})\b"),
    re.compile(r"Starting with (\d{1,6}) processes"),
    re.compile(r"(?i)GLOBAL_RANK: \d+, MEMBER: \d+/(\d{1,6})"),
    re.compile(r"\bnum_processes[ =:]+(\d{1,6})\b"),
    re.compile(r"\.py:\d+\] \(\d{1,4}/(\d{1,4})\) "),
    re.compile(r"(?i)\((\d{1,6}) processes\)|\b(\d{1,6}) GPUs?\b(?= )"),
)
_STEP = re.compile(
    r"(?i)\b(?:global_?step|step|iteration|iter)s?\b[ '\":=\[]{0,4}(\d{1,9})|\b(\d{1,9})/\d{1,9} \[\d+:\d\d"
    r"(?![^\]]*\b(?:examples?|files?|tokens?|lines?|docs?|shards?|[kMG]?i?B)/s)"  # a bar over data counts no steps
)


@dataclass(slots=True)
class Member:
    """One rank, or one host's log where ranks are not named. `last` is the last line it wrote."""

    rank: int | None
    file: RunFile
    lines: int = 0
    last: Line | None = None
    last_stamp: Stamp | None = None
    step: int | None = None
    step_line: Line | None = None
    failed: bool = False
    complained: bool = False  # it reported a consequence (a watchdog, a lost peer)

    @property
    def name(self) -> int | str:
        return self.rank if self.rank is not None else self.file.host or self.file.name


@dataclass(slots=True)
class Roster:
    """Everyone seen. `world` is the size that the logs state, with the line that states it."""

    members: dict[int | str, Member] = field(default_factory=dict)
    world: int | None = None
    world_line: tuple[RunFile, Line] | None = None

    @property
    def ranks(self) -> list[int]:
        return sorted(r for r in self.members if isinstance(r, int))

    @property
    def missing(self) -> list[int]:
        """Ranks of the stated world that no line names."""
        return [r for r in range(self.world or 0) if r not in self.members]

    @property
    def uncollected(self) -> bool:
        """Whether several ranks are missing because each rank writes a log of its own and theirs are not here.

        One missing log among many is told as a silent rank: it may be the one that never came to write.
        """
        files = [m.file.name for m in self.members.values()]
        return len(files) >= 2 and len(set(files)) == len(files) and len(self.missing) >= 2


def roster(ws: Workspace) -> Roster:
    """Made once, from the log pass and the failures."""
    return ws.memo("roster", lambda: _make(ws, logpass(ws), failures(ws)))


def _make(ws: Workspace, found: LogPass, wrong: Failures) -> Roster:
    result, silent = Roster(), set[bytes]()
    for summary in found.files.values():
        if summary.file.role != "log" or summary.file.good:
            continue
        for member in members_of(summary):
            kept = result.members.get(member.name)
            if kept is None or _later(member, kept):
                result.members[member.name] = member
        _world(result, summary, silent)
    _outcomes(result, wrong)
    return result


def members_of(summary: FileSummary) -> Iterator[Member]:
    """Ranks that label lines of a shared log; the rank or host that a log belongs to."""
    file = summary.file
    labelled = {r: seen for r, seen in summary.harvest.ranks.items() if r < 1 << 20}
    if file.rank is not None or not labelled or (file.host and len(labelled) == 1):
        rank = file.rank if file.rank is not None else next(iter(labelled), None) if file.host else None
        if rank is None and file.host:
            rank = _stated_rank(summary)
        if rank is not None or file.host:
            step, line = step_of(summary.last_progress)
            yield Member(rank, file, summary.lines, summary.last_line, summary.last_stamp, step, line)
        return
    places = sorted((seen.last_offset, rank) for rank, seen in labelled.items())
    texts = _lines_at(file, [offset for offset, _ in places])
    for offset, rank in places:
        seen = labelled[rank]
        line = Line(seen.last_line, offset, texts.get(offset, b""))
        step, step_line = step_of(line)
        yield Member(rank, file, seen.lines, line, stamp_of(line.text), step, step_line)


def _stated_rank(summary: FileSummary) -> int | None:
    """`rank 1 / world 2` near the top of a host's own log."""
    m = re.search(rb"(?i)\brank:? (\d{1,6}) ?(?:/|of) ", summary.harvest.head[:8192])
    return int(m[1]) if m else None


def _lines_at(file: RunFile, offsets: list[int]) -> dict[int, bytes]:
    """The rest of the line at each offset of a plain file (its start is the label that was found)."""
    found: dict[int, bytes] = {}
    with open_regular(file.path) as raw:
        if packing_of(raw.read(16) or b""):
            return found
        for offset in offsets[:4096]:
            raw.seek(offset)
            found[offset] = (raw.read(2048) or b"").split(b"\n", 1)[0]
    return found


def step_of(line: Line | None) -> tuple[int | None, Line | None]:
    """The last step that a line names, with that line."""
    if line is None:
        return None, None
    found = list(_STEP.finditer(strip(line.data[-4096:].decode(errors="replace")).body))
    if not found:
        return None, None
    return int(found[-1][1] or found[-1][2]), line


def _later(one: Member, other: Member) -> bool:
    if one.last_stamp and other.last_stamp and one.last_stamp.kind == other.last_stamp.kind:
        return one.last_stamp.value > other.last_stamp.value
    return one.lines > other.lines


def _world(result: Roster, summary: FileSummary, silent: set[bytes]) -> None:
    """The largest number of ranks that a log's head names; `silent` keeps the wordings that name none."""
    offset = 0
    for number, data in enumerate(summary.harvest.head.split(b"\n"), 1):
        wording = data[:600].translate(None, b"0123456789")
        shapes = () if wording in silent else _WORLD
        text = data[:600].decode(errors="replace") if shapes else ""
        matches = [m for shape in shapes if (m := shape.search(text))]
        if not matches:
            silent.add(wording)
        else:
            for m in matches:
                size = int(next(g for g in m.groups() if g))
                if 1 < size <= 200_000 and size > (result.world or 0):
                    result.world, result.world_line = size, (summary.file, Line(number, offset, data))
        offset += len(data) + 1


def _outcomes(result: Roster, wrong: Failures) -> None:
    for unit in wrong.units:
        for name in (unit.rank, unit.file.rank, unit.host, unit.file.host, unit.file.name):
            member = result.members.get(name) if name is not None else None
            if member is not None:
                member.failed = member.failed or not unit.cascade
                member.complained = member.complained or bool(unit.cascade)
                break
    for note in wrong.notes:
        for name in (note.rank, note.file.host, note.file.name):
            member = result.members.get(name) if name is not None else None
            if member is not None:
                member.complained = True
                break
