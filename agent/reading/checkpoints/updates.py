"""How far the optimizer's next step would move each weight: lr * m / (sqrt(v) + eps) against the weight itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import deadline
from .moments import Moments, Optimizer, number_of
from .numbers import chunks
from .parts import Tensor
from .threads import in_threads
from .weights import Weights

if TYPE_CHECKING:
    from ...workspace import Workspace

_BETAS = (0.9, 0.999)


@dataclass(frozen=True, slots=True)
class Update:
    """One parameter: the norm of its running gradient, of its weight, and of the step at the saved rate."""

    moments: Moments
    weight: Tensor
    gradient: float
    norm: float
    step: float

    @property
    def ratio(self) -> float:
        """Step against weight; 0 where the weight is zero."""
        return self.step / self.norm if self.norm else 0.0


def updates_of(ws: Workspace, optimizer: Optimizer, weights: Weights) -> list[Update]:
    """A pass over the first moment, the second and the weight of every parameter that has a name.

    Nothing where the call's time or a damaged file does not allow all of them: a part of the layers makes no profile.
    """
    groups = _by_key(optimizer.groups)
    todo = [
        (m, weights.tensors[m.parameter], groups.get(m.key) or (optimizer.groups[0] if optimizer.groups else {}))
        for m in optimizer.moments
        if m.parameter in weights.tensors and "exp_avg" in m.slots and m.slots["exp_avg"].size
        and m.shape == weights.tensors[m.parameter].shape
    ]  # fmt: skip
    made = list(in_threads(todo, lambda t: (_update(ws, *t),)))
    return [] if None in made else [u for one in made if one for u in one if u is not None]


def _by_key(groups: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {str(k): g for g in groups if isinstance(g.get("params"), list) for k in g["params"]}


def _update(ws: Workspace, moments: Moments, weight: Tensor, group: dict[str, Any]) -> Update | None:
    rate, eps = _float(group.get("lr"), 0.0), _float(group.get("eps"), 1e-8)
    one, two = _betas(group.get("betas"))
    count = max(moments.step or 0.0, 1.0)
    scale_one, scale_two = 1 - one**count, 1 - two**count
    gradient = norm = step = 0.0
    second = moments.slots.get("exp_avg_sq")
    if second is None or second.shape != weight.shape:
        return None
    seen = 0
    streams = (chunks(ws, moments.slots["exp_avg"]), chunks(ws, second), chunks(ws, weight))
    for m, v, w in zip(*streams, strict=False):
        deadline.check()
        if not (len(m) == len(v) == len(w)):
            return None
        with np.errstate(all="ignore"):
            mean = np.nan_to_num(m.astype(np.float64) / scale_one, posinf=0, neginf=0)
            root = np.sqrt(np.maximum(np.nan_to_num(v.astype(np.float64), posinf=0), 0) / scale_two)
            move = rate * mean / (root + eps)
            kept = np.nan_to_num(w.astype(np.float64), posinf=0, neginf=0)
        gradient, norm, step = gradient + float(mean @ mean), norm + float(kept @ kept), step + float(move @ move)
        seen += len(m)
    return Update(moments, weight, gradient**0.5, norm**0.5, step**0.5) if seen == weight.count else None


def _float(value: Any, default: float) -> float:
    number = number_of(value)
    return default if number is None else number


def _betas(value: Any) -> tuple[float, float]:
    if isinstance(value, list | tuple) and len(value) >= 2:
        one, two = _float(value[0], -1), _float(value[1], -1)
        if 0 <= one < 1 and 0 <= two < 1:
            return one, two
    return _BETAS
