"""Where in the forward pass a parameter stands, told by its name: embedding, layers by number, final norm, head."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .weights import bare

_LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h|resblocks|stages?|block|encoder|decoder|net|cells)\.(\d+)(?:\.|$)")
_HEAD = re.compile(
    r"(?:^|\.)(?:lm_head|head|output|output_layer|classifier|score|fc|cls|embed_out|v_head|proj_out)(?:\.|$)"
)
_EMBED = re.compile(r"(?:^|\.)(?:\w*embed\w*|wte|wpe|tok_emb|pos_emb|patch_\w+|stem|conv1)(?:\.|$)")
_SIDE = re.compile(r"(?:^|\.)(encoder|vision\w*|visual|decoder)(?:\.|$)")

_EARLY, _LAYERS, _NORM, _LAST = 0, 1, 2, 3


def layer_of(name: str) -> int | None:
    """Number of the layer that a parameter belongs to, or None outside the stack."""
    found = _LAYER.search(bare(name))
    return int(found[1]) if found else None


def place(name: str) -> tuple[int, int, int]:
    """A key that sorts names by the forward pass: side (encoder before decoder), stage, layer."""
    inner = bare(name)
    side = _SIDE.search(inner)
    behind = 1 if side and side[1] == "decoder" else 0
    layer = layer_of(inner)
    if layer is not None:
        return behind, _LAYERS, layer
    if _EMBED.search(inner):
        return behind, _EARLY, 0
    if _HEAD.search(inner):
        return 2, _LAST, 0
    return (behind, _NORM, 0) if "norm" in inner or re.search(r"(?:^|\.)ln", inner) else (2, _NORM, 1)


def module_of(name: str) -> str:
    """The block whose share a parameter is: `layers.3` for those in the stack, else its module."""
    inner = bare(name).partition(" @")[0]
    found = _LAYER.search(inner)
    return inner[: found.end(1)] if found else inner.rpartition(".")[0] or inner


def forward_order(names: Iterable[str]) -> list[str]:
    """Names in the order of the forward pass; within a layer as they were given, which is how the code lists them."""
    return sorted(names, key=place)
