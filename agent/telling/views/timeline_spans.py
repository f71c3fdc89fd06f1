"""Who wrote into the logs, from which line to which: a rank of a labelled log, the log of a rank, host or process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from ...reading.logs.attempts import attempt_at, restarts
from ...reading.logs.failures import failures
from ...reading.logs.roster import DONE, Member, members_of, step_of
from ...reading.run.clocks import Stamp, earlier, stamp_of
from ...reading.run.files import Line, RunFile, open_regular, packing_of
from ...reading.scan.logpass import FileSummary, logpass

if TYPE_CHECKING:
    from ...reading.run.workspace import Workspace

_BACK = 8192  # bytes read before the place where an attempt begins, for how the one before it ended
_TEXT = 400  # characters of a last line that are kept


@dataclass(slots=True)
class Trouble:
    """Something that went wrong in a span; `failed` where it is a failure of its own, else it only complains."""

    failed: bool
    stamp: Stamp | None
    file: str
    line: int
    text: str


@dataclass(slots=True)
class Span:
    """One rank, host or log in one attempt of one variant, and the first and last that it wrote."""

    rank: int | None
    host: str | None
    file: RunFile
    attempt: int | None
    first_line: int
    last_line: int
    first: Stamp | None = None
    last: Stamp | None = None
    step: int | None = None
    text: str = ""
    troubles: list[Trouble] = field(default_factory=list)

    @property
    def key(self) -> tuple[object, ...]:
        """What is shown as one row."""
        who = self.rank if self.rank is not None else self.host or self.file.name
        return (self.file.run, self.file.variant, self.attempt, who)

    @property
    def done(self) -> bool:
        """Whether its last line says that it came to its end."""
        return DONE.search(self.text) is not None


def spans(ws: Workspace) -> tuple[list[Span], list[str]]:
    """Everyone who wrote, in order of the files, with what went wrong there; and logs that name nobody.

    Where no log names a rank or a host, the logs themselves take part.

    Raises:
        DoctorError: the logs cannot be read.
    """
    found: dict[tuple[object, ...], Span] = {}
    nameless: list[FileSummary] = []
    for summary in logpass(ws).files.values():
        if summary.file.role != "log" or summary.file.good or summary.last_line is None:
            continue
        of_file = [*_of_file(summary)]
        if not of_file:
            nameless.append(summary)
        for span in of_file:
            _take(found, span)
    if not found:
        telling = [s for s in nameless if s.last_stamp or s.last_progress] or nameless  # a log, and no text beside it
        for summary in telling:
            for span in _attempts(summary, _nobody(summary)):
                _take(found, span)
        nameless = []
    members = list(found.values())
    _place_troubles(ws, members)
    return members, [s.file.name for s in nameless]


def _nobody(summary: FileSummary) -> Member:
    step, line = step_of(summary.last_progress)
    return Member(None, summary.file, summary.lines, summary.last_line, summary.last_stamp, step, line)


def _of_file(summary: FileSummary) -> Iterator[Span]:
    members = list(members_of(summary))
    file, labelled = summary.file, summary.harvest.ranks
    shared = file.rank is None and not (len(members) == 1 and file.host) and bool(labelled)
    if not shared:
        for member in members:
            yield from _attempts(summary, member)
        return
    heads = _texts_at(file, [labelled[m.rank].first_offset for m in members if m.rank in labelled])
    for member in members:
        seen = labelled.get(member.rank if member.rank is not None else -1)
        if seen is None or member.last is None:
            continue
        attempt = attempt_at(summary, seen.last_line) or file.attempt
        span = Span(
            member.rank, file.host, file, attempt, seen.first_line, seen.last_line,
            stamp_of(heads.get(seen.first_offset, "")), member.last_stamp, member.step, member.last.text[:_TEXT],
        )  # fmt: skip
        begun = next((line for line, number in restarts(summary) if number == attempt), None)
        if begun is not None and begun.number > span.first_line:
            span.first_line, span.first = begun.number, stamp_of(begun.text) or span.first
        yield span


def _attempts(summary: FileSummary, member: Member) -> Iterator[Span]:
    """The log of one member, cut where attempts begin."""
    file = summary.file
    begun = restarts(summary)
    first, start, attempt = summary.first_stamp, 1, 1 if begun else file.attempt
    for line, number in begun:
        text, stamp, step = _before(file, line)
        yield Span(member.rank, file.host, file, attempt, start, line.number - 1, first, stamp, step, text)
        first, start, attempt = stamp_of(line.text), line.number, number
    last = member.last or Line(1, 0, b"")
    yield Span(
        member.rank, file.host, file, attempt, start, last.number, first, member.last_stamp, member.step,
        last.text[:_TEXT],
    )  # fmt: skip


def _before(file: RunFile, line: Line) -> tuple[str, Stamp | None, int | None]:
    """The last line before another, the last stamp and the last step there. Nothing of a packed file."""
    with open_regular(file.path) as raw:
        if packing_of(raw.read(16) or b""):
            return "", None, None
        raw.seek(max(0, line.offset - _BACK))
        rows = (raw.read(min(_BACK, line.offset)) or b"").decode(errors="replace").split("\n")
    late = [row for row in reversed(rows) if row.strip()]
    stamp = next((s for s in map(stamp_of, late) if s), None)
    steps = (step_of(Line(0, 0, row.encode()))[0] for row in late)
    return (late[0][:_TEXT] if late else ""), stamp, next((s for s in steps if s is not None), None)


def _texts_at(file: RunFile, offsets: list[int]) -> dict[int, str]:
    """The line at each offset of a plain file."""
    found: dict[int, str] = {}
    with open_regular(file.path) as raw:
        if packing_of(raw.read(16) or b""):
            return found
        for offset in sorted(offsets)[:4096]:
            raw.seek(offset)
            found[offset] = (raw.read(_TEXT) or b"").split(b"\n", 1)[0].decode(errors="replace")
    return found


def _take(found: dict[tuple[object, ...], Span], span: Span) -> None:
    """Several logs of one rank (its output, its errors) are one row: from the first to the last of both."""
    kept = found.get(span.key)
    if kept is None:
        found[span.key] = span
        return
    ends = earlier(kept.last, span.last)
    late, other = (span, kept) if ends or (ends is None and span.last_line > kept.last_line) else (kept, span)
    late.first = other.first if late.first is None or earlier(other.first, late.first) else late.first
    late.step = late.step if late.step is not None else other.step
    found[span.key] = late


def _place_troubles(ws: Workspace, members: list[Span]) -> None:
    by_name: dict[object, list[Span]] = {}
    of_file = Counter(span.file.name for span in members)
    for span in members:
        # What a log that several label says without a label is of none of them
        owned = span.rank is None or span.file.rank is not None or (span.host and of_file[span.file.name] == 1)
        for name in ({span.rank, span.host, span.file.name} if owned else {span.rank}) - {None}:
            by_name.setdefault(name, []).append(span)
    wrong = failures(ws)
    for u in wrong.units:
        trouble = Trouble(not u.cascade, u.stamp, u.file.name, u.line.number, u.text[:_TEXT])
        names = (u.rank, u.file.rank, u.host, u.file.host, u.file.name)
        _give(by_name, names, trouble, u.attempt, u.file.variant)
    for n in wrong.notes:
        line = n.read.line
        trouble = Trouble(False, n.read.stamp, n.file.name, line.number, line.text[:_TEXT])
        _give(by_name, (n.rank, n.file.host, n.file.name), trouble, None, n.file.variant)


def _give(
    by_name: dict[object, list[Span]], names: tuple[object, ...], trouble: Trouble, attempt: int | None,
    variant: str | None,
) -> None:  # fmt: skip
    """To the span that holds the line; else, of those with this name, to the one of its attempt and variant."""
    named = next((by_name[name] for name in names if name is not None and name in by_name), [])
    if not named:
        return

    def fits(span: Span) -> tuple[bool, bool, bool]:
        inside = span.file.name == trouble.file and span.first_line <= trouble.line <= span.last_line
        return inside, span.file.variant == variant, attempt is not None and span.attempt == attempt

    max(reversed(named), key=fits).troubles.append(trouble)


# ----------
# A common axis for what several logs tell: their times where these can be compared, else their steps.

DAY = 86_400.0
Basis = Literal["time", "step", "none"]


@dataclass(frozen=True, slots=True)
class Axis:
    """From where to where the bars go.

    Attributes:
        basis: what is compared; `none` where nothing is.
        clock: the kind of stamps that stand on it.
        why: one line on what the bars mean, and why no more can be said.
    """

    basis: Basis
    start: float = 0.0
    end: float = 0.0
    clock: str = ""
    why: str = ""

    def at(self, stamp: Stamp | None) -> float | None:
        """Where a stamp stands on an axis of times; None where it cannot be compared."""
        if stamp is None or self.basis != "time":
            return None
        value = _value(stamp, self.clock)
        if value is not None and self.clock == "clock" and value < self.start:
            value += DAY  # times of day alone: what is earlier than the start is of the next day
        return value

    def share(self, value: float) -> float:
        """A place as a share of the axis, within 0 and 1."""
        width = self.end - self.start
        return min(1.0, max(0.0, (value - self.start) / width)) if width > 0 else 1.0

    @property
    def ends(self) -> tuple[str, str, str]:
        """The start, the length and the end in words."""
        if self.basis == "step":
            return f"step {self.start:,.0f}", "", f"step {self.end:,.0f}"
        if self.basis == "none":
            return "", "", ""
        width = self.end - self.start
        return _clock(self.start, self.clock, width), duration(width), _clock(self.end, self.clock, width)


def axis(spans: list[Span]) -> Axis:
    """The axis that most spans can stand on."""
    ends = [(s.first or s.last, s.last or s.first) for s in spans]
    stamped = [(a, b) for a, b in ends if a and b]
    clock = _common(s for pair in stamped for s in pair) if stamped else ""
    if clock == "uptime" and len({s.file.host or s.file.name for s in spans}) > 1:
        clock, why = "", "seconds since boot of several hosts cannot be compared"
    else:
        why = "no stamps" if not stamped else "the stamps are of kinds that cannot be compared"
    placed = [(a, b) for x, y in stamped if (a := _value(x, clock)) is not None and (b := _value(y, clock)) is not None]
    if clock and 2 * len(placed) >= len(spans):
        start = min(a for a, _ in placed)
        later = DAY if clock == "clock" else 0.0
        end = max(b + (later if b < a else 0.0) for a, b in placed)
        if end > start:
            return Axis("time", start, end, clock, _told(clock, stamped))
        why = "all stamps are of one moment"
    steps = [s.step for s in spans if s.step is not None]
    if len(steps) >= 2:
        low, high = min(steps), max(steps)
        low = max(0, low - max(1, (high - low) // 4))  # the furthest behind keeps a bar too
        return Axis("step", low, high, "", f"Bars go to the last step, not by time: {why}.")
    return Axis("none", why=f"In which order they ended is not known: {why}, and no steps to compare.")


def duration(seconds: float) -> str:
    """A length of time in at most two units."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds % 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _common(stamps: Iterable[Stamp]) -> str:
    """The kind of stamps that the axis takes: dates and days go together, without the year."""
    kinds = Counter(s.kind for s in stamps)
    dated = kinds["date"] + kinds["day"]
    best = max(("clock", kinds["clock"]), ("uptime", kinds["uptime"]), key=lambda kv: kv[1])
    if dated >= best[1]:
        return "day" if kinds["day"] else "date"
    return best[0]


