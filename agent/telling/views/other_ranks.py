"""What another rank wrote at the same moment: the step of a line, or the nearest time stamp, found in another log.

A log is looked through by halves, as its lines stand in the order of their time. Where neither a step nor a
comparable stamp tells the moment, the other log is shown from its end and that is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...reading.run.clocks import Stamp, earlier, stamp_of
from ...reading.run.lines import strip
from .excerpt import Excerpt, Row, Watch

if TYPE_CHECKING:
    from ...reading.run.files import RunFile
    from ...reading.run.workspace import Workspace

UNPLACED = "cannot be placed in time: shown from its end"
_BACK = 1 << 18  # bytes before a line in which its step and its stamp are looked for
_NEAR = 1 << 16  # bytes around a moment in which a line of the same step is looked for
_SHARED = 4 << 20  # bytes of a log of all ranks in which a line of another rank is looked for
_SCANNED = 256 << 20  # bytes of a log without stamps that are searched for a step
_FAR = 60.0  # seconds between two lines from which on it is said how far they are apart
_STEP = re.compile(
    r"(?i)\b(?:global_?step|step|iteration|iter)s?\b[ '\":=\[]{0,4}(\d{1,9})|\b(\d{1,9})/\d{1,9} \[\d+:\d\d"
)
Name = int | str


@dataclass(frozen=True, slots=True)
class Peer:
    """One rank (or a host, where ranks are not named) and the file it wrote to; `shared`: with others."""

    name: Name
    file: RunFile
    shared: bool = False

    @property
    def title(self) -> str:
        """`rank 3`, or a host by its name."""
        return f"rank {self.name}" if isinstance(self.name, int) else self.name


@dataclass(frozen=True, slots=True)
class Moment:
    """When a line was written, as far as it and the lines before it tell. `named`: the line itself names the step."""

    step: int | None = None
    stamp: Stamp | None = None
    named: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A line of another rank's log, and how it was found: `at step 4,012`. `offset` None: its end."""

    offset: int | None
    how: str


def peers(ws: Workspace, file: RunFile) -> list[Peer]:
    """Every rank beside which this file can be read, in order. May make the log pass: slow the first time.

    Of a rank with several logs the one of the same attempt, variant and folder is meant.
    """
    from ...reading.logs.roster import roster

    found: dict[Name, Peer] = {}
    logs = [f for f in ws.files if f.role == "log" and f.rank is not None and f.run == file.run]
    for f in sorted(logs, key=lambda f: _unlike(f, file)):
        if f.rank is not None:
            found.setdefault(f.rank, Peer(f.rank, f))
    if file.good:
        return _ordered(found.values())
    for member in roster(ws).members.values():
        if member.file.run == file.run:
            shared = member.file.rank is None and member.rank is not None
            found.setdefault(member.name, Peer(member.name, member.file, shared))
    return _ordered(found.values())


def own(found: Iterable[Peer], file: RunFile, text: str, rank: int | None = None) -> Name | None:
    """Who wrote a line: as the file's name tells, the evidence, or the label in front of the line."""
    if file.rank is not None:
        return file.rank
    said = strip(text, True).rank if text else None
    if said is None:
        said = rank
    if said is not None:
        return said
    return next((p.name for p in found if p.file.name == file.name and not p.shared), None)


def moment(page: Excerpt, row: Row) -> Moment:
    """The last step and the last stamp at a line or before it."""
    step, stamp = None, None
    for line in page.lines_back(row.offset, _BACK):
        stamp = stamp or stamp_of(line.text)
        step = step if step is not None else step_of(line.text)
        if stamp is not None and step is not None:
            break
    return Moment(step, stamp, step is not None and step_of(row.text) == step)


def step_of(text: str) -> int | None:
    """The step that a line names last."""
    found = list(_STEP.finditer(strip(text).body))
    return int(found[-1][1] or found[-1][2]) if found else None


def same_moment(page: Excerpt, when: Moment, watch: Watch) -> Place:
    """The line of another log at a moment: the last not later; for a line that names a step, that of the same step.

    Where no clocks can be compared a line of the same step is looked for in all of the log.
    """
    at = _by_time(page, when.stamp, watch) if when.stamp else None
    if at is not None and when.stamp is not None:
        same = _of_step(page, at, when.step) if when.named and when.step is not None else None
        at = at if same is None else same
        near, far = _apart(page, at, when.stamp)
        row = page.row(at, None)
        if when.step is not None and row is not None and moment(page, row).step == when.step:
            near = f"at step {when.step:,}"
        return Place(at, near + far)
    if when.step is not None and (found := _search_step(page, when.step, watch)) is not None:
        return Place(found, f"at step {when.step:,}")
    return Place(None, UNPLACED)


