"""Ranks that tell the same put together, so that of a thousand the odd ones are seen."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Literal

from .timeline import Lane, Timeline

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
