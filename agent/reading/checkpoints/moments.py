"""Optimizer state in a checkpoint: what is kept for each parameter, its groups, and whose it is.

One rule reads them all: a tensor whose last name is that of a slot (`exp_avg`, `momentum_buffer`) belongs to the
parameter named before it. torch, HF, Lightning, DeepSpeed's flat partitions and distributed checkpoints differ only
in what stands in front.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..run.files import RunFile
from .layouts import Checkpoint
from .numbers import chunks
from .parts import State, Tensor
from .weights import SLOTS, Weights, bare, is_trained, states_of, whole

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# Whose moments these are: names saved with them, names in their path, else order and shape.


def name_moments(found: Optimizer, weights: Weights) -> None:
    """Set `parameter` of all moments that can be told, `held` and `matched` of the optimizer.

    Moments and weights of one file belong together (a tensor-parallel rank keeps both); otherwise all weights are
    looked at.
    """
    names = {n: t for n, t in weights.tensors.items() if is_trained(t, n)}
    by_file: dict[str, list[Moments]] = {}
    for moments in found.moments:
        by_file.setdefault(moments.state.file.name, []).append(moments)
    found.matched = bool(found.moments)
    for file, inside in by_file.items():
        own = {n: t for n, t in names.items() if t.file.name == file}
        groups = found.groups_of.get(file, found.groups)
        found.matched &= _name(found, inside, own or names, groups)


def _name(found: Optimizer, moments: list[Moments], names: dict[str, Tensor], groups: list[dict[str, Any]]) -> bool:
    plain = {bare(n): n for n in names}
    for m in moments:
        m.parameter = next((plain[t] for t in _tails(m.path) if t in plain), None)
    listed = [g["params"] for g in groups if isinstance(g.get("params"), list)]
    saved = {
        str(k): n
        for g in groups
        if isinstance(g.get("param_names"), list) and isinstance(g.get("params"), list)
        for k, n in zip(g["params"], g["param_names"], strict=False)
    }
    if saved:
        for m in moments:
            m.parameter = m.parameter or saved.get(m.key)
        found.held |= set(saved.values())
    elif not any(m.parameter for m in moments):
        given = _by_order(moments, listed, names)
        found.held |= set(given.values())
        for m in moments:
            m.parameter = given.get(m.key)
    return all(m.parameter for m in moments)


def _tails(path: str) -> Iterator[str]:
    """`optimizer.state.layers.0.w` -> itself, `state.layers.0.w`, `layers.0.w`, ..."""
    parts = path.split(".")
    for i in range(len(parts) - 1):
        yield bare(".".join(parts[i:]))


def _by_order(moments: list[Moments], listed: list[list[Any]], names: dict[str, Tensor]) -> dict[str, str]:
    """Names by key, from order and shape: only where as many parameters as weights have a shape.

    Groups keep the order of the model (decay and no-decay split it), so that a shape's n-th parameter is the n-th
    weight of that shape, as long as one group holds them all.
    """
    shapes = {m.key: m.shape for m in moments}
    keys = [str(k) for group in listed for k in group] or list(shapes)
    if len(keys) == len(names) and len(listed) <= 1:  # all of them, in one group: the order of the model itself
        pairs = list(zip(keys, names.items(), strict=True))
        if all(shapes.get(key, t.shape) == t.shape for key, (_, t) in pairs):
            return {key: name for key, (name, _) in pairs}
    counts = Counter(t.shape for t in names.values())
    given: dict[str, str] = {}
    for shape, count in counts.items():
        mine = [k for k in keys if shapes.get(k) == shape]
        if len(mine) == count and not _split(mine, listed):
            given |= dict(zip(mine, (n for n, t in names.items() if t.shape == shape), strict=True))
    return given


def _split(keys: list[str], listed: list[list[Any]]) -> bool:
    """Whether parameters of one shape lie in several groups, so that their order says nothing."""
    groups = [{str(k) for k in group} for group in listed]
    return sum(any(k in group for k in keys) for group in groups) > 1


# ----------

_GROUP = re.compile(r"(?:^|\.)param_groups\.(?P<group>.+)\.(?P<field>\w+)$")
_FLAT = ("fp32_flat_groups", "single_partition_of_fp32_groups", "partition_count", "base_optimizer_state")


@dataclass(slots=True)
class Moments:
    """What an optimizer keeps for one parameter (or one flat partition of many).

    Attributes:
        path: where it stands in the file (`optimizer.state.3`).
        key: the last part of the path: a number in torch, a name in distributed checkpoints.
        slots: tensors by slot.
        step: updates made so far, where it is kept.
        parameter: the parameter it belongs to, where that can be told.
    """

    path: str
    key: str
    state: State
    slots: dict[str, Tensor] = field(default_factory=dict)
    step: float | None = None
    parameter: str | None = None

    @property
    def label(self) -> str:
        """The parameter's name, else the place in the file."""
        return self.parameter or self.path

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first moment that is not factored or quantised."""
        for slot in ("exp_avg", "momentum_buffer", "exp_avg_sq", "square_avg"):
            if slot in self.slots:
                return self.slots[slot].shape
        return ()


@dataclass(slots=True)
class Optimizer:
    """The optimizer of one checkpoint.

    Attributes:
        flat: parameters are joined into flat buffers, so that shapes say nothing.
        groups: `param_groups` as saved, plain values only.
        listed: parameters that the groups list (numbers), with or without state.
        held: names of parameters that the groups list, where they could be told.
        matched: every parameter of the groups was given a name by order and shape.
        readable: every file was understood.
        files, groups_of: those that hold moments or groups, and the groups of each.
    """

    checkpoint: Checkpoint
    moments: list[Moments] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    flat: bool = False
    listed: int = 0
    held: set[str] = field(default_factory=set)
    matched: bool = False
    readable: bool = True
    why: str = ""
    files: list[RunFile] = field(default_factory=list)
    groups_of: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _by_name: dict[str, list[Moments]] | None = None

    def of(self, parameter: str) -> list[Moments]:
        """What is kept for a parameter, or for the whole that it is a piece of."""
        if self._by_name is None:
            self._by_name = {}
            for m in self.moments:
                for name in {m.parameter, whole(m.parameter)} if m.parameter else ():
                    self._by_name.setdefault(name, []).append(m)
        own, joined = self._by_name.get(parameter, []), self._by_name.get(whole(parameter), [])
        return [*own, *(m for m in joined if m not in own)] if own else joined

    @property
    def empty(self) -> bool:
        """Groups of an Adam-like optimizer without any moments: it never took a step."""
        return not self.moments and any("betas" in g for g in self.groups)

    @property
    def names(self) -> set[str]:
        """Parameters that have state."""
        return {m.parameter for m in self.moments if m.parameter}


def optimizer_of(ws: Workspace, checkpoint: Checkpoint, weights: Weights) -> Optimizer:
    """The optimizer state of a checkpoint, matched with the names of its weights where they allow it."""
    return ws.memo(("optimizer", checkpoint.run, checkpoint.name), lambda: _read(ws, checkpoint, weights))


def _read(ws: Workspace, checkpoint: Checkpoint, weights: Weights) -> Optimizer:
    found = Optimizer(checkpoint)
    states = list(states_of(ws, checkpoint, *(p for p in ("optimizer", "metadata") if p in checkpoint.files)))
    if not any(True for s in states for _ in _slots(s)):
        states += states_of(ws, checkpoint, "model", "weights")
    for state in states:
        held: dict[str, Moments] = {}
        for path, slot, tensor in _slots(state):
            moments = held.setdefault(path, Moments(path, path.rpartition(".")[2], state))
            moments.slots.setdefault(slot, tensor)
        groups = [g for listed in _groups(state.tree) for g in listed if isinstance(g, dict)]
        groups = groups or list(_flattened(state.tree))
        if not held and not groups:
            continue
        found.files.append(state.file)
        if not state.readable:
            found.readable, found.why = False, f"{state.file.name}: not understood"
        for moments in held.values():
            moments.step = _step(ws, state, moments.path)
        found.moments += held.values()
        found.groups += groups
        found.groups_of[state.file.name] = groups
        found.flat |= any(part in name for name in state.tensors for part in _FLAT)
    found.listed = sum(len(g["params"]) for g in found.groups if isinstance(g.get("params"), list))
    if not found.flat:
        name_moments(found, weights)
    return found


def _slots(state: State) -> Iterator[tuple[str, str, Tensor]]:
    """`(path of the parameter, slot, tensor)` of all moments in a file."""
    for name, tensor in state.tensors.items():
        inner = whole(name)
        path, _, slot = inner.rpartition(".")
        if slot in SLOTS and path and tensor.size:
            yield path + name[len(inner) :], slot, tensor


def _step(ws: Workspace, state: State, path: str) -> float | None:
    path = whole(path)
    tensor = state.tensors.get(f"{path}.step")
    if tensor is not None:
        if tensor.size > 64:
            return None
        return next((float(block[0]) for block in chunks(ws, tensor) if len(block)), None)
    node: Any = state.tree
    for part in path.split("."):
        if isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        elif isinstance(node, dict):
            node = next((v for k, v in node.items() if str(k) == part), None)
        else:
            return None
    step = node.get("step") if isinstance(node, dict) else None
    return number_of(step)


def number_of(value: Any) -> float | None:
    """A number out of a pickle, where it is one that fits a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _groups(tree: Any, depth: int = 5) -> Iterator[list[Any]]:
    """Every `param_groups` in a tree."""
    if depth <= 0 or not isinstance(tree, dict | list):
        return
    if isinstance(tree, dict):
        groups = tree.get("param_groups")
        if isinstance(groups, list):
            yield groups
            return
    for value in tree.values() if isinstance(tree, dict) else tree[:64]:
        yield from _groups(value, depth - 1)


def _flattened(tree: Any) -> Iterator[dict[str, Any]]:
    """Groups of a distributed checkpoint, whose keys are joined: by the group's number, or by each parameter's name."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in tree.items() if isinstance(tree, dict) else ():
        if isinstance(key, str) and (part := _GROUP.search(key)):
            found.setdefault(part["group"], {})[part["field"]] = value
    seen: list[dict[str, Any]] = []
    for group in found.values():
        if group not in seen and len(seen) < 1000:
            seen.append(group)
    yield from seen
