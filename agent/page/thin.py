"""Points of a curve as few enough to draw: extremes are kept, and gaps where a value was not finite."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..reading.series import extremes

MOST = 600  # points drawn of a line
_BUCKETS = MOST // 4  # of each the first, last, least and greatest are kept
_APART = 3.0  # units of the drawing between marks of values that are not finite, below which they are one


@dataclass(frozen=True, slots=True)
class Points:
    """Steps and values in the order of the file; a value that is not finite is a gap."""

    steps: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)

    def within(self, low: float, high: float) -> Points:
        """Those of steps between two, both included."""
        keep = (self.steps >= low) & (self.steps <= high)
        return Points(self.steps[keep], self.values[keep])

    @property
    def finite(self) -> np.ndarray:
        """Mask of the finite values."""
        return np.isfinite(self.values)


def thinned(points: Points) -> Points:
    """At most `MOST` points: of each stretch of steps the first, last, least and greatest."""
    if len(points) <= MOST:
        return points
    steps = points.steps
    low, width = float(steps.min()), float(np.ptp(steps)) or 1.0
    number = np.minimum((steps - low) / width * _BUCKETS, _BUCKETS - 1).astype(np.int64)
    starts = np.flatnonzero(np.concatenate(([True], np.diff(number) != 0)))
    if len(starts) > _BUCKETS:  # steps that go back again and again: stretches of the file instead
        starts = np.unique(np.linspace(0, len(steps), _BUCKETS, endpoint=False).astype(np.int64))
    keep = extremes(points.values, starts)
    return Points(steps[keep], points.values[keep])


def segments(points: Points) -> list[slice]:
    """Stretches that a line may be drawn through: no gap in them, and no step that goes back."""
    if not len(points):
        return []
    finite = points.finite
    broken = np.concatenate(([True], (np.diff(points.steps) < 0) | ~finite[1:] | ~finite[:-1]))
    starts = np.flatnonzero(broken)
    ends = np.append(starts[1:], len(points))
    return [slice(int(a), int(b)) for a, b in zip(starts, ends, strict=True) if finite[a]]


def gaps(points: Points) -> np.ndarray:
    """Stretches of steps where no value is finite: rows of the least and the greatest of its ends."""
    bad = ~points.finite
    turns = np.flatnonzero(np.diff(np.concatenate(([False], bad, [False])).astype(np.int8)))
    return np.sort(np.column_stack((points.steps[turns[::2]], points.steps[turns[1::2] - 1])), axis=1)


def strips(stretches: np.ndarray) -> list[tuple[float, float]]:
    """Stretches of an axis, rows of start and end, in order; those that touch, or nearly, are one."""
    found: list[tuple[float, float]] = []
    for start, end in np.unique(stretches.round(1), axis=0).tolist():
        if found and start - found[-1][1] <= _APART:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


@dataclass(frozen=True, slots=True)
class Band:
    """What many lines cover: least, greatest and median of them in each stretch of steps."""

    steps: np.ndarray
    least: np.ndarray
    greatest: np.ndarray
    median: np.ndarray


def band(lines: list[Points], low: float, high: float) -> Band:
    """The band of many lines between two steps; stretches without a finite value are left out."""
    width = (high - low) or 1.0
    least = np.full(_BUCKETS, np.inf)
    greatest = np.full(_BUCKETS, -np.inf)
    means = np.full((len(lines), _BUCKETS), np.nan)
    for row, line in enumerate(lines):
        inside = line.within(low, high)
        steps, values = inside.steps[inside.finite], inside.values[inside.finite]
        number = np.minimum((steps - low) / width * _BUCKETS, _BUCKETS - 1).astype(np.int64)
        np.minimum.at(least, number, values)
        np.maximum.at(greatest, number, values)
        counts = np.bincount(number, minlength=_BUCKETS)
        sums = np.bincount(number, weights=values, minlength=_BUCKETS)
        np.divide(sums, counts, out=means[row], where=counts > 0)
    known = np.flatnonzero(np.isfinite(least) & np.isfinite(means).any(axis=0))
    with np.errstate(over="ignore"):
        middle = np.nanmedian(means[:, known], axis=0) if len(known) else np.array([])
    return Band(low + (known + 0.5) * width / _BUCKETS, least[known], greatest[known], middle)
