"""The loss as it comes in: not finite, a spike, divergence, a plateau. Robust to noise, silent while it warms up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from .kinds import LIMITS, Found, Told
from .window import Levels, Window

_WINDOW = 128


def shown(value: float) -> str:
    """A value as people read it."""
    return f"{value:.4g}" if math.isfinite(value) else str(value)


class LossCurve:
    """One loss of one file and rank.

    Attributes:
        judged: whether its shape is told, not only whether it is finite: the losses of reinforcement learning go up
            and down.
    """

    def __init__(self, name: str) -> None:
        self.name, self.judged = name, True
        self.told = Told()
        self.last: float | None = None
        self._begin()

    def _begin(self) -> None:
        self._window = Window(_WINDOW)
        self._levels = Levels(LIMITS.block, LIMITS.plateau_blocks)
        self._first: list[float] = []
        self._count = self._sound = self._high = self._calm = self._rises = 0

    def begin(self) -> None:
        """The run starts again: what was before is no measure of what comes."""
        for kind in ("loss_nan", "loss_spike", "divergence", "plateau"):
            self.told.over(kind)
        self._begin()

    def take(self, value: float, rate: tuple[float, float] | None) -> Iterator[Found]:
        """One value; `rate`: the learning rate now and at its highest, where it is known."""
        self.last = value
        if not math.isfinite(value):
            yield from self._not_finite(value)
            return
        self._sound += 1
        if self._sound >= LIMITS.recovered:
            self.told.over("loss_nan")
        self._count += 1
        if len(self._first) < LIMITS.first:
            self._first.append(value)
        if not self.judged or value < 0:
            return
        yield from self._spike(value)
        if self._levels.add(value):
            yield from self._diverged()
            yield from self._flat(rate)

    def _not_finite(self, value: float) -> Iterator[Found]:
        self._sound = 0
        if self.told.first("loss_nan"):
            usual = f"{shown(self._window.middle()[0])} before" if len(self._window) else ""
            again = self.told.again("loss_nan")
            yield Found("loss_nan", f"{self.name} is {shown(value)}", value, usual, again=again)

    @property
    def _matters(self) -> float:
        """How much a loss must rise at all."""
        return LIMITS.share * median(self._first) if self._first else math.inf

    def _spike(self, value: float) -> Iterator[Found]:
        middle, usual = self._window.middle()
        known = self._count > LIMITS.warm_up and len(self._window) >= LIMITS.warm_up // 2 and middle > 0
        high = (
            known
            and value > LIMITS.spike_twice * middle
            and value - middle > max(LIMITS.spike_sigmas * usual, self._matters)
            and math.log(value / middle) > LIMITS.spike_ratios * self._window.ratio()
        )
        if not high:
            self._high = 0
            self._window.add(value)
            self._calm += 1
            if self._calm >= LIMITS.recovered:
                self.told.over("loss_spike")
            return
        self._calm = 0
        self._high += 1
        if self._high > _WINDOW // 8:  # it stays: that is the level now
            self._window.clear()
            self._high = 0
            return
        if (self._high >= 2 or value > LIMITS.spike_ratio * middle) and self.told.first("loss_spike"):
            again = self.told.again("loss_spike")
            yield Found(
                "loss_spike", f"{self.name} jumps to {shown(value)}, {value / middle:.1f} times its median", value,
                f"{shown(middle)} +- {shown(usual)}", again=again,
            )  # fmt: skip

    def _diverged(self) -> Iterator[Found]:
        held, levels = self._levels, list(self._levels.last)
        if len(levels) < 5:
            return
        share = max(LIMITS.diverged, LIMITS.diverged_noise * held.noise)
        bound = held.best + max(share * held.best, LIMITS.diverged_swing * held.swing, self._matters)
        bound = max(bound, (1 + LIMITS.diverged) * held.returned)
        *_, before, now = levels
        self._rises = self._rises + 1 if now > bound and now >= (1 - max(0.02, held.noise / 2)) * before else 0
        if now < held.best + 0.3 * (bound - held.best):
            self.told.over("divergence")
        if self._rises >= 2 and self.told.first("divergence"):
            again = self.told.again("divergence")
            what = f"{self.name} rose to a level of {shown(now)}, {now / held.best - 1:.0%} above its best" if (
                held.best > 0
            ) else f"{self.name} rose to a level of {shown(now)}"  # fmt: skip
            yield Found("divergence", what, now, f"best level {shown(held.best)}", again=again)

    def _flat(self, rate: tuple[float, float] | None) -> Iterator[Found]:
        levels = list(self._levels.last)
        if len(levels) < LIMITS.plateau_blocks:
            return
        third = len(levels) // 3
        fell = median(levels[:third]) - median(levels[-third:])
        wobble = median(abs(b - a) for a, b in pairwise(levels))
        now = median(levels[-third:])
        flat = max(wobble, 0.005 * abs(now))
        if abs(fell) > flat:
            if fell > 4 * flat:
                self.told.over("plateau")
            return
        decayed = rate is not None and rate[0] < LIMITS.decayed * rate[1]
        learned = now < LIMITS.plateau_level * median(self._first)
        if not decayed and not learned and self.told.first("plateau"):
            again = self.told.again("plateau")
            points = LIMITS.plateau_blocks * LIMITS.block
            yield Found(
                "plateau", f"{self.name} has been flat at {shown(now)} for {points} points", now,
                f"it began at {shown(median(self._first))}", again=again,
            )  # fmt: skip
