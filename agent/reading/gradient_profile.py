"""Gradients by depth: where they end, where they vanish or explode, how large they are against the weights."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from .checkpoints.depth import forward_order, layer_of, module_of, place
from .gradients import Gradient

_ADAPTER = re.compile(r"(?i)(?:^|[._])(?:lora|adapters?|ia3|vera|dora|oft|boft|hada|lokr|prompt_encoder)(?:[._]|$)")
_LAYERS = 4  # layers from which a profile over depth means something


@dataclass(slots=True)
class Module:
    """One block of the model: the norm of its gradients together, and that of its weights (NaN where unknown)."""

    name: str
    layer: int | None
    norm: float
    weight_norm: float
    first_norm: float
    gradients: list[Gradient]

    @property
    def to_weight(self) -> float:
        """Gradient against weight; NaN where either is unknown."""
        return self.norm / self.weight_norm if self.weight_norm > 0 else math.nan


@dataclass(slots=True)
class Profile:
    """The blocks of a model in forward order.

    Attributes:
        ratio: early layers' norm over late layers' (median of the first and last quarter); NaN where unknown.
        slope: decades that the norm changes for each layer, from first to last.
        total: norm of all gradients together.
    """

    modules: list[Module] = field(default_factory=list)
    ratio: float = math.nan
    slope: float = math.nan
    total: float = math.nan

    @property
    def layers(self) -> list[Module]:
        """The blocks of the stack."""
        return [m for m in self.modules if m.layer is not None]

    @property
    def to_weight(self) -> float:
        """Median over the layers of gradient norm against weight norm; NaN where weights are unknown."""
        known = [m.to_weight for m in self.modules if math.isfinite(m.to_weight)]
        return statistics.median(known) if known else math.nan


def profile(gradients: list[Gradient]) -> Profile:
    """Blocks with their norms, in the order of the forward pass. Gradients never finite are left out."""
    by_module: dict[str, list[Gradient]] = {}
    known = [g for g in gradients if not math.isnan(g.norm)]
    given = {g.name: g for g in known}
    for name in forward_order(given):
        by_module.setdefault(module_of(name), []).append(given[name])
    found = Profile(
        [
            Module(
                name, layer_of(inner[0].name), _joined(g.norm for g in inner),
                _joined(g.weight_norm for g in inner), _joined(g.first_norm for g in inner), inner,
            )
            for name, inner in by_module.items()
        ]
    )  # fmt: skip
    if known:
        found.total = _joined(g.norm for g in known)
    layers = found.layers
    if len(layers) >= _LAYERS:
        quarter = max(1, len(layers) // 4)
        early = statistics.median(m.norm for m in layers[:quarter])
        late = statistics.median(m.norm for m in layers[-quarter:])
        found.ratio = early / late if late > 0 else math.inf if early > 0 else math.nan
        positive = [(i, math.log10(m.norm)) for i, m in enumerate(layers) if m.norm > 0]
        if len(positive) >= 3:
            found.slope = float(np.polyfit([i for i, _ in positive], [n for _, n in positive], 1)[0])
    return found


def _joined(values: Iterable[float]) -> float:
    return math.sqrt(sum(min(abs(v), 1e150) ** 2 for v in values))


def trained(gradients: list[Gradient]) -> list[Gradient]:
    """The parameters that were meant to be trained: beside adapters, the model's own never have a gradient."""
    if not any(_ADAPTER.search(g.name) for g in gradients):
        return gradients
    return [g for g in gradients if not g.steps or g.absent < g.steps or (_ADAPTER.search(g.name) and not g.frozen)]


def untouched(found: Profile) -> list[Gradient]:
    """Parameters whose gradient was zero or missing at every recorded step.

    Left out: early ones of a profile that fades towards the first layers (underflow), and the inner half of an
    adapter seen once, which has no gradient while the outer half is still zero.
    """
    silent = [g for m in found.modules for g in m.gradients if g.steps and g.zeros == g.steps]
    if not silent or len(silent) == sum(len(m.gradients) for m in found.modules):
        return silent
    alive = [m for m in found.modules if m.norm > 0]
    first = place(alive[0].gradients[0].name)
    fades = found.slope > 0.5 if math.isfinite(found.slope) else False
    return [
        g
        for g in silent
        if not (fades and not g.absent and place(g.name) <= first)
        and not (g.steps == 1 and ("lora_A" in g.name or "lora_down" in g.name))
    ]


def broken(gradients: list[Gradient]) -> list[Gradient]:
    """Parameters with a gradient that is not finite, at the first step that has any, in forward order."""
    bad = [g for g in gradients if g.bad_step is not None or g.bad is not None]
    if not bad:
        return []
    steps = [g.bad_step for g in bad if g.bad_step is not None]
    first = min(steps) if steps else None
    held = {g.name: g for g in bad if first is None or g.bad_step == first}
    return [held[name] for name in forward_order(held)]
