"""Blocks of zeros inside a weight: pages that a crashed node never wrote. The file has its length, but not its content.

Trained matrices have next to no element that is exactly zero. Where most matrices of a file have none and one has many
of them in a row, pages of the file were lost, or rows of it are dead; where the stretch begins and ends tells which.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from .checks import Flaw
from .numbers import chunks
from .parts import Numbers, State, Tensor

if TYPE_CHECKING:
    from ...workspace import Workspace

PAGE = 4096
_SPARSE = 1e-6  # share of zeros up to which a matrix has none to speak of
_LOOKED = 8  # suspicious tensors of a file that are read again


def hole_flaws(ws: Workspace, state: State, numbers: dict[str, Numbers], wanted: list[Tensor]) -> Iterator[Flaw]:
    """Stretches of zeros of a page or more.

    Args:
        wanted: the matrices of the file that training fills everywhere.
    """
    seen = [(t, n) for t in wanted if (n := numbers.get(t.name)) is not None and n.read and n.count]
    dense = sum(1 for _, n in seen if n.zeros <= _SPARSE * n.count)
    if 2 * dense < len(seen):
        return  # a sparse model
    suspects = [(t, n) for t, n in seen if PAGE // _width(t) <= n.zeros < n.count and t.strides is None]
    for tensor, _ in suspects[:_LOOKED]:
        first, end = _longest(ws, tensor)
        width = _width(tensor)
        if (end - first) * width < PAGE:
            continue
        begin, stop = tensor.start + first * width, tensor.start + end * width
        pages = (begin % PAGE == 0 or first == 0) and (stop % PAGE == 0 or end == tensor.count)
        text = f"{tensor.name} {list(tensor.shape)} is zero from element {first} to {end}, other matrices nowhere"
        if pages:
            text += f"; these are whole pages of the file from byte {begin}: never written"
        yield Flaw("checkpoint.zero_block", text, end - first, tensor.file, tensor.name, "damage" if pages else "note")


def _width(tensor: Tensor) -> int:
    return max(1, tensor.size // max(1, tensor.count))


def _longest(ws: Workspace, tensor: Tensor) -> tuple[int, int]:
    """First and end of the longest run of zeros, in elements."""
    best, at, open_since = (0, 0), 0, -1
    for values in chunks(ws, tensor):
        zero = np.concatenate(([open_since >= 0], values == 0, [False]))
        edges = np.flatnonzero(np.diff(zero.astype(np.int8)))
        starts, ends = list(edges[zero[edges + 1]]), list(edges[~zero[edges + 1]])
        if open_since >= 0:
            starts.insert(0, open_since - at)
        for start, end in zip(starts, ends, strict=True):
            if end == len(values):
                open_since = at + int(start)
            elif end - start > best[1] - best[0]:
                best = (at + int(start), at + int(end))
        if not ends or ends[-1] != len(values):
            open_since = -1
        at += len(values)
        if open_since >= 0 and at - open_since > best[1] - best[0]:
            best = (open_since, at)
    return best
