"""Whose moments these are: names saved with them, names in their path, else order and shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .parts import Tensor
from .weights import bare, is_trained

if TYPE_CHECKING:
    from .moments import Moments, Optimizer
    from .weights import Weights


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
