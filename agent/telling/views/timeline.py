"""The timeline of ranks: who wrote from when to when, who failed first, who complained, who fell silent.

line = timeline(ws, report)     # reads the logs: not for a thread that draws
line.lanes                      # one a rank (or host, or log) of each attempt and variant
line.notes                      # what it does not show, in words
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Literal

from ...reading.logs.failures import failures
from ...reading.logs.roster import Roster, roster
from ...reading.run.clocks import Stamp, stamp_of
from .timeline_spans import Axis, Span, Trouble, axis, spans

if TYPE_CHECKING:
    from ...core.report import FirstFailure, Report
    from ...reading.run.workspace import Workspace

State = Literal["first", "failed", "silent", "complained", "unseen", "done", "quiet"]
NAMED = 6  # logs that are named in a note


@dataclass(slots=True)
class Lane:
    """One row: a rank, a host or a log of one attempt and variant.

    Attributes:
        state: `first` failed first; `silent` wrote no more while others complained; `unseen` wrote no line at all.
        order: its place in the order of failing, from 1; None where it did not, or where that cannot be told.
        begin: where its bar begins on the axis, `end` where it ends; None where it has no comparable stamp.
        struck: where on the axis it failed or complained.
        trouble: the first line of it that tells of trouble, with its file and line.
    """

    name: str
    rank: int | None = None
    host: str | None = None
    attempt: int | None = None
    variant: str | None = None
    run: str = "r1"
    state: State = "quiet"
    order: int | None = None
    begin: float | None = None
    end: float | None = None
    struck: float | None = None
    step: int | None = None
    file: str = ""
    first_line: int = 0
    last_line: int = 0
    first_time: str = ""
    last_time: str = ""
    last_text: str = ""
    trouble: Trouble | None = None


@dataclass(slots=True)
class Timeline:
    """All lanes by attempt, variant and rank, on one axis. `noun` is what they are: rank, host or log."""

    lanes: list[Lane] = field(default_factory=list)
    axis: Axis = field(default_factory=lambda: Axis("none"))
    noun: str = "rank"
    notes: list[str] = field(default_factory=list)


def timeline(ws: Workspace, report: Report | None = None) -> Timeline:
    """Read who took part. Where a report is given, the first failure is the one that it names.

    Raises:
        DoctorError: the logs cannot be read.
    """
    members, nameless = spans(ws)
    if not members:
        return Timeline(notes=["No log of the run could be read, so there are no ranks to show."])
    shared = axis(members)
    lanes = [_lane(span, shared) for span in members]
    seen = roster(ws)
    result = Timeline(lanes, shared, _noun(members), [shared.why] if shared.why else [])
    _missing(result, seen)
    if nameless:
        shown = ", ".join(nameless[:NAMED]) + (f" and {len(nameless) - NAMED} more" if len(nameless) > NAMED else "")
        result.notes.append(f"Without a rank or host, so without a row: {shown}.")
    _states(result, members)
    if report is not None:
        _mark_reported(result, report.root_cause.first_failure)
    else:
        _mark_logged(result, ws)
    _order(result)
    result.lanes.sort(key=_by_name)
    return result


def _noun(members: list[Span]) -> str:
    if any(s.rank is not None for s in members):
        return "rank"
    return "host" if any(s.host for s in members) else "log"


def _lane(span: Span, shared: Axis) -> Lane:
    name = f"rank {span.rank}" if span.rank is not None else span.host or span.file.name
    lane = Lane(
        name, span.rank, span.host, span.attempt, span.file.variant, span.file.run, step=span.step,
        file=span.file.name, first_line=span.first_line, last_line=span.last_line, last_text=span.text,
        first_time=span.first.text if span.first else "", last_time=span.last.text if span.last else "",
    )  # fmt: skip
    if shared.basis == "time":
        lane.begin, lane.end = shared.at(span.first or span.last), shared.at(span.last or span.first)
        if lane.begin is not None and lane.end is not None and lane.end < lane.begin:
            lane.begin = lane.end  # a clock that was set back
    elif shared.basis == "step" and span.step is not None:
        lane.begin, lane.end = shared.start, float(span.step)
    lane.trouble = _first_trouble(span, shared)
    if lane.trouble is not None:
        lane.struck = shared.at(lane.trouble.stamp)
        lane.state = "failed" if any(t.failed for t in span.troubles) else "complained"
    elif span.done:
        lane.state = "done"
    return lane


def _first_trouble(span: Span, shared: Axis) -> Trouble | None:
    """Of its failures the earliest, else of its complaints."""
    real = [t for t in span.troubles if t.failed] or span.troubles
    timed = [(at, t.line, t) for t in real if (at := shared.at(t.stamp)) is not None]
    return min(timed, key=lambda row: row[:2])[2] if timed else next(iter(real), None)


def _missing(result: Timeline, seen: Roster) -> None:
    """Ranks of the stated world that no line names; where most are missing, only some ever write."""
    if not seen.missing or result.noun != "rank":
        return
    if 2 * len(seen.ranks) < (seen.world or 0):
        result.notes.append(
            f"{len(seen.missing):,} of {seen.world:,} ranks write no line; often only the first of a job or node does."
        )
        return
    result.lanes += [Lane(f"rank {rank}", rank, state="unseen") for rank in seen.missing]
    if seen.uncollected:
        result.notes.append("The logs of the ranks without a line are not among the files.")


def _states(result: Timeline, members: list[Span]) -> None:
    """Who fell silent, by the same rule as the check of ranks: nothing from it while others complain."""
    together: dict[tuple[object, ...], list[Lane]] = defaultdict(list)
    for lane, span in zip(result.lanes, members, strict=False):
        together[(span.file.run, span.file.variant, span.attempt)].append(lane)
    for lanes in together.values():
        complain = any(lane.state == "complained" for lane in lanes)
        quiet = [lane for lane in lanes if lane.state == "quiet"]
        if complain and 2 * len(quiet) <= len(lanes):  # where most say nothing, the few that do are the news
            for lane in quiet:
                lane.state = "silent"


def _mark_reported(result: Timeline, first: FirstFailure) -> None:
    if first.rank is None and first.host is None:
        if len({lane.name for lane in result.lanes}) > 1:
            result.notes.append("The report names no rank or host that failed first.")
        return
    of_rank = [lane for lane in result.lanes if first.rank is not None and lane.rank == first.rank]
    of_host = [lane for lane in result.lanes if first.rank is None and lane.host == first.host]
    fits = of_rank or of_host
    if first.attempt is not None:
        fits = [lane for lane in fits if lane.attempt == first.attempt] or fits
    if of_host and len({lane.name for lane in fits}) > 1:
        result.notes.append(f"First to fail by the report: host {first.host}, without a rank.")
        return
    if not fits:
        who = f"rank {first.rank}" if first.rank is not None else f"host {first.host}"
        result.notes.append(f"First to fail by the report: {who}, of which there is no log.")
        result.lanes.append(Lane(who, first.rank, first.host, state="first"))
        return
    _strike(result, fits, stamp_of(first.time or ""))


def _mark_logged(result: Timeline, ws: Workspace) -> None:
    """Before there is a report: the first failure by the logs alone."""
    found = failures(ws)
    u = found.first
    if u is None:
        return
    if not found.first_known:
        result.notes.append("Which failure was the first is a guess: the stamps do not tell.")
    exact = [x for x in result.lanes if x.trouble and (x.trouble.file, x.trouble.line) == (u.file.name, u.line.number)]
    rank = u.rank if u.rank is not None else u.file.rank
    named = [lane for lane in result.lanes if lane.state == "failed" and lane.rank is not None and lane.rank == rank]
    if exact or named:
        _strike(result, (exact or named)[-1:], u.stamp)


def _strike(result: Timeline, fits: list[Lane], stamp: Stamp | None) -> None:
    """The last of them failed first: an earlier attempt of the same rank was gone on from."""
    lane = fits[-1] if len(fits) == 1 else max(fits, key=lambda x: (x.state in ("failed", "silent"), x.attempt or 0))
    lane.state = "first"
    at = result.axis.at(stamp)
    lane.struck = at if at is not None else lane.struck if lane.struck is not None else lane.end


def _order(result: Timeline) -> None:
    """The first failure, then by time; who has no comparable time gets no place."""
    troubled = [x for x in result.lanes if x.state in ("first", "failed", "silent", "complained")]
    timed: list[tuple[float, Lane]] = []
    for lane in troubled:
        at = lane.end if lane.state == "silent" or lane.struck is None else lane.struck
        if at is not None and lane.state != "first" and result.axis.basis == "time":
            timed.append((at, lane))
    leaders = [lane for lane in troubled if lane.state == "first"]
    for place, lane in enumerate(
        [*leaders, *(x for _, x in sorted(timed, key=lambda row: (row[0], _by_name(row[1]))))], 1
    ):
        lane.order = place if leaders or result.axis.basis == "time" else None


def _by_name(lane: Lane) -> tuple[str, str, int, int, str]:
    return (lane.run, lane.variant or "", lane.attempt or 0, lane.rank if lane.rank is not None else 1 << 30, lane.name)


# ----------
# Ranks that tell the same put together, so that of a thousand the odd ones are seen.

Sort = Literal["failed first", "rank", "last step"]
FOLDS = 16  # lanes from which on alike ones are folded
ALIKE = 4  # of one kind that make a fold
_FAR = 0.05  # share of the axis that is no difference of milliseconds any more


@dataclass(frozen=True, slots=True)
class Fold:
    """Lanes of one kind; a single one stands by itself."""

    lanes: tuple[Lane, ...]

    @property
    def lead(self) -> Lane:
        return self.lanes[0]

    @property
    def name(self) -> str:
        """`rank 5`, `ranks 0-6, 8-1023`, `12 hosts`."""
        if len(self.lanes) == 1:
            return self.lead.name
        if any(lane.rank is None for lane in self.lanes):
            return f"{len(self.lanes)} logs"
        return f"ranks {stretches([lane.rank or 0 for lane in self.lanes])}"

    @property
    def steps(self) -> tuple[int, int] | None:
        """The lowest and highest last step."""
        known = [lane.step for lane in self.lanes if lane.step is not None]
        return (min(known), max(known)) if known else None


def folds(line: Timeline, sort: Sort = "failed first") -> list[Fold]:
    """The lanes in an order, alike ones together where there are many; the odd ones first."""
    groups: dict[object, list[Lane]] = {}
    if len(line.lanes) <= FOLDS:
        groups = {i: [lane] for i, lane in enumerate(line.lanes)}
    else:
        middle = _middle(line)
        for lane in line.lanes:
            groups.setdefault(_kind(lane, line, middle), []).append(lane)
    result = []
    for lanes in groups.values():
        result += [Fold(tuple(lanes))] if len(lanes) >= ALIKE else [Fold((lane,)) for lane in lanes]
    return sorted(result, key=lambda fold: _place(fold, sort))


def stretches(numbers: list[int]) -> str:
    """Numbers as stretches: `0-6, 8, 10-1023`."""
    found: list[list[int]] = []
    for n in sorted(set(numbers)):
        if found and n == found[-1][1] + 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


def _middle(line: Timeline) -> tuple[float, float, float]:
    """The usual last step, how far from it is not odd, and the usual end."""
    steps = [lane.step for lane in line.lanes if lane.step is not None]
    ends = [lane.end for lane in line.lanes if lane.end is not None]
    usual = median(steps) if steps else 0.0
    spread = 4 * median(abs(s - usual) for s in steps) + 1 if steps else 0.0
    return usual, spread, median(ends) if ends else 0.0


def _kind(lane: Lane, line: Timeline, middle: tuple[float, float, float]) -> object:
    """What alike lanes share: their state, and how far they came unless that is near what is usual."""
    usual, spread, late = middle
    step = None if lane.step is None else "usual" if abs(lane.step - usual) <= spread else lane.step
    place = "none" if lane.end is None else "usual"
    if lane.end is not None and abs(line.axis.share(lane.end) - line.axis.share(late)) > _FAR:
        place = f"{line.axis.share(lane.end):.1f}"
    alone = lane.name if lane.state == "first" else ""
    return (lane.run, lane.variant, lane.attempt, lane.state, step, place, alone)


_STATES = {"first": 0, "failed": 1, "silent": 2, "unseen": 3, "complained": 4, "quiet": 5, "done": 6}


def _place(fold: Fold, sort: Sort) -> tuple[float, ...]:
    lead = fold.lead
    rank = lead.rank if lead.rank is not None else 1 << 30
    attempt = lead.attempt or 0
    if sort == "rank":
        return (attempt, rank)
    if sort == "last step":
        steps = fold.steps
        return (steps[0] if steps else 1 << 40, rank)
    several = float(len(fold.lanes) > 1)  # the odd ones on top
    if lead.state == "first":
        return (0, 0, 0, 0)
    order = min((lane.order for lane in fold.lanes if lane.order is not None), default=1 << 30)
    return (1, several, _STATES[lead.state] if several or order == 1 << 30 else 0, order, -attempt, rank)
