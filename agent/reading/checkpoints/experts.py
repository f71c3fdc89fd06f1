"""Experts and routers in a checkpoint: which tensors they are, how alike, how far they moved."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...core import deadline
from .moments import Optimizer
from .numbers import chunks
from .optimizer_health import Told, values_of
from .parts import Tensor
from .weights import Weights, bare

if TYPE_CHECKING:
    from ..run.workspace import Workspace

# `layers.3.mlp.experts.7.gate_proj.weight`; Megatron says local_experts, Mixtral block_sparse_moe.experts.
_OWN = re.compile(
    r"^(?P<layer>(?:.*?\.)?)experts\.(?:deepspeed_experts\.|local_experts\.)?(?P<expert>\d+)\.(?P<rest>.+)$"
)
# Megatron's grouped layers number the weight: `experts.linear_fc1.weight7`.
_GROUPED = re.compile(r"^(?P<layer>(?:.*?\.)?)experts\.(?P<rest>linear_fc\d\.(?:weight|bias))(?P<expert>\d+)$")
# One tensor for all experts of a layer, whose first dimension counts them.
_FUSED = re.compile(r"^(?P<layer>(?:.*?\.)?)experts\.(?P<rest>\w+(?:\.(?:weight|bias))?)$")
_EXPERTS = 4096
_ROUTER = re.compile(r"(?:^|\.)(?:gate|router|router\.\w+|gate\.wg|gate\.gate|gating)\.weight$")
_BIAS = re.compile(r"(?:^|\.)(?:e_score_correction_bias|expert_bias|balancing_bias)$")


@dataclass(slots=True)
class ExpertPart:
    """One weight of one expert: a tensor of its own, or a slice of a fused one (`first` to `first + size` elements)."""

    tensor: Tensor
    first: int
    size: int


@dataclass(slots=True)
class Mixture:
    """The experts of one layer.

    Attributes:
        experts: parts of each expert by number, keyed by what follows the number in the name.
        router: weight of the router, one row for each expert.
        bias: added to the scores to balance the load, one number for each expert.
    """

    layer: str
    experts: dict[int, dict[str, ExpertPart]] = field(default_factory=dict)
    router: Tensor | None = None
    bias: Tensor | None = None


@dataclass(slots=True)
class Sums:
    """One expert's weights in numbers: norm, and a digest that is equal where all bytes are."""

    norm: float
    digest: str


def mixtures(weights: Weights) -> list[Mixture]:
    """The mixture layers of a checkpoint, in the order of its tensors."""
    found: dict[str, Mixture] = {}
    for name, tensor in weights.tensors.items():
        inner = bare(name)
        if own := _OWN.match(inner) or _GROUPED.match(inner):
            layer = own["layer"].rstrip(".")
            mixture = found.setdefault(layer, Mixture(layer))
            part = ExpertPart(tensor, 0, int(np.prod(tensor.shape, dtype=np.int64)))
            mixture.experts.setdefault(int(own["expert"]), {})[own["rest"]] = part
        elif (fused := _FUSED.match(inner)) and _is_fused(tensor, fused["rest"]):
            layer = fused["layer"].rstrip(".")
            mixture = found.setdefault(layer, Mixture(layer))
            size = int(np.prod(tensor.shape[1:], dtype=np.int64))
            for e in range(tensor.shape[0]):
                mixture.experts.setdefault(e, {})[fused["rest"]] = ExpertPart(tensor, e * size, size)
    for name, tensor in weights.tensors.items():
        inner = bare(name)
        router, bias = _ROUTER.search(inner), _BIAS.search(inner)
        place = router or bias
        if place is None:
            continue
        layer = inner[: place.start()]
        mixture = found.get(layer) or found.get(layer.removesuffix(".gate").removesuffix(".router"))
        if mixture is None:
            continue  # a `gate` that is no router: gated units have one too
        if bias:
            mixture.bias = tensor
        elif len(tensor.shape) == 2 and tensor.shape[0] == len(mixture.experts):
            mixture.router = tensor
    return [m for m in found.values() if len(m.experts) > 1]


def _is_fused(tensor: Tensor, rest: str) -> bool:
    """Whether the first dimension counts experts: matrices have two more, biases one."""
    return len(tensor.shape) == (2 if "bias" in rest else 3) and 1 < tensor.shape[0] <= _EXPERTS


def expert_sums(ws: Workspace, mixture: Mixture) -> dict[int, Sums]:
    """Norm and digest of each expert; every tensor is read once, fused ones slice by slice."""
    squares = dict.fromkeys(mixture.experts, 0.0)
    digests = {e: hashlib.blake2b(digest_size=16) for e in mixture.experts}
    for rest, tensor in _tensors(mixture):
        owners = [e for e, parts in mixture.experts.items() if rest in parts and parts[rest].tensor is tensor]
        for expert, block in _blocks(ws, tensor, mixture, rest, owners):
            digests[expert].update(rest.encode())
            digests[expert].update(np.ascontiguousarray(block).tobytes())
            finite = block[np.isfinite(block)]
            squares[expert] += float(np.square(finite, dtype=np.float64).sum())
    return {e: Sums(squares[e] ** 0.5, digests[e].hexdigest()) for e in mixture.experts}


def _tensors(mixture: Mixture) -> list[tuple[str, Tensor]]:
    seen: dict[int, tuple[str, Tensor]] = {}
    for parts in mixture.experts.values():
        for rest, part in parts.items():
            seen.setdefault(id(part.tensor), (rest, part.tensor))
    return sorted(seen.values(), key=lambda pair: pair[0])


def _blocks(
    ws: Workspace, tensor: Tensor, mixture: Mixture, rest: str, owners: list[int]
) -> Iterator[tuple[int, np.ndarray]]:
    """Elements of a tensor, cut where one expert ends and the next begins."""
    size = mixture.experts[owners[0]][rest].size
    at = 0
    for block in chunks(ws, tensor):
        deadline.check()
        while len(block):
            expert = owners[min(at // size, len(owners) - 1)] if len(owners) > 1 else owners[0]
            room = size - at % size
            yield expert, block[:room]
            at, block = at + len(block[:room]), block[room:]


def router_rows(ws: Workspace, mixture: Mixture, limit: int = 64 << 20) -> np.ndarray | None:
    """The router's weight, shape (experts, hidden), or None where it is not there or over `limit` bytes."""
    tensor = mixture.router
    if tensor is None or tensor.size > limit:
        return None
    blocks = list(chunks(ws, tensor))
    whole = np.concatenate(blocks) if blocks else np.zeros(0, np.float32)
    return whole.reshape(tensor.shape) if len(whole) == int(np.prod(tensor.shape)) else None


def bias_values(ws: Workspace, mixture: Mixture) -> np.ndarray | None:
    """The balancing bias, one number for each expert."""
    if mixture.bias is None or mixture.bias.size > 1 << 20:
        return None
    blocks = list(chunks(ws, mixture.bias))
    return np.concatenate(blocks).astype(np.float64) if blocks else None


# ----------
# What is wrong with experts and routers in checkpoints, as facts with the tensor that shows each.

_GROWTH = 5.0  # times a router's norm may grow
_EXPERT_HEALTH_BIAS = 1.0  # spread of balancing biases beyond the range of sigmoid scores
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
        if spread > _EXPERT_HEALTH_BIAS:
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
