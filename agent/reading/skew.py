"""Who is slow: seconds a step of several ranks set against each other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from .flight.groups import groups
from .flight.recordings import Recording
from .rank_series import RankTable

RATIO = 1.15  # a rank that needs this much longer than the middle one is slow
SHARE = 0.7  # of the steps in which a persistent one is among the slow
WARM_UP = 2  # first steps, which hold compiling and allocating
FEWEST = 6  # steps, or collectives, needed to judge
CLEAR = 1.5  # ratio in every single step from which fewer steps are enough
CLEAR_STEPS = 4
LATE = 0.003  # seconds after the middle rank below which arrivals count as equal


@dataclass(slots=True)
class Skew:
    """How the ranks of one table differ.

    Attributes:
        ratio: of the slowest rank of a step to the middle one, middle over the steps.
        slow: ranks that are slow in most steps, slowest first, each with its own ratio to the middle rank.
        share: of the steps in which the slowest of them is slow.
        in_turns: steps are uneven, but another rank is slow each time.
        lost: seconds a step that the others wait, by the middle over the steps.
    """

    ratio: float
    slow: list[tuple[int, float]] = field(default_factory=list)
    share: float = 0.0
    in_turns: bool = False
    lost: float = 0.0
    steps: int = 0


def skew(table: RankTable, waiting: bool = False) -> Skew | None:
    """Judge a table of seconds; None where there are too few steps.

    Args:
        waiting: the numbers are time spent waiting for others, so that the slow rank is the one that waits least.
    """
    values = table.values[WARM_UP:] if len(table.values) > FEWEST + WARM_UP else table.values
    if len(values) < CLEAR_STEPS or values.min() < 0:
        return None
    if waiting:  # what a rank waits less than the one that waits most, it computed longer
        behind = values.max(axis=1, keepdims=True) - values
        base = float(np.median(values.max(axis=1)))
        values = base + behind
    middle = np.median(values, axis=1) if values.shape[1] > 2 else values.min(axis=1)
    middle = np.maximum(middle, 1e-9)
    ratios = values / middle[:, None]
    slowest = ratios.max(axis=1)
    if len(values) < FEWEST and not (
        float(slowest.min()) > CLEAR and len(set(np.argmax(ratios, axis=1).tolist())) == 1
    ):
        return None
    found = Skew(float(np.median(slowest)), steps=len(values), lost=float(np.median(values.max(axis=1) - middle)))
    shares = (ratios > RATIO).mean(axis=0)
    own = np.median(ratios, axis=0)
    found.slow = sorted(
        ((table.ranks[i], float(own[i])) for i in np.flatnonzero((shares >= SHARE) & (own > RATIO))),
        key=lambda x: -x[1],
    )
    if found.slow:
        found.share = float(shares[table.ranks.index(found.slow[0][0])])
    else:
        turns = Counter(np.argmax(ratios[slowest > RATIO], axis=1).tolist())
        uneven = sum(turns.values()) / len(values)
        found.in_turns = uneven >= SHARE and len(turns) > 1 and max(turns.values()) < SHARE * len(values)
    return found


@dataclass(slots=True)
class Arrivals:
    """Who enters the collectives of a group last: `late` seconds after the middle rank, in `share` of them."""

    group: str
    rank: int
    late: float
    share: float
    count: int
    record: int


def arrivals(recording: Recording) -> Arrivals | None:
    """The rank that enters the collectives of the largest group last, most of the time; None where none does."""
    known = sorted(groups(recording), key=lambda g: -len(g.work))
    if not known or len(known[0].work) < 2:
        return None
    group = known[0]
    columns = []
    for work in group.work.values():
        rows = {row[0]: int(at) for row, at in zip(work.rows, work.created.tolist(), strict=True) if at}
        columns.append(rows)
    common = sorted(set.intersection(*(set(c) for c in columns)))[WARM_UP:]
    if len(common) < FEWEST:
        return None
    times = np.array([[c[n] for c in columns] for n in common], dtype=np.float64) / 1e9
    middle = np.median(times, axis=1) if times.shape[1] > 2 else times.min(axis=1)
    late = times - middle[:, None]
    uneven = late.max(axis=1) > LATE  # several collectives of one step follow each other at once: one counts
    if uneven.sum() < FEWEST:
        return None
    last = Counter(np.argmax(late[uneven], axis=1).tolist()).most_common(1)[0]
    share = last[1] / int(uneven.sum())
    if share < SHARE:
        return None
    rank = list(group.work)[last[0]]
    return Arrivals(
        group.label, rank, float(np.median(late[uneven][:, last[0]])), share, int(uneven.sum()),
        group.work[rank].records[-1],
    )  # fmt: skip
