"""Whether the chunks of a distributed tensor cover it: every element in one chunk, no element in two."""

from __future__ import annotations

from itertools import pairwise
from math import prod

Chunk = tuple[tuple[int, ...], tuple[int, ...]]  # offsets and sizes by dimension
_PAIRS = 64  # chunks up to which every pair is compared


def flaw(shape: tuple[int, ...], chunks: list[Chunk]) -> tuple[str, str] | None:
    """What is wrong as (kind of problem, words); None where the chunks are the tensor."""
    for offsets, sizes in chunks:
        if len(offsets) != len(shape) or len(sizes) != len(shape):
            return "corrupt", f"a chunk at {list(offsets)} has other dimensions than {list(shape)}"
        if any(o + n > whole for o, n, whole in zip(offsets, sizes, shape, strict=True)):
            return "out_of_bounds", f"a chunk of {list(sizes)} at {list(offsets)} reaches out of {list(shape)}"
    chunks = [c for c in chunks if 0 not in c[1]]
    have, want = sum(prod(sizes) for _, sizes in chunks), prod(shape)
    if have < want:
        return "missing_chunk", f"the chunks hold {have} of {want} elements"
    if have > want or _collide(shape, chunks):
        return "overlap", f"chunks overlap: they hold {have} elements, the tensor has {want}"
    return None


def _collide(shape: tuple[int, ...], chunks: list[Chunk]) -> bool:
    cut = [d for d, n in enumerate(shape) if any(sizes[d] != n for _, sizes in chunks)]
    if len(cut) <= 1:
        spans = sorted((o[cut[0]], o[cut[0]] + n[cut[0]]) for o, n in chunks) if cut else []
        return any(end > begin for (_, end), (begin, _) in pairwise(spans)) or (not cut and len(chunks) > 1)
    if len(chunks) > _PAIRS:
        return len({offsets for offsets, _ in chunks}) < len(chunks)
    return any(_meet(a, b) for i, a in enumerate(chunks) for b in chunks[:i])


def _meet(a: Chunk, b: Chunk) -> bool:
    return all(p < q + m and q < p + n for p, n, q, m in zip(a[0], a[1], b[0], b[1], strict=True))
