"""What is wrong with experts and routers in checkpoints, as facts with the tensor that shows each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from .experts import Mixture, bias_values, expert_sums, router_rows
from .moment_values import values_of
from .moments import Optimizer
from .optimizer_health import Told
from .weights import bare

if TYPE_CHECKING:
    from ...workspace import Workspace

_GROWTH = 5.0  # times a router's norm may grow
_BIAS = 1.0  # spread of balancing biases beyond the range of sigmoid scores
_ALIKE = 0.999  # cosine of router rows above which experts get the same scores


def layer_findings(ws: Workspace, mixture: Mixture, earlier: Mixture | None) -> Iterator[Told]:
    """Experts of one layer that equal each other, or that did not move since an earlier checkpoint."""
    sums = expert_sums(ws, mixture)
    count = len(sums)
    some = next(iter(next(iter(mixture.experts.values())).values())).tensor
    same = sum(n for n in Counter(s.digest for s in sums.values()).values() if n > 1)
    if same:
        text = f"{mixture.layer}: {same} of {count} experts are bit-identical to another"
        yield Told("expert.identical", same, some.file, some.name, text)
    norms = [s.norm for s in sums.values()]
    middle = float(np.median(norms))
    if middle > 0:
        text = f"{mixture.layer}: norms of {count} experts from {min(norms):.4g} to {max(norms):.4g}"
        yield Told("expert.norm_spread", round(max(norms) / middle, 3), some.file, some.name, text)
    if earlier is not None and earlier.experts.keys() == mixture.experts.keys():
        before = expert_sums(ws, earlier)
        still = [e for e in sums if sums[e].digest == before[e].digest]
        if still:
            text = (
                f"{mixture.layer}: {len(still)} of {count} experts are bit-identical to an earlier checkpoint "
                f"(experts {', '.join(map(str, still[:16]))})"
            )
            tensor = next(iter(mixture.experts[still[0]].values())).tensor
            yield Told("expert.never_changed", len(still), tensor.file, tensor.name, text)


def router_findings(ws: Workspace, mixture: Mixture, earlier: Mixture | None) -> Iterator[Told]:
    """The router's weight and the balancing bias of one layer."""
    rows = router_rows(ws, mixture)
    if rows is not None and mixture.router is not None:
        yield from _router(ws, mixture, rows, earlier)
    bias = bias_values(ws, mixture)
    if bias is not None and mixture.bias is not None and len(bias) and np.isfinite(bias).all():
        spread = float(bias.max() - bias.min())
        text = f"{mixture.layer}: balancing biases from {bias.min():.4g} to {bias.max():.4g}"
        yield Told("expert.bias_spread", round(spread, 5), mixture.bias.file, mixture.bias.name, text)
        if spread > _BIAS:
            text += ", a wider range than that of the scores they are added to: the bias alone decides"
            yield Told("expert.bias_dominates", round(spread, 5), mixture.bias.file, mixture.bias.name, text)


def _router(ws: Workspace, mixture: Mixture, rows: np.ndarray, earlier: Mixture | None) -> Iterator[Told]:
    assert mixture.router is not None
    file, member = mixture.router.file, mixture.router.name
    bad = int((~np.isfinite(rows)).sum())
    if bad:
        yield Told("expert.router_nonfinite", bad, file, member, f"{member}: {bad} elements are NaN or infinite")
        return
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    if not norms.any():
        yield Told("expert.router_zero", True, file, member, f"{member} is all zero: every expert scores the same")
        return
    unit = rows / np.maximum(norms, 1e-30)[:, None]
    alike = float((unit @ unit.mean(0)).min() / max(float(np.linalg.norm(unit.mean(0))), 1e-30))
    if alike > _ALIKE:
        text = f"{member}: the rows of all {len(rows)} experts point the same way (least cosine {alike:.5f})"
        yield Told("expert.router_collapsed", round(alike, 5), file, member, text)
    before = router_rows(ws, earlier) if earlier is not None else None
    if before is None or before.shape != rows.shape:
        return
    if np.array_equal(before, rows):
        text = f"{member} is bit-identical to an earlier checkpoint: the router does not learn"
        yield Told("expert.router_unchanged", True, file, member, text)
    growth = float(np.linalg.norm(rows) / max(float(np.linalg.norm(before)), 1e-30))
    if growth > _GROWTH:
        text = f"{member}: its norm grew {growth:.3g} times since an earlier checkpoint"
        yield Told("expert.router_growth", round(growth, 3), file, member, text)


def silent_experts(ws: Workspace, optimizer: Optimizer, layers: list[Mixture]) -> Iterator[Told]:
    """Experts whose moments are all zero, or who have none while others of their layer do: no token ever came."""
    if optimizer.flat or not optimizer.matched:
        return
    by_name = {bare(m.parameter): m for m in optimizer.moments if m.parameter}
    for mixture in layers:
        inside = [(e, p) for e, parts in mixture.experts.items() for p in parts.values()]
        if any(p.first for _, p in inside):
            continue  # fused: their moments are one tensor
        found = {e: [by_name[n] for p in parts.values() if (n := _inner(p.tensor.name, by_name))]
                 for e, parts in mixture.experts.items()}  # fmt: skip
        if not any(found.values()):
            continue
        chosen = [m for own in found.values() for m in own]
        silent = {id(v.moments) for v in values_of(ws, optimizer, chosen) if v.silent}
        dead = [e for e, own in found.items() if all(id(m) in silent for m in own)]
        if dead and len(dead) < len(found):
            text = (
                f"{mixture.layer}: {len(dead)} of {len(found)} experts have no gradient in the optimizer "
                f"(experts {', '.join(map(str, dead[:16]))})"
            )
            tensor = next(iter(mixture.experts[dead[0]].values())).tensor
            yield Told("expert.dead", len(dead), tensor.file, tensor.name, text)


def _inner(name: str, known: dict) -> str | None:
    """The name of a tensor as the optimizer knows it: without what it was saved under."""
    parts = bare(name).split(".")
    return next((n for i in range(len(parts)) if (n := bare(".".join(parts[i:]))) in known), None)


def shown(told: list[Told], most: int) -> list[Told]:
    """At most so many of each key, the largest first where they are numbers."""
    by_key: dict[str, list[Told]] = {}
    for t in told:
        by_key.setdefault(t.key, []).append(t)
    kept = []
    for same in by_key.values():
        same.sort(key=lambda t: -float(t.value) if isinstance(t.value, int | float) else 0.0)
        kept += same[:most]
    return kept
