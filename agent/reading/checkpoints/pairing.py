"""Two checkpoints side by side: which tensors belong to each other, and by how much each one moved."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import deadline
from .moments import Moments, Optimizer, number_of
from .numbers import chunks, in_threads
from .parts import Tensor
from .weights import Weights, bare, is_adapter

if TYPE_CHECKING:
    from ..run.workspace import Workspace

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


# ----------
# How far the optimizer's next step would move each weight: lr * m / (sqrt(v) + eps) against the weight itself.

_BETAS = (0.9, 0.999)


@dataclass(frozen=True, slots=True)
class Update:
    """One parameter: the norm of its running gradient, of its weight, and of the step at the saved rate."""

    moments: Moments
    weight: Tensor
    gradient: float
    norm: float
    step: float

    @property
    def ratio(self) -> float:
        """Step against weight; 0 where the weight is zero."""
        return self.step / self.norm if self.norm else 0.0


def updates_of(ws: Workspace, optimizer: Optimizer, weights: Weights) -> list[Update]:
    """A pass over the first moment, the second and the weight of every parameter that has a name.

    Nothing where the call's time or a damaged file does not allow all of them: a part of the layers makes no profile.
    """
    groups = _by_key(optimizer.groups)
    todo = [
        (m, weights.tensors[m.parameter], groups.get(m.key) or (optimizer.groups[0] if optimizer.groups else {}))
        for m in optimizer.moments
        if m.parameter in weights.tensors and "exp_avg" in m.slots and m.slots["exp_avg"].size
        and m.shape == weights.tensors[m.parameter].shape
    ]  # fmt: skip
    made = list(in_threads(todo, lambda t: (_update(ws, *t),)))
    return [] if None in made else [u for one in made if one for u in one if u is not None]


def _by_key(groups: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {str(k): g for g in groups if isinstance(g.get("params"), list) for k in g["params"]}


def _update(ws: Workspace, moments: Moments, weight: Tensor, group: dict[str, Any]) -> Update | None:
    rate, eps = _float(group.get("lr"), 0.0), _float(group.get("eps"), 1e-8)
    one, two = _betas(group.get("betas"))
    count = max(moments.step or 0.0, 1.0)
    scale_one, scale_two = 1 - one**count, 1 - two**count
    gradient = norm = step = 0.0
    second = moments.slots.get("exp_avg_sq")
    if second is None or second.shape != weight.shape:
        return None
    seen = 0
    streams = (chunks(ws, moments.slots["exp_avg"]), chunks(ws, second), chunks(ws, weight))
    for m, v, w in zip(*streams, strict=False):
        deadline.check()
        if not (len(m) == len(v) == len(w)):
            return None
        with np.errstate(all="ignore"):
            mean = np.nan_to_num(m.astype(np.float64) / scale_one, posinf=0, neginf=0)
            root = np.sqrt(np.maximum(np.nan_to_num(v.astype(np.float64), posinf=0), 0) / scale_two)
            move = rate * mean / (root + eps)
            kept = np.nan_to_num(w.astype(np.float64), posinf=0, neginf=0)
        gradient, norm, step = gradient + float(mean @ mean), norm + float(kept @ kept), step + float(move @ move)
        seen += len(m)
    return Update(moments, weight, gradient**0.5, norm**0.5, step**0.5) if seen == weight.count else None


def _float(value: Any, default: float) -> float:
    number = number_of(value)
    return default if number is None else number


def _betas(value: Any) -> tuple[float, float]:
    if isinstance(value, list | tuple) and len(value) >= 2:
        one, two = _float(value[0], -1), _float(value[1], -1)
        if 0 <= one < 1 and 0 <= two < 1:
            return one, two
    return _BETAS


# ----------
# What it means that a tensor did or did not move between two checkpoints, given the optimizer and adapters.

_HALF = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")


@dataclass(slots=True)
class Trained:
    """The changes of one pair of checkpoints, sorted.

    Attributes:
        moved: tensors with any changed element.
        never: unmoved though they should have been, with the reason.
        base: unmoved and rightly so: the frozen base below adapters.
        lost: unmoved in 16 bits although the optimizer holds a gradient for them: the steps are rounded away.
        zero_adapters: adapter output matrices (`lora_B`) that are still all zero.
        unread: not read, so that nothing is known.
    """

    moved: list[Change] = field(default_factory=list)
    never: list[tuple[Change, str]] = field(default_factory=list)
    base: list[Change] = field(default_factory=list)
    lost: list[Change] = field(default_factory=list)
    zero_adapters: list[Change] = field(default_factory=list)
    unread: list[Change] = field(default_factory=list)


def judge(changes: list[Change], before: Weights, optimizer: Optimizer | None) -> Trained:
    """Sort changes by what they mean.

    A tensor without change is `never` trained where the optimizer holds it, or nothing is known of the optimizer.
    Adapters leave their base alone: only adapters must move then.
    """
    found = Trained()
    adapters = before.adapter
    for change in changes:
        if not change.read:
            found.unread.append(change)
        elif adapters and not is_adapter(change.name) and not _has_state(change.name, optimizer):
            (found.moved if change.moved else found.base).append(change)
        elif change.moved:
            found.moved.append(change)
        elif _gradient_seen(change.name, optimizer) and change.after.dtype in _HALF:
            found.lost.append(change)
        else:
            found.never.append((change, _why(change.name, optimizer)))
        if change.read and is_b(change.name) and change.elements and change.zeros == change.elements:
            found.zero_adapters.append(change)
    return found


def is_b(name: str) -> bool:
    """Whether this is the half of an adapter that starts at zero."""
    return "lora_B" in name or "lora_up" in name or "lora_embedding_B" in name


def _state(name: str, optimizer: Optimizer | None) -> list[Moments]:
    return [] if optimizer is None else optimizer.of(name)


def _has_state(name: str, optimizer: Optimizer | None) -> bool:
    return bool(_state(name, optimizer))


def _gradient_seen(name: str, optimizer: Optimizer | None) -> bool:
    return any(m.step and m.step > 0 for m in _state(name, optimizer))


def is_listed(name: str, optimizer: Optimizer | None) -> bool:
    """Whether the optimizer is known to hold a parameter, so that it was meant to be trained."""
    return _has_state(name, optimizer) or (optimizer is not None and name in optimizer.held)


def _why(name: str, optimizer: Optimizer | None) -> str:
    if optimizer is None or not optimizer.moments:
        return "no optimizer state to compare with"
    if _has_state(name, optimizer):
        return "the optimizer holds state for it, so it should have moved"
    if name in optimizer.held:
        return "it is in the optimizer's groups, but no gradient ever reached it: cut off from the loss"
    if optimizer.flat:
        return "the optimizer keeps flat buffers, so whether it holds this parameter is not known"
    if not optimizer.names:
        return "parameters of the optimizer could not be told apart by order and shape"
    return "the optimizer holds no state for it: frozen, left out, or no gradient ever reached it"
