"""All curves of a run: each metric of each file and rank goes to the detector that judges it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .kinds import Found
from .loss_curve import LossCurve
from .other_curves import MemoryCurve, NormCurve, Scale
from .readers import Point

_MOST = 8192  # curves; further ones are not judged
_LOSSES = frozenset(("loss", "policy_loss", "value_loss"))
_MEMORY = frozenset(("memory", "peak_memory", "host_memory"))
_REWARDS = frozenset(("reward", "kl", "clip_ratio", "reward_std"))
_BACK = 0.05  # of the step before: what falls back by more starts again


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
            if held.step is not None and point.step < held.step - max(2.0, _BACK * held.step):
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