def _value(stamp: Stamp, clock: str) -> float | None:
    if stamp.kind == clock:
        return stamp.value
    if stamp.kind != "date" or clock != "day":
        return None
    when = datetime.fromtimestamp(stamp.value, UTC)
    return (when.replace(year=2000) - datetime(2000, 1, 1, tzinfo=UTC)).total_seconds()


def _clock(value: float, clock: str, width: float) -> str:
    if clock == "uptime":
        return f"{value:.1f} s"
    when = datetime(2000 if clock == "day" else 1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
    if clock == "clock" or (width < DAY / 2 and clock != "date"):
        return f"{when:%H:%M:%S}"
    return f"{when:%m-%d %H:%M}" if width >= DAY / 2 else f"{when:%H:%M:%S}"


def _told(clock: str, stamped: list[tuple[Stamp, Stamp]]) -> str:
    """What to bear in mind of times that are compared."""
    if clock == "clock":
        return "Times of day only: a day more or less is not seen."
    zones = {_zoned(s.text) for pair in stamped for s in pair if s.kind == "date"}
    return "Some stamps name a time zone and some do not: hours may be off." if len(zones) > 1 else ""


def _zoned(text: str) -> bool:
    tail = text[19:]
    return "Z" in tail or "UTC" in tail or "+" in tail or "-" in tail