def same_file(page: Excerpt, row: Row, rank: Name, watch: Watch) -> Place:
    """A line that another rank wrote to the same log: of the same step, else the last before this one, else the next.

    Only so many bytes around the line are looked through.
    """
    before = _labelled(page.lines_back(row.offset, _SHARED), rank, watch)
    after = _labelled(page.lines_on(row.end, _SHARED), rank, watch)
    step = step_of(row.text)
    same = next((r for r in (after, before) if r is not None and step is not None and step_of(r.text) == step), None)
    if same is not None:
        return Place(same.offset, f"at step {step:,}")
    if before is not None:
        return Place(before.offset, "its last line before, in the log they share")
    return Place(after.offset, "its next line, in the log they share") if after is not None else Place(None, UNPLACED)


def _labelled(rows: Iterable[Row], rank: Name, watch: Watch) -> Row | None:
    """The first of some rows whose label names a rank."""
    for row in rows:
        watch.passed(0, 0)
        if strip(row.text, True).rank == rank:
            return row
    return None


def _unlike(one: RunFile, other: RunFile) -> tuple[bool, bool, bool, bool, str]:
    folder = other.path.parent
    return (one.good != other.good, one.variant != other.variant, one.attempt != other.attempt,
            one.path.parent != folder, one.name)  # fmt: skip


def _ordered(found: Iterable[Peer]) -> list[Peer]:
    return sorted(found, key=lambda p: (isinstance(p.name, str), p.name if isinstance(p.name, int) else 0, str(p.name)))


def _by_time(page: Excerpt, stamp: Stamp, watch: Watch) -> int | None:
    """The last line that is not stamped later; None where the clocks cannot be compared."""
    low, high = 0, page.measured()
    first = _stamp_near(page, 0)
    if first is None or not _comparable(stamp, first):
        return None
    if earlier(stamp, first):
        return 0
    while high - low > _NEAR:
        middle = page.line_start((low + high) // 2)
        watch.passed(0, 0)
        if middle <= low:
            break
        near = _stamp_near(page, middle)
        if near is None or not _comparable(stamp, near):
            return None
        low, high = (low, middle) if earlier(stamp, near) else (middle, high)
    at = offset = low
    while (row := page.row(offset, None)) is not None and row.offset < high + _NEAR:
        own_stamp = stamp_of(row.text)
        if own_stamp is not None and earlier(stamp, own_stamp):
            break
        at = row.offset if own_stamp is not None else at
        offset = row.end
    return at


def _comparable(one: Stamp, other: Stamp) -> bool:
    return one.kind == other.kind or {one.kind, other.kind} == {"date", "day"}


def _stamp_near(page: Excerpt, offset: int) -> Stamp | None:
    """The stamp under which a line stands: its own or the last before; the first after where none is before."""
    for row in page.lines_back(offset, _NEAR):
        if (stamp := stamp_of(row.text)) is not None:
            return stamp
    at = offset
    while at < offset + _NEAR and (row := page.row(at, None)) is not None:
        if (stamp := stamp_of(row.text)) is not None:
            return stamp
        at = row.end
    return None


def _of_step(page: Excerpt, at: int, step: int) -> int | None:
    """The last line near a place that names a step."""
    found, offset = None, page.line_start(max(0, at - _NEAR))
    while offset < at + _NEAR and (row := page.row(offset, None)) is not None:
        if step_of(row.text) == step:
            found = row.offset
        offset = row.end
    return found


def _search_step(page: Excerpt, step: int, watch: Watch) -> int | None:
    """The last line of a log that names a step, where no stamp leads there."""
    found, offset = None, 0
    while offset < _SCANNED and (at := page.find(str(step), offset, watch)) is not None:
        row = page.row(at, None)
        if row is None:
            break
        found = at if step_of(row.text) == step else found
        offset = row.end
    return found


def _apart(page: Excerpt, at: int, stamp: Stamp) -> tuple[str, str]:
    """`at 02:43:04`; and how much earlier than the moment, where that is a minute or more: the rank was silent."""
    there = _stamp_near(page, at)
    if there is None:
        return "at the nearest time", ""
    seconds = _seconds(stamp, there)
    far = f", {_spelt(abs(seconds))} {'before' if seconds > 0 else 'after'}" if abs(seconds) >= _FAR else ""
    return f"at {there.text}", far


def _seconds(one: Stamp, other: Stamp) -> float:
    """How much later one is than another, within a day where one of them knows no year."""
    if one.kind == other.kind:
        return one.value - other.value
    apart = (one.value - other.value) % 86400.0
    return apart - 86400.0 if apart > 43200.0 else apart


def _spelt(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
