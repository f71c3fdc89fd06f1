"""The numbers in optimizer moments: one pass over first and second moment together.

Adam's moments bound each other. With g the gradients, m = (1-b1) sum b1^i g and v = (1-b2) sum b2^i g^2, so by
Cauchy and Schwarz m^2 <= (1-b1)^2 / (1 - b1^2/b2) / (1-b2) * v, element by element and whatever the gradients were.
A first moment beyond that does not belong to its second moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import deadline
from .moments import Moments, Optimizer
from .numbers import chunks
from .parts import Tensor
from .threads import in_threads

if TYPE_CHECKING:
    from ...workspace import Workspace

_FIRST = ("exp_avg", "momentum_buffer", "grad_avg", "moment1")
_SECOND = ("exp_avg_sq", "square_avg", "moment2", "sum")
_SLACK = 8.0  # betas may have been changed on the way, and moments may be kept in 16 bits
_ABSURD = 1e6  # times the bound: one such element is a broken number
_TINY = 1e-15  # a smaller gradient squares to nothing in float32
_ELEMENTS = 1 << 20


@dataclass(slots=True)
class MomentValues:
    """What stands in the moments of one parameter.

    Attributes:
        count: elements of the larger slot.
        first_nonzero, second_nonzero: elements that are not zero.
        nonfinite: elements of either slot that are NaN or infinite.
        negative: elements of the second moment below zero, which no average of squares can be.
        impossible: elements whose first moment is beyond what their second moment allows; `absurd`: by far.
        first_squares: sum of squares of the first moment.
        second_sum: sum of the second moment: of squared gradients.
    """

    moments: Moments
    count: int = 0
    has_first: bool = False
    has_second: bool = False
    first_nonzero: int = 0
    second_nonzero: int = 0
    nonfinite: int = 0
    negative: int = 0
    impossible: int = 0
    absurd: int = 0
    first_squares: float = 0.0
    second_sum: float = 0.0
    read: bool = True

    @property
    def gradient_rms(self) -> float:
        """Root mean square of recent gradients, from the second moment, else from the first."""
        if not self.count:
            return 0.0
        return ((self.second_sum if self.has_second else self.first_squares) / self.count) ** 0.5

    @property
    def silent(self) -> bool:
        """Nothing but zeros: no gradient other than zero ever came."""
        return self.read and self.count > 0 and not (self.first_nonzero or self.second_nonzero or self.nonfinite)


def values_of(ws: Workspace, optimizer: Optimizer, chosen: Iterable[Moments] | None = None) -> list[MomentValues]:
    """A pass over all moments of an optimizer, in a few threads; in their order.

    What the call's time did not allow comes back unread, and so does what cannot be read.
    """
    bound = _bound(optimizer.groups)
    todo = list(optimizer.moments if chosen is None else chosen)
    made = in_threads(todo, lambda m: _values(ws, m, bound))
    return [values or MomentValues(moments, read=False) for values, moments in zip(made, todo, strict=True)]


def _bound(groups: list[dict[str, Any]]) -> float:
    """The loosest bound among the groups' betas; that of (0.9, 0.999) where they are not kept."""
    return _SLACK * max((_limit(g.get("betas")) for g in groups if g.get("betas") is not None), default=_limit(None))


def _limit(betas: Any) -> float:
    try:
        one, two = float(betas[0]), float(betas[1])
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        one, two = 0.9, 0.999
    if not (0 <= one < 1 and 0 <= two < 1) or one * one >= two:
        return float("inf")
    return (1 - one) ** 2 / (1 - one * one / two) / (1 - two)


def _values(ws: Workspace, moments: Moments, bound: float) -> MomentValues:
    found = MomentValues(moments)
    first = next((moments.slots[s] for s in _FIRST if s in moments.slots), None)
    second = next((moments.slots[s] for s in _SECOND if s in moments.slots), None)
    found.has_first, found.has_second = first is not None, second is not None
    found.count = max((int(np.prod(t.shape)) for t in (first, second) if t is not None), default=0)
    if first is not None and second is not None and first.shape == second.shape:
        seen = 0
        for one, two in zip(chunks(ws, first, _ELEMENTS), chunks(ws, second, _ELEMENTS), strict=False):
            deadline.check()
            _add_first(found, one)
            _add_second(found, two)
            if len(one) == len(two):
                _compare(found, one, two, bound)
            seen += len(one)
        found.read = seen == found.count
    else:
        found.read = all(
            _alone(ws, found, tensor, add)
            for tensor, add in ((first, _add_first), (second, _add_second))
            if tensor is not None
        )
    for slot, tensor in moments.slots.items():
        if tensor is not first and tensor is not second:
            found.read &= _other(ws, found, slot, tensor)
    return found


def _other(ws: Workspace, found: MomentValues, slot: str, tensor: Tensor) -> bool:
    """Factored moments (Adafactor's rows and columns) and the like; quantised ones are not decoded."""
    if not tensor.dtype.startswith(("float", "bfloat")):
        return False
    found.count = found.count or tensor.count

    def add(found: MomentValues, block: np.ndarray) -> None:
        kept = block[np.isfinite(block)]
        found.first_nonzero += int(np.count_nonzero(block))
        found.nonfinite += len(block) - len(kept)
        found.negative += int((kept < 0).sum()) if "sq" in slot else 0

    return _alone(ws, found, tensor, add)


def _compare(found: MomentValues, one: np.ndarray, two: np.ndarray, bound: float) -> None:
    """Count elements whose first moment is beyond its second; looked at closely where any may be."""
    with np.errstate(all="ignore"):
        suspects = np.flatnonzero(one * one > np.float32(min(bound, 1e30)) * two)
        if len(suspects):
            first, second = one[suspects].astype(np.float64), two[suspects].astype(np.float64)
            squares, most = first * first, bound * np.maximum(second, 0)
            beyond = (np.abs(first) > _TINY) & (squares > most)
            found.impossible += int(beyond.sum())
            found.absurd += int((beyond & (second > 0) & (squares > _ABSURD * most)).sum())


def _alone(ws: Workspace, found: MomentValues, tensor: Tensor, add: Any) -> bool:
    seen = 0
    for block in chunks(ws, tensor, _ELEMENTS):
        deadline.check()
        add(found, block)
        seen += len(block)
    return seen == int(np.prod(tensor.shape))


def _add_first(found: MomentValues, block: np.ndarray) -> None:
    found.first_nonzero += int(np.count_nonzero(block))
    with np.errstate(all="ignore"):
        squares = float(np.dot(block, block))
    if not math.isfinite(squares):
        kept = block[np.isfinite(block)].astype(np.float64)
        found.nonfinite += len(block) - len(kept)
        squares = float(np.dot(kept, kept))
    found.first_squares += squares


def _add_second(found: MomentValues, block: np.ndarray) -> None:
    found.second_nonzero += int(np.count_nonzero(block))
    with np.errstate(all="ignore"):
        total, least = float(block.sum(dtype=np.float64)), float(block.min(initial=0.0))
    if not math.isfinite(total) or least < 0:
        kept = block[np.isfinite(block)]
        found.nonfinite += len(block) - len(kept)
        found.negative += int((kept < 0).sum())
        total = float(np.maximum(kept, 0).sum(dtype=np.float64))
    found.second_sum += total
