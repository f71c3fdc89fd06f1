"""Experts and routers in a checkpoint: which tensors they are, how alike, how far they moved."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ... import deadline
from .numbers import chunks
from .parts import Tensor
from .weights import Weights, bare

if TYPE_CHECKING:
    from ...workspace import Workspace

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
