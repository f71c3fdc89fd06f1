"""What it means that a tensor did or did not move between two checkpoints, given the optimizer and adapters."""

from __future__ import annotations

from dataclasses import dataclass, field

from .moments import Moments, Optimizer
from .pairing import Change
from .weights import Weights, is_adapter

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
