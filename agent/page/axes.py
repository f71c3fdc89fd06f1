"""Axes of a plot: a value's place between two ends, and ticks at round numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

HUGE = 1e300  # beyond it differences overflow
LOG_SPAN = 3.0  # powers of ten between least and greatest from which a straight axis would show the greatest alone
_LEAST, _GREATEST = 1e-307, 1e308
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high`, drawn from `start` to `end`; by their logarithm where `log`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, values: np.ndarray) -> np.ndarray:
        """Where values are drawn; those beyond an end stand at it."""
        low, high, given = self.low, self.high, np.clip(values, self.low, self.high)
        if self.log:
            low, high, given = math.log10(low), math.log10(high), np.log10(given)
        share = (given / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)  # halves: the whole may overflow
        return self.start + share * (self.end - self.start)

    def place(self, value: float) -> float:
        """Where one value is drawn."""
        return float(self.at(np.array([value]))[0])

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within the axis, in order."""
        return _decades(self.low, self.high, most) if self.log else _round_values(self.low, self.high, most)


def axis_of(values: np.ndarray, start: float, end: float) -> Axis:
    """An axis that all finite values fit on, with a little room; by logarithm where their span demands it."""
    known = np.clip(values[np.isfinite(values)], -HUGE, HUGE)
    known = np.where(np.abs(known) < _LEAST, 0.0, known)
    if not len(known):
        return Axis(0.0, 1.0, start, end)
    low, high = float(known.min()), float(known.max())
    if low > 0 and (span := math.log10(high) - math.log10(low)) >= LOG_SPAN:
        room = 10 ** (span * 0.04)
        return Axis(max(low / room, _LEAST), min(high * room, _GREATEST), start, end, log=True)
    room = (high / 2 - low / 2) * 0.12 or abs(high) * 0.05 or 0.5
    return Axis(low - room if low < 0 or low - room > 0 else min(low, 0.0), high + room, start, end)


def steps_axis(low: float, high: float, start: float, end: float) -> Axis:
    """The axis of steps: exactly from the first to the last."""
    return Axis(low, high if high > low else low + 1, start, end)


def _round_values(low: float, high: float, most: int) -> list[float]:
    span = high / most - low / most
    if not span > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span))
    width = next(power * m for m in (1, 2, 5, 10) if power * m >= span * 0.999)
    first = math.ceil(low / width - 1e-9)
    found = [(first + i) * width for i in range(most + 2)]
    return [0.0 if abs(v) < width / 1e6 else v for v in found if low <= v <= high] or [low]


def _decades(low: float, high: float, most: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    stride = max(1, math.ceil((last - first + 1) / most))
    return [10.0**n for n in range(first, last + 1, stride) if low <= 10.0**n <= high] or [low]


def said(value: float, is_bytes: bool = False) -> str:
    """A value as a tick or a sentence says it."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if is_bytes:
        return f"{value / _GIB:.3g} GiB"
    size = abs(value)
    if value == int(value) and size < 1e5:
        return f"{int(value):,}"
    if size and (size >= 1e5 or size < 1e-3):
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.4g}"


def said_step(step: float) -> str:
    """A step as people look it up: whole, in groups of three."""
    return f"{int(step):,}" if abs(step) < 1e15 else f"{step:.4g}"
