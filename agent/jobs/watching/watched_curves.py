"""All curves of a run: each metric of each file and rank goes to the detector that judges it."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from .alarm import LIMITS, Found, Told
from .point_readers import Point

# ----------
# The last values of a curve in constant memory, with their median and spread.


_STALE = 16  # values after which median and spread are computed anew
_FADES, _ROSE, _BACK = 0.998, 1.2, 1.1  # a block; of the best: risen by so much, come back to it
_NORMAL = 1.4826  # the median distance of a normal curve, as its standard deviation


class Window:
    """A ring of numbers. `middle` may be up to 16 values old, which is nothing to a median of a hundred."""

    __slots__ = ("_known", "_next", "_ratio", "_since", "_size", "_values")

    def __init__(self, size: int) -> None:
        self._size, self._next, self._since = size, 0, _STALE
        self._values = array("d")
        self._known, self._ratio = (math.nan, math.nan), 0.0

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """One more; the oldest goes."""
        if len(self._values) < self._size:
            self._values.append(value)
        else:
            self._values[self._next] = value
        self._next = (self._next + 1) % self._size
        self._since += 1

    def clear(self) -> None:
        """Forget all."""
        self.__init__(self._size)

    def values(self) -> list[float]:
        """The oldest first."""
        if len(self._values) < self._size:
            return self._values.tolist()
        return (self._values[self._next :] + self._values[: self._next]).tolist()

    def middle(self) -> tuple[float, float]:
        """Median, and the usual distance from it."""
        if self._since >= _STALE and len(self._values):
            values = self._values.tolist()
            at, _ = self._known = spread(values)
            least = max(abs(at) / 100, 1e-300)  # a value of 0 has no logarithm
            self._ratio = spread([math.log(max(v, least)) for v in values])[1]
            self._since = 0
        return self._known

    def ratio(self) -> float:
        """The usual distance between the logarithms, as of the last `middle`."""
        return self._ratio


def spread(values: list[float]) -> tuple[float, float]:
    """Median, and the usual distance from it; of a normal curve its standard deviation."""
    at = median(values)
    return at, _NORMAL * median([abs(v - at) for v in values])


class Levels:
    """Medians of blocks of a curve: what it does beneath its noise. Keeps the last ones and the best."""

    def __init__(self, block: int, kept: int) -> None:
        self._size = block
        self._open: list[float] = []
        self.last: deque[float] = deque(maxlen=kept)
        self.best = math.inf
        self.returned = 0.0  # the highest level that it rose to and came back from; fades
        self._highest = 0.0  # since the best
        self.swing = 0.0  # usual distance of a value from its block's level; follows what is calmer sooner
        self.noise = 0.0  # usual distance of a value from its block's level, as a share of that

    def add(self, value: float) -> bool:
        """One more; whether a block is full with it."""
        self._open.append(value)
        if len(self._open) < self._size:
            return False
        level, noise = spread(self._open)
        self._open = []
        self.last.append(level)
        if len(self.last) >= 3:  # one low block of a noisy loss is no level
            self._calm_level(median(list(self.last)[-3:]))
        if len(self.last) == 1:
            self.swing, self.noise = noise, noise / max(abs(level), 1e-300)
        self.swing += (0.2 if noise < self.swing else 0.02) * (noise - self.swing)
        noise /= max(abs(level), 1e-300)
        self.noise += 0.1 * (noise - self.noise)
        return True

    def _calm_level(self, level: float) -> None:
        self.returned *= _FADES
        self._highest = max(self._highest, level)
        if level < self.best:
            if self._highest > _ROSE * self.best:
                self.returned = max(self.returned, self._highest)
            self.best, self._highest = level, level
        elif level < _BACK * self.best and self._highest > _ROSE * self.best:
            self.returned, self._highest = max(self.returned, self._highest), level


# ----------
# The loss as it comes in: not finite, a spike, divergence, a plateau. Robust to noise, silent while it warms up.

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
        usual = f"{shown(self._window.middle()[0])} before" if len(self._window) else ""
        yield from self.told.tell(Found("loss_nan", f"{self.name} is {shown(value)}", value, usual))

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
        if self._high >= 2 or value > LIMITS.spike_ratio * middle:
            text = f"{self.name} jumps to {shown(value)}, {value / middle:.1f} times its median"
            yield from self.told.tell(Found("loss_spike", text, value, f"{shown(middle)} +- {shown(usual)}"))

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
        if self._rises >= 2:
            above = f", {now / held.best - 1:.0%} above its best" if held.best > 0 else ""
            text = f"{self.name} rose to a level of {shown(now)}{above}"
            yield from self.told.tell(Found("divergence", text, now, f"best level {shown(held.best)}"))

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
        if not decayed and not learned:
            text = f"{self.name} has been flat at {shown(now)} for {LIMITS.plateau_blocks * LIMITS.block} points"
            yield from self.told.tell(Found("plateau", text, now, f"it began at {shown(median(self._first))}"))


# ----------
# Gradient norms, memory and the loss scale as they come in.

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
            more = f" for the {self._bad}th time in a row" if self._bad > 2 else ""
            yield from self.told.tell(Found("grad_nan", text + more, value, usual))
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
        rate = grown / max(steps[-1] - steps[0], 1e-9)
        text = f"{self.name} grew from {amount(levels[0])} to {amount(levels[-1])}, {amount(rate)} a {unit}"
        yield from self.told.tell(Found("memory_growth", text, values[-1], f"{amount(levels[0])} at first"))


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
        usual = f"it was {shown(self._highest)}" if self._highest else ""
        yield from self.told.tell(Found("scale_floor", text, value, usual))

    def skip(self) -> Iterator[Found]:
        """A line that says that a step was skipped."""
        self.seen = True
        self._skips += 1
        if self._skips >= LIMITS.skipped:
            text = f"{self._skips:.0f} steps in a row were skipped"
            yield from self.told.tell(Found("steps_skipped", text, self._skips))

    def went(self) -> None:
        """A step with a finite gradient norm."""
        self._skips = 0
        self.told.over("steps_skipped")

    def counted(self, skipped: float) -> Iterator[Found]:
        """How many were skipped since the last report, as some frameworks print it."""
        self._counted = self._counted + 1 if skipped > 0 else 0
        if self._counted >= 5:
            text = "each of the last 5 reports counts skipped steps"
            yield from self.told.tell(Found("steps_skipped", text, skipped, "0"))
        elif not self._counted:
            self.told.over("steps_skipped")


# ----------

_MOST = 8192  # curves; further ones are not judged
_LOSSES = frozenset(("loss", "policy_loss", "value_loss"))
_MEMORY = frozenset(("memory", "peak_memory", "host_memory"))
_REWARDS = frozenset(("reward", "kl", "clip_ratio", "reward_std"))
_CURVES_BACK = 0.05  # of the step before: what falls back by more starts again


@dataclass(slots=True)
class _Held:
    """A curve and the step it has come to."""

    curve: LossCurve | NormCurve | MemoryCurve
    step: float | None = None
    count: int = 0


class Curves:
    """Keeps a curve for each metric, file and rank."""

    def __init__(self) -> None:
        self.scale = Scale()
        self.loss: float | None = None
        self._held: dict[tuple[str, str, int | None], _Held] = {}
        self._rewarded = False
        self._rates: dict[str, tuple[float, float]] = {}  # the learning rate now and at its highest, by file

    def take(self, point: Point, file: str) -> Iterator[Found]:
        """One point: what is told of it."""
        metric, value = point.metric, point.value
        if metric == "learning_rate":
            self._rates[file] = (value, max(value, self._rates.get(file, (0.0, 0.0))[1]))
        elif metric == "loss_scale":
            yield from self.scale.take(value)
        elif metric == "skipped_iterations":
            yield from self.scale.counted(value)
        elif metric in _REWARDS:
            self._rewarded = True
        elif metric in _LOSSES or metric == "grad_norm" or metric in _MEMORY:
            yield from self._judged(point, file)

    def _judged(self, point: Point, file: str) -> Iterator[Found]:
        key = (file, point.raw, point.rank)
        held = self._held.get(key)
        if held is None:
            if len(self._held) >= _MOST:
                return
            made = LossCurve if point.metric in _LOSSES else NormCurve if point.metric == "grad_norm" else MemoryCurve
            held = self._held[key] = _Held(made(_name(point)))
        if point.step is not None:
            if held.step is not None and point.step < held.step - max(2.0, _CURVES_BACK * held.step):
                held.curve.begin()
                self.scale.begin()
            held.step = point.step
        held.count += 1
        curve = held.curve
        if isinstance(curve, LossCurve):
            self.loss = point.value if point.metric == "loss" else self.loss
            curve.judged = point.metric == "loss" and not self._rewarded
            yield from curve.take(point.value, next(iter(self._rates.values()), None))
        elif isinstance(curve, NormCurve):
            if abs(point.value) < float("inf"):
                self.scale.went()
            yield from curve.take(point.value, self.scale.seen)
        else:
            yield from curve.take(point.value, point.step if point.step is not None else float(held.count))


def _name(point: Point) -> str:
    """What people call it: the name in the file, where it says as much as ours."""
    raw = point.raw.strip()
    return raw if 0 < len(raw) <= 40 and raw.isprintable() else point.metric
