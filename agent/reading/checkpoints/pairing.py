"""Two checkpoints side by side: which tensors belong to each other, and by how much each one moved."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ... import deadline
from .numbers import chunks
from .parts import Tensor
from .threads import in_threads
from .weights import Weights, bare

if TYPE_CHECKING:
    from ...workspace import Workspace

_ELEMENTS = 1 << 20  # of each side held at once, by each thread
_FAINT = 1e-6  # sum of squares of a block, below which its zeros are counted: adapters that are still at zero
_WRAPPER_WORDS = 40  # characters of a wrapper prefix that are shown


@dataclass(slots=True)
class Pairs:
    """How the tensors of two checkpoints fit together.

    Attributes:
        both: `(name, before, after)` of equal shape.
        shapes, dtypes: the same name with another shape or type.
        only_before, only_after: names that the other side has not.
        prefix: `old -> new` where the names differ only in what wraps the model.
    """

    both: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)
    shapes: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)
    dtypes: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)
    only_before: list[str] = field(default_factory=list)
    only_after: list[str] = field(default_factory=list)
    prefix: str = ""


@dataclass(slots=True)
class Change:
    """What became of one tensor. Norms are Euclidean, over elements that are finite on both sides."""

    name: str
    after: Tensor
    elements: int = 0
    moved: int = 0
    difference: float = 0.0
    norm: float = 0.0
    zeros: int = 0  # elements that are zero afterwards, counted where hardly anything is not
    broken: int = 0  # elements finite before and not afterwards
    read: bool = True

    @property
    def same(self) -> bool:
        """Bit for bit the same values."""
        return self.read and self.moved == 0

    @property
    def relative(self) -> float:
        """Norm of the difference over the norm before; over 1 where there was nothing but zeros."""
        return self.difference / self.norm if self.norm else float(self.difference > 0)


def pair(before: Weights, after: Weights) -> Pairs:
    """Match the tensors of two checkpoints by name; by bare name where wrapping is all that differs."""
    left, right = before.tensors, after.tensors
    prefix = ""
    shared = left.keys() & right.keys()
    bare_left, bare_right = _bared(left), _bared(right)
    if len(bare_left.keys() & bare_right.keys()) > len(shared):
        example = next(n for n in bare_left if n in bare_right and bare_left[n][0] != bare_right[n][0])
        prefix = f"{_wrapper(bare_left[example][0], example)} -> {_wrapper(bare_right[example][0], example)}"
        left = {n: t for n, (_, t) in bare_left.items()}
        right = {n: t for n, (_, t) in bare_right.items()}
    found = Pairs(prefix=prefix)
    for name, tensor in left.items():
        other = right.get(name)
        if other is None:
            found.only_before.append(name)
        elif tensor.shape != other.shape:
            found.shapes.append((name, tensor, other))
        else:
            found.both.append((name, tensor, other))
            if tensor.dtype != other.dtype:
                found.dtypes.append((name, tensor, other))
    found.only_after = [n for n in right if n not in left]
    return found


def _bared(tensors: dict[str, Tensor]) -> dict[str, tuple[str, Tensor]]:
    return {bare(name): (name, tensor) for name, tensor in tensors.items()}


def _wrapper(name: str, inner: str) -> str:
    return (name.removesuffix(inner) or "no prefix")[:_WRAPPER_WORDS]


def changes(ws: Workspace, both: Iterable[tuple[str, Tensor, Tensor]]) -> list[Change]:
    """Both sides of every pair streamed together, in a few threads; in the order of the pairs.

    What the call's time did not allow comes back unread, and so does what cannot be read.
    """
    pairs = list(both)
    made = in_threads(pairs, lambda p: _change(ws, *p))
    return [change or Change(name, after, read=False) for change, (name, _, after) in zip(made, pairs, strict=True)]


def _change(ws: Workspace, name: str, before: Tensor, after: Tensor) -> Change:
    change = Change(name, after)
    squares = own = 0.0
    for old, new in zip(chunks(ws, before, _ELEMENTS), chunks(ws, after, _ELEMENTS), strict=False):
        deadline.check()
        if len(old) != len(new):
            change.read = False
            return change
        change.elements += len(new)
        with np.errstate(all="ignore"):
            left, right = float(np.dot(old, old)), float(np.dot(new, new))
            if math.isfinite(left) and math.isfinite(right):  # then every element is
                change.zeros += len(new) - (int(np.count_nonzero(new)) if right < _FAINT else len(new))
                moved = int(np.count_nonzero(old != new))
                step = new - old if moved else None
            else:
                left, moved, step = _broken(change, old, new)
        own += left
        change.moved += moved
        if step is not None:
            squares += float(np.dot(step, step))
    change.difference, change.norm = squares**0.5, own**0.5
    change.read = change.elements == after.count
    return change


def _broken(change: Change, old: np.ndarray, new: np.ndarray) -> tuple[float, int, np.ndarray]:
    """The same for a block with elements that are not finite, or too large for squares in single precision."""
    finite_old, finite_new = np.isfinite(old), np.isfinite(new)
    good = finite_old & finite_new
    change.zeros += len(new) - int(np.count_nonzero(new))
    change.broken += int((finite_old & ~finite_new).sum())
    kept = old[good].astype(np.float64)
    return float(np.dot(kept, kept)), int(((old != new) & (finite_old | finite_new)).sum()), new[good] - kept
