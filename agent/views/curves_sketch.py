"""One metric as points of a unit square: what of its curves falls on a part of the steps, with ticks and gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..page.axes import HUGE, Axis, axis_of, said, said_step, steps_axis
from ..page.plot import Curve, Figure
from ..page.thin import Points, band, gaps, segments, thinned

Kind = Literal["curve", "good", "median", "least", "greatest"]
Path = tuple[list[float], list[float]]
_GIB = 1 << 30
_TOUCH = 0.004  # of the width: gaps nearer than this are one


@dataclass(frozen=True, slots=True)
class Trace:
    """A line to draw, in pieces between its gaps; `place` counts the lines that are told apart by their marker."""

    kind: Kind
    label: str
    place: int
    pieces: list[Path]


@dataclass(frozen=True, slots=True)
class Sketch:
    """A part of a figure, all coordinates from 0 to 1, ticks with their words.

    Attributes:
        log: whether values stand by their logarithm.
        left_out: finite values that no logarithm has.
        gaps: stretches where values are not finite.
    """

    low: float
    high: float
    log: bool
    traces: list[Trace]
    across: list[tuple[float, str]]
    up: list[tuple[float, str]]
    gaps: list[tuple[float, float]]
    left_out: int = 0
    points: int = 0

    def at(self, step: float) -> float | None:
        """Where a step stands; None outside of the part."""
        if not self.low <= step <= self.high:
            return None
        return (step - self.low) / ((self.high - self.low) or 1.0)


def sketch(figure: Figure, low: float, high: float, log: bool | None = None, columns: int = 80) -> Sketch:
    """What to draw between two steps. Takes some 100 ms for hundreds of long curves: not for the thread of a screen.

    Args:
        log: by the logarithm or not; None lets the values decide.
        columns: cells across, for the number of ticks.
    """
    x = steps_axis(low, high, 0.0, 1.0)
    shown = [(c, c.points.within(low, high)) for c in figure.curves]
    values = np.concatenate([p.values for _, p in shown]) if shown else np.empty(0)
    y = _axis(values, log)
    finite, is_bytes = np.isfinite(values), figure.is_bytes
    return Sketch(
        low, x.high, y.log, _traces(figure, shown, x, y),
        [(x.place(v), said_step(v)) for v in _spaced(x.ticks(max(2, columns // 14)))],
        _up(y, is_bytes),
        _gaps([p for c, p in shown if not c.good], x),
        left_out=int((values[finite] <= 0).sum()) if y.log else 0, points=len(values),
    )  # fmt: skip


def _axis(values: np.ndarray, log: bool | None) -> Axis:
    """The axis that values want, or the one that is asked for where they allow it."""
    known = np.clip(values[np.isfinite(values)], -HUGE, HUGE)
    own = axis_of(known[known > 0] if log else known, 0.0, 1.0)
    if log is None or own.log == log or not len(known) or (log and not (known > 0).any()):
        return own
    if log:
        low, high = float(known[known > 0].min()), float(known.max())
        return Axis(max(low / 1.1, 1e-307), high * 1.1, 0.0, 1.0, log=True)
    low, high = float(known.min()), float(known.max())
    return Axis(min(0.0, low), high + (high - low) * 0.08, 0.0, 1.0)


def _up(y: Axis, is_bytes: bool) -> list[tuple[float, str]]:
    """Ticks at round values, each word once; bytes by round numbers of GiB, the unit is said beside the plot."""
    unit = _GIB if is_bytes else 1
    round_ones = Axis(y.low / unit, y.high / unit, 0.0, 1.0, y.log).ticks(5)
    words = {f"{v:.6g}" if is_bytes else said(v): v for v in reversed(round_ones)}
    return [(y.place(v * unit), word) for word, v in words.items()]


def _spaced(ticks: list[float]) -> list[float]:
    """Steps are whole: two ticks that would read the same are one."""
    return list({said_step(v): v for v in ticks}.values())


def _traces(figure: Figure, shown: list[tuple[Curve, Points]], x: Axis, y: Axis) -> list[Trace]:
    apart = sorted(figure.apart, key=lambda c: (c.good, not c.apart))
    points = {id(c): p for c, p in shown}
    found = [
        Trace("good" if c.good else "curve", c.label, place, _pieces(thinned(points[id(c)]), x, y))
        for place, c in enumerate(apart)
    ]
    if not figure.banded:
        return found
    own = [p for c, p in shown if not c.good]
    covered = band(own, x.low, x.high)
    spread: tuple[tuple[Kind, np.ndarray], ...] = (
        ("least", covered.least), ("greatest", covered.greatest), ("median", covered.median),
    )  # fmt: skip
    many = f"{len(own):,} curves"
    return [*(Trace(k, f"{k} of {many}", 0, _pieces(Points(covered.steps, v), x, y)) for k, v in spread), *found]


def _pieces(points: Points, x: Axis, y: Axis) -> list[Path]:
    if y.log:
        points = Points(points.steps, np.where(points.values > 0, points.values, np.nan))
    across = x.at(points.steps)
    up = np.full(len(points), np.nan)
    finite = points.finite
    up[finite] = y.at(points.values[finite])
    return [(across[part].tolist(), up[part].tolist()) for part in segments(points)]


def _gaps(lines: list[Points], x: Axis) -> list[tuple[float, float]]:
    """Stretches without a finite value on some curve, in order; those that nearly touch are one."""
    rows = [gaps(p) for p in lines if len(p)]
    found: list[tuple[float, float]] = []
    for start, end in sorted(map(tuple, x.at(np.concatenate(rows)).tolist())) if rows else []:
        if found and start - found[-1][1] <= _TOUCH:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
