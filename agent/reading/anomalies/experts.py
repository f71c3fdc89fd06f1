"""Mixture of experts: load balance, dead experts, auxiliary losses; and accuracy at chance."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ..shape import head, level, mad, tail
from .finding import Finding, Group, plain
from .progress import divergence

_CV_LIMIT = 1.0


def expert_findings(group: Group) -> Iterator[Finding]:
    """Balance of experts as printed, without the routing itself."""
    cv = group.curve("expert_cv")
    if cv is not None and level(cv.values, tail(len(cv), 0.25, 1)) > 0.3:
        yield cv.at("expert.imbalance_cv", plain(round(level(cv.values, tail(len(cv), 0.25, 1)), 4)), len(cv) - 1)
    most, mean, least = group.curve("expert_max"), group.curve("expert_mean"), group.curve("expert_min")
    if most is not None and mean is not None and mean.values[-1] > 0 and most.values[-1] / mean.values[-1] > 2:
        yield most.at("expert.max_over_mean", plain(round(float(most.values[-1] / mean.values[-1]), 3)), len(most) - 1)
    if least is not None and len(least) >= 3 and not least.values[-3:].any():
        yield least.at("expert.dead", True, len(least) - 1)
    dead = group.curve("dead_experts")
    if dead is not None and dead.values[-1] > 0:
        yield dead.at("expert.dead", plain(dead.values[-1]), len(dead) - 1)
    drop = group.curve("token_drop")
    if drop is not None and level(drop.values, tail(len(drop), 0.25, 1)) > 0.02:
        yield drop.at("expert.tokens_dropped", plain(round(float(drop.values[-1]), 5)), len(drop) - 1)
    aux = group.curve("aux_loss")
    if aux is not None:
        yield aux.at("aux_loss.value", plain(aux.values[-1]), len(aux) - 1)
        if len(aux) >= 6 and not aux.values.any():
            yield aux.at("aux_loss.zero", True, 0)
    for metric, key in (("z_loss", "router.z_loss_growing"), ("router_logits", "router.logits_growing")):
        curve = group.curve(metric)
        if curve is not None and len(curve) >= 8:
            first, last = level(curve.values, head(len(curve), 0.25, 2)), level(curve.values, tail(len(curve), 0.25, 2))
            if first > 0 and last > 3 * first and (divergence(curve) or last > 10 * first):
                yield curve.at(key, plain(round(last / first, 3)), len(curve) - 1)
            elif first > 0 and last > 1.25 * first and _climbs(curve.values):
                yield curve.at("router.z_loss_rising", plain(round(last / first, 3)), len(curve) - 1)


def _climbs(values: np.ndarray) -> bool:
    """Whether a curve rises all along: each of six stretches lies above the one before."""
    levels = [float(np.median(part)) for part in np.array_split(values, 6)]
    return len(values) >= 12 and all(a < b for a, b in pairwise(levels))


def accuracy_findings(group: Group, classes: float | None) -> Iterator[Finding]:
    """Last accuracy; and whether it stays at that of guessing among `classes`."""
    for metric in ("eval_accuracy", "accuracy"):
        curve = group.curve(metric)
        if curve is None:
            continue
        yield curve.at("accuracy.value", plain(curve.values[-1]), len(curve) - 1)
        chance = 1 / classes if classes and classes > 1 else None
        if chance is not None and len(curve) >= 5:
            values = curve.values / (100.0 if curve.values.max() > 1.0 else 1.0)
            late = level(values, tail(len(values), 0.5, 3))
            if (
                abs(late - chance) < max(0.1 * chance, 2 * mad(values) / np.sqrt(len(values)))
                and mad(values) < 0.3 * chance
            ):
                yield curve.at("accuracy.at_chance", plain(round(late, 5)), len(curve) - 1)
