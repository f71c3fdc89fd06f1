"""What changed between two checkpoints, and what should have and did not."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from ...core.errors import ToolError
from ...core.types import Evidence, ToolResult, Value
from ...reading.checkpoints.layouts import Checkpoint, checkpoints
from ...reading.checkpoints.moments import Optimizer, optimizer_of
from ...reading.checkpoints.pairing import Change, Pairs, Trained, changes, is_b, is_listed, judge, pair
from ...reading.checkpoints.parts import Tensor
from ...reading.checkpoints.weights import (
    Weights,
    chosen_checkpoint,
    holds_gradients,
    is_trained,
    module_of,
    weights_of,
)
from ...reading.run.workspace import Workspace
from ..tool import clean, failed, finding, not_applicable, tool

_SHOWN = 12  # evidence of one key
_LISTED = 16  # rows of a table
_LARGE = 2.0  # relative change beyond which a tensor was replaced rather than trained


@tool(emits=("ckpt_diff.*",))
def compare_checkpoints(
    ws: Workspace,
    before: Annotated[str, Field(description="checkpoint to compare from; the oldest of the run when empty")] = "",
    after: Annotated[str, Field(description="checkpoint to compare with; the newest of the run when empty")] = "",
) -> ToolResult:
    """Compare two checkpoints: what moved, and what never trained.

    Use when a run learns nothing, a fine-tuned model equals its base, adapters have no effect, or after a layout
    change. Streams both sides tensor by tensor; says which tensors are bit-identical although the optimizer holds
    them, which keys, shapes and types differ, and whether the whole checkpoint was saved unchanged. By default the
    oldest and newest of the run; with `--good`, the newest of each.
    """
    held = checkpoints(ws)
    if not held:
        return not_applicable("no checkpoint in the run")
    chosen = _sides(ws, held, before, after)
    if chosen is None:
        return _alone(ws, held[-1])
    left, right = (weights_of(ws, c) for c in chosen)
    for side in (left, right):
        if not side.tensors:
            return failed(f"{side.name}: no weights could be read{f' ({side.why})' if side.why else ''}")
    pairs = pair(left, right)
    if not pairs.both and not pairs.shapes:
        evidence = list(_keys(ws, chosen, left, right, pairs))
        return finding(f"{left.name} and {right.name} have no tensor name in common", evidence)
    todo = [p for p in pairs.both if is_trained(p[2], p[0])]
    if not todo and not pairs.shapes:
        return failed(f"{left.name} and {right.name} have no trainable tensor in common whose values lie in the files")
    optimizer = optimizer_of(ws, chosen[1], right)
    moved = changes(ws, todo)
    known = optimizer if optimizer.moments else None
    trained = judge(moved, left, known)
    evidence = [*_keys(ws, chosen, left, right, pairs), *_moves(ws, chosen, trained, moved, known)]
    return _answer(left, right, evidence, trained, moved, pairs)


def _sides(ws: Workspace, held: list[Checkpoint], before: str, after: str) -> tuple[Checkpoint, Checkpoint] | None:
    named = []
    for path in (before, after):
        found = chosen_checkpoint(ws, path) if path else None
        if path and found is None:
            raise ToolError(f"no checkpoint called {path!r}; there are {', '.join(c.name for c in held[:8])}")
        named.append(found)
    last = named[1] or next((c for c in reversed(held) if not c.good and c is not named[0] and _weighs(c)), held[-1])
    good = [c for c in held if c.good and _weighs(c)]
    if named[0]:
        first = named[0]
    elif good:
        first = good[-1]
    else:
        like = [c for c in held if c is not last and c.framework == last.framework and _weighs(c)]
        like = [c for c in like if not _is_copy(last, c, like)]
        same = [c for c in like if c.series == last.series] or like
        first = same[0] if same else None
    return (first, last) if first is not None and first is not last else None


def _is_copy(last: Checkpoint, other: Checkpoint, held: list[Checkpoint]) -> bool:
    """Whether `last` is the newest numbered save once more, under a name such as last.ckpt: equal by design."""
    if last.step is not None or not re.search(r"(^|[/_-])(last|latest|best)\b", last.name):
        return False
    return other.step is not None and other.step == max(c.step for c in held if c.step is not None)


def _weighs(checkpoint: Checkpoint) -> bool:
    """Whether it holds weights: a folder with optimizer shards alone is no side to compare with."""
    return bool({"model", "metadata"} & checkpoint.files.keys()) and not holds_gradients(checkpoint.name)


def _alone(ws: Workspace, checkpoint: Checkpoint) -> ToolResult:
    """One checkpoint: only an adapter that is still at its start can be told."""
    weights = weights_of(ws, checkpoint)
    halves = [(n, t) for n, t in weights.tensors.items() if is_b(n)]
    if not halves:
        return not_applicable(f"only one checkpoint ({checkpoint.name}): nothing to compare it with")
    seen = changes(ws, [(n, t, t) for n, t in halves])
    zero = [c for c in seen if c.read and c.elements == c.zeros]
    if not zero:
        return clean(f"one checkpoint ({checkpoint.name}): all {len(seen)} adapter output matrices are non-zero")
    evidence = list(_zero_adapters(ws, zero, len(halves)))
    return finding(f"{len(zero)} of {len(halves)} adapter output matrices are still all zero", evidence)


def _zero_adapters(ws: Workspace, zero: list[Change], count: int) -> Iterator[Evidence]:
    for change in zero[:_SHOWN]:
        text = f"{change.name}: all {change.elements} elements are zero, as at the start ({len(zero)} of {count} so)"
        yield _told(ws, change.after, "ckpt_diff.adapter_untrained", change.name, text)


def _told(ws: Workspace, tensor: Tensor, key: str, value: Value, text: str) -> Evidence:
    return ws.binary(tensor.file, tensor.name, key, value, text)


def _keys(
    ws: Workspace, chosen: tuple[Checkpoint, Checkpoint], left: Weights, right: Weights, pairs: Pairs
) -> Iterator[Evidence]:
    """Evidence about names, shapes and types."""
    some = next(iter(right.tensors.values()))
    if pairs.prefix:
        text = f"names differ in what wraps them: {pairs.prefix}"
        yield _told(ws, some, "ckpt_diff.prefix_differs", pairs.prefix, text)
    for names, side, other in ((pairs.only_before, left, right), (pairs.only_after, right, left)):
        for name in names[:_SHOWN] if other.readable else ():  # what was not understood may hold the key all the same
            tensor = side.tensors.get(name, some)
            text = f"{name} is only in {side.name} ({len(names)} such keys of {len(side.tensors)})"
            yield _told(ws, tensor, "ckpt_diff.key_only_in", name, text)
    for name, old, new in pairs.shapes[:_SHOWN]:
        text = f"{name}: {list(old.shape)} in {left.name}, {list(new.shape)} in {right.name} ({len(pairs.shapes)} so)"
        yield _told(ws, new, "ckpt_diff.shape_differs", name, text)
    if pairs.dtypes:
        name, old, new = pairs.dtypes[0]
        text = f"{len(pairs.dtypes)} tensors change type, first {name}: {old.dtype} -> {new.dtype}"
        yield _told(ws, new, "ckpt_diff.dtype_differs", f"{old.dtype} -> {new.dtype}", text)


def _moves(
    ws: Workspace,
    chosen: tuple[Checkpoint, Checkpoint],
    trained: Trained,
    moved: list[Change],
    optimizer: Optimizer | None,
) -> Iterator[Evidence]:
    """Evidence about what moved and what did not."""
    read = [c for c in moved if c.read]
    if not read:
        return
    same = [c for c in read if c.same]
    last = read[-1].after
    between = f"between {chosen[0].name} and {chosen[1].name}"
    text = f"{len(same)} of {len(read)} trainable tensors are bit-identical {between}"
    yield _told(ws, last, "ckpt_diff.unchanged_fraction", round(len(same) / len(read), 4), text)
    if len(same) == len(moved):
        yield _told(ws, last, "ckpt_diff.all_identical", True, f"all {len(read)} tensors are bit-identical {between}")
    elif trained.never:
        for change, why in trained.never[:_SHOWN]:
            text = f"{change.name} is bit-identical {between}; {why} ({len(trained.never)} such tensors)"
            yield _told(ws, change.after, "ckpt_diff.never_trained", change.name, text)
        meant = [(c, why) for c, why in trained.never if is_listed(c.name, optimizer)]
        for change, why in meant[:_SHOWN]:
            text = f"{change.name} is bit-identical {between}; {why} ({len(meant)} such tensors)"
            yield _told(ws, change.after, "ckpt_diff.should_have_moved", change.name, text)
    for change in trained.lost[:_SHOWN]:
        text = (
            f"{change.name} ({change.after.dtype}) is bit-identical {between} although the optimizer stepped it: "
            f"steps smaller than the type resolves are rounded away ({len(trained.lost)} such tensors)"
        )
        yield _told(ws, change.after, "ckpt_diff.update_lost", change.name, text)
    yield from _zero_adapters(ws, trained.zero_adapters, sum(is_b(c.name) for c in read))
    for change in [c for c in read if c.broken][:_SHOWN]:
        text = f"{change.name}: {change.broken} of {change.elements} elements became NaN or infinite"
        yield _told(ws, change.after, "ckpt_diff.became_nonfinite", change.name, text)
    if trained.moved:
        most = max(trained.moved, key=lambda c: c.relative)
        text = f"{most.name} moved most: {most.difference:.4g} of its norm {most.norm:.4g}"
        yield _told(ws, most.after, "ckpt_diff.largest_change", _short(most.relative), text)
        middle = statistics.median(c.relative for c in trained.moved)
        text = f"median relative change of {len(trained.moved)} tensors that moved: {middle:.4g}"
        yield _told(ws, most.after, "ckpt_diff.median_change", _short(middle), text)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _answer(
    left: Weights, right: Weights, evidence: list[Evidence], trained: Trained, moved: list[Change], pairs: Pairs
) -> ToolResult:
    """The verdict: facts alone are clean, and nothing unread is called clean."""
    telling = {e.key.removeprefix("ckpt_diff.") for e in evidence} - {
        "unchanged_fraction", "largest_change", "median_change", "dtype_differs"
    }  # fmt: skip
    text = "\n".join([*_table(moved), *(e.text for e in evidence)])
    summary = f"{left.name} -> {right.name}: {len(trained.moved)} of {len(moved)} tensors moved"
    if trained.base:
        summary += f", {len(trained.base)} of a frozen base did not"
    if trained.unread:
        summary += f", {len(trained.unread)} were not read"
    if telling:
        return finding(f"{summary}; {', '.join(sorted(telling))}", evidence, text)
    if trained.unread or not (left.readable and right.readable):
        why = left.why or right.why or f"{len(trained.unread)} tensors could not be read"
        return ToolResult("failed", f"{summary}; not all could be read: {why}", evidence, text)
    return clean(summary, evidence, text)


def _table(moved: list[Change]) -> list[str]:
    """Relative change by module, in the order of the file."""
    by_module: dict[str, list[Change]] = {}
    for change in moved:
        by_module.setdefault(module_of(change.name), []).append(change)
    rows = []
    for module, inner in by_module.items():
        difference = sum(c.difference**2 for c in inner) ** 0.5
        norm = sum(c.norm**2 for c in inner) ** 0.5
        same = sum(c.same for c in inner)
        relative = difference / norm if norm else 0.0
        rows.append(f"{module}: relative change {relative:.3g}, {same} of {len(inner)} identical")
    if len(rows) > 2 * _LISTED:
        rows = [*rows[:_LISTED], f"... {len(rows) - 2 * _LISTED} more modules", *rows[-_LISTED:]]
    return rows
