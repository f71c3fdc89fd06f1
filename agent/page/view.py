"""Which part of a curve a plot shows: all of it, or what is around the event with an overview below."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..reading.series import Series

_BEFORE, _AFTER = 45, 20  # points around the event
_MOST_OF_IT = 0.6  # of all steps, from which the whole is shown
_BEYOND = 0.5  # of all steps: a mark further out belongs to something else


@dataclass(frozen=True, slots=True)
class View:
    """Steps from the first to the last of all curves, and those that are drawn large."""

    first: float
    last: float
    low: float
    high: float

    @property
    def whole(self) -> bool:
        """Whether all is drawn large."""
        return (self.low, self.high) == (self.first, self.last)


def view(lines: list[Series], places: dict[str, float]) -> tuple[View, dict[str, float]]:
    """What to show of some curves, and the marks that fall on it.

    Args:
        places: of marks, as steps; those far from all points are left out.
    """
    own = [s for s in lines if not s.file.good] or lines
    steps = np.concatenate([s.steps for s in own])
    first, last = float(steps.min()), float(steps.max())
    reach, spacing = max((last - first) * _BEYOND, 1.0), _spacing(own)
    reach = max(reach, 2 * spacing)
    near = {name: at for name, at in places.items() if first - reach <= at <= last + reach}
    first, last = min([first, *near.values()]), max([last, *near.values()])
    whole = View(first, last, first, last)
    if not near:
        return whole, near
    low = max(first, min(near.values()) - _BEFORE * spacing)
    high = min(last, max(near.values()) + _AFTER * spacing)
    if high - low >= _MOST_OF_IT * (last - first) or _points(own, low, high) < 3:
        return whole, near
    return View(first, last, low, high), near


def _spacing(lines: list[Series]) -> float:
    """Steps between neighbouring points of the fullest curve."""
    widths = np.diff(max(lines, key=len).steps)
    widths = widths[widths > 0]
    return float(np.median(widths)) if len(widths) else 1.0


def _points(lines: list[Series], low: float, high: float) -> int:
    return max(int(((s.steps >= low) & (s.steps <= high)).sum()) for s in lines)
