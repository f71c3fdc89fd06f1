"""Gradient norms, memory and the loss scale as they come in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from .kinds import LIMITS, Found, Told
from .loss_curve import shown
from .window import Window

_STREAK, _SCALED_STREAK = 2, 8  # infinite norms in a row that are no longer one skipped step
_POINTS, _BLOCKS = 128, 8
_WARM = 16  # points before which memory may do what it likes


class NormCurve:
    """A gradient norm. A loss scaler that looks for its scale makes norms that are not finite, and skips the step."""

    def __init__(self, name: str) -> None:
        self.name, self.told = name, Told()
        self._window = Window(64)
        self._bad = self._sound = 0

    def begin(self) -> None:
        """The run starts again."""
        self.told.over("grad_nan")
        self._bad = self._sound = 0

    def take(self, value: float, scaled: bool) -> Iterator[Found]:
        """One value; `scaled`: a loss scale was seen in this run."""
        if math.isfinite(value):
            self._window.add(value)
            self._bad, self._sound = 0, self._sound + 1
            if self._sound >= LIMITS.recovered:
                self.told.over("grad_nan")
                self.told.over("once")
            return
        self._bad, self._sound = self._bad + 1, 0
        usual = f"{shown(self._window.middle()[0])} before" if len(self._window) else ""
        text = f"{self.name} is {shown(value)}"
        enough = _SCALED_STREAK if scaled else 1 if math.isnan(value) else _STREAK
        if self._bad >= enough:
            if self.told.first("grad_nan"):
                again = self.told.again("grad_nan")
                more = f" for the {self._bad}th time in a row" if self._bad > 2 else ""
                yield Found("grad_nan", text + more, value, usual, again=again)
        elif not scaled and not self.told.holds("grad_nan") and self.told.first("once"):
            yield Found(
                "grad_nan", f"{text} once: a skipped step where a loss scaler is at work", value, usual, "notice"
            )


class MemoryCurve:
    """Memory over points: growth all along a window, that does not slow down."""

    def __init__(self, name: str) -> None:
        self.name, self.told = name, Told()
        self._window, self._steps = Window(_POINTS), Window(_POINTS)
        self._count = 0

    def begin(self) -> None:
        """The run starts again."""
        self.told.over("memory_growth")
        self._window.clear()
        self._steps.clear()
        self._count = 0

    def take(self, value: float, at: float, unit: str = "step") -> Iterator[Found]:
        """One value at a step, or at a second (`unit`)."""
        self._count += 1
        if self._count <= _WARM or not math.isfinite(value) or value <= 0:
            return
        self._window.add(value)
        self._steps.add(at)
        if len(self._window) < _POINTS // 2 or self._count % _BLOCKS:
            return
        values, steps = self._window.values(), self._steps.values()
        size = len(values) // _BLOCKS
        levels = [median(values[i * size : (i + 1) * size]) for i in range(_BLOCKS)]
        grown, half = levels[-1] - levels[0], levels[_BLOCKS // 2]
        least = LIMITS.grown_bytes if values[0] > 1e6 else 0.0  # a small number is of gigabytes, or of who knows what
        steady = all(b > a for a, b in pairwise(levels)) and levels[-1] - half > 0.4 * grown
        if not steady or grown < max(LIMITS.grown * levels[0], least):
            if grown <= 0:
                self.told.over("memory_growth")
            return
        if self.told.first("memory_growth"):
            again = self.told.again("memory_growth")
            rate = grown / max(steps[-1] - steps[0], 1e-9)
            text = f"{self.name} grew from {amount(levels[0])} to {amount(levels[-1])}, {amount(rate)} a {unit}"
            yield Found("memory_growth", text, values[-1], f"{amount(levels[0])} at first", again=again)


def amount(value: float) -> str:
    """Bytes as people read them; a number without a unit as it is."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return shown(value)


class Scale:
    """The loss scale of a run, and the steps that were skipped for it."""

    def __init__(self) -> None:
        self.seen = False
        self.told = Told()
        self._highest = self._low = self._skips = self._counted = 0.0

    def begin(self) -> None:
        """The run starts again."""
        self.told.over("scale_floor")
        self.told.over("steps_skipped")
        self._highest = self._low = self._skips = self._counted = 0.0

    def take(self, value: float) -> Iterator[Found]:
        """The scale."""
        self.seen = True
        self._highest = max(self._highest, value)
        self._low = self._low + 1 if value <= LIMITS.floor < self._highest else 0
        if not self._low:
            self.told.over("scale_floor")
        if self._low >= 3:
            yield from self.at_floor(f"the loss scale is at {shown(value)}", value)

    def at_floor(self, text: str, value: float | None = None) -> Iterator[Found]:
        """A line that says so, or a scale that was seen."""
        if self.told.first("scale_floor"):
            again = self.told.again("scale_floor")
            yield Found(
                "scale_floor", text, value, f"it was {shown(self._highest)}" if self._highest else "", again=again
            )

    def skip(self) -> Iterator[Found]:
        """A line that says that a step was skipped."""
        self.seen = True
        self._skips += 1
        if self._skips >= LIMITS.skipped and self.told.first("steps_skipped"):
            again = self.told.again("steps_skipped")
            yield Found("steps_skipped", f"{self._skips:.0f} steps in a row were skipped", self._skips, "", again=again)

    def went(self) -> None:
        """A step with a finite gradient norm."""
        self._skips = 0
        self.told.over("steps_skipped")

    def counted(self, skipped: float) -> Iterator[Found]:
        """How many were skipped since the last report, as some frameworks print it."""
        self._counted = self._counted + 1 if skipped > 0 else 0
        if self._counted >= 5 and self.told.first("steps_skipped"):
            again = self.told.again("steps_skipped")
            yield Found("steps_skipped", "each of the last 5 reports counts skipped steps", skipped, "0", again=again)
        elif not self._counted:
            self.told.over("steps_skipped")
