"""The optimizer's state in a checkpoint: moments, step counts, groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from ..errors import ToolError
from ..reading.checkpoints.layouts import Checkpoint, checkpoints
from ..reading.checkpoints.moment_values import values_of
from ..reading.checkpoints.moments import Optimizer, optimizer_of
from ..reading.checkpoints.optimizer_groups import group_findings, schedule_findings
from ..reading.checkpoints.optimizer_health import Told, health, matching, steps
from ..reading.checkpoints.weights import chosen_checkpoint, weights_of
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

_SHOWN = 12  # evidence of one key
_FACTS = {"optimizer.step", "optimizer.learning_rate", "optimizer.parameters", "optimizer.gradient_rms"}


@tool(emits=("optimizer.*",))
def optimizer_state(
    ws: Workspace,
    path: Annotated[str, Field(description="checkpoint folder or file; when empty, the newest with state")] = "",
) -> ToolResult:
    """Check the optimizer's state in a checkpoint.

    Use after a spike on resume, when nothing is learned, or when moments are suspected. Reads torch and HF
    optimizer.pt, Lightning, DeepSpeed partitions and distributed checkpoints: moments that are zero, not finite,
    huge, negative or impossible together, steps that differ or stand still, shapes that are not those of the
    parameters, parameters without state, rates and decay of the groups. Nothing is unpickled.
    """
    held = checkpoints(ws)
    if not held:
        return not_applicable("no checkpoint in the run")
    found = _chosen(ws, held, path)
    if found is None:
        return not_applicable(f"no optimizer state in {path or f'{len(held)} checkpoints'}")
    checkpoint, optimizer = found
    if optimizer.empty:
        return _never(ws, checkpoint, optimizer)
    weights = weights_of(ws, checkpoint)
    before = _before(ws, held, checkpoint)
    values = values_of(ws, optimizer)
    told = [
        *health(values, optimizer),
        *steps(optimizer),
        *matching(optimizer, weights),
        *group_findings(optimizer),
        *schedule_findings(ws, checkpoint, optimizer, before),
    ]
    evidence = list(_capped(ws, told))
    telling = sorted({t.key for t in told} - _FACTS)
    unread = sum(not v.read for v in values)
    label = f"{checkpoint.name}: state of {len(optimizer.moments)} {'flat buffers' if optimizer.flat else 'parameters'}"
    text = "\n".join([label, *(e.text for e in evidence)])
    if telling:
        return finding(f"{label}; {', '.join(k.removeprefix('optimizer.') for k in telling)}", evidence, text)
    if unread or not optimizer.readable:
        why = optimizer.why or f"{unread} moments could not be read"
        return ToolResult("failed", f"{label}; not all could be checked: {why}", evidence, text)
    return clean(f"{label} looks sound", evidence, text)


def _never(ws: Workspace, checkpoint: Checkpoint, optimizer: Optimizer) -> ToolResult:
    """An optimizer that was made, saved, and never had a gradient to work on."""
    text = f"{checkpoint.name}: the optimizer lists {optimizer.listed} parameters, has state for none: it never stepped"
    return finding(text, [ws.binary(optimizer.files[0], "state", "optimizer.never_stepped", True, text)])


def _chosen(ws: Workspace, held: list[Checkpoint], path: str) -> tuple[Checkpoint, Optimizer] | None:
    if path:
        named = chosen_checkpoint(ws, path)
        if named is None:
            raise ToolError(f"no checkpoint called {path!r}; there are {', '.join(c.name for c in held[:8])}")
        optimizer = optimizer_of(ws, named, weights_of(ws, named))
        return (named, optimizer) if optimizer.moments or optimizer.empty else None
    for checkpoint in reversed(held):
        if checkpoint.good:
            continue
        optimizer = optimizer_of(ws, checkpoint, weights_of(ws, checkpoint))
        if optimizer.moments or optimizer.empty:
            return checkpoint, optimizer
    return None


def _before(ws: Workspace, held: list[Checkpoint], checkpoint: Checkpoint) -> tuple[Checkpoint, Optimizer] | None:
    """The checkpoint before it with optimizer state of the same kind."""
    at = held.index(checkpoint)
    for earlier in reversed(held[:at]):
        if earlier.framework == checkpoint.framework:
            optimizer = optimizer_of(ws, earlier, weights_of(ws, earlier))
            if optimizer.moments:
                return earlier, optimizer
    return None


def _capped(ws: Workspace, told: list[Told]) -> Iterator[Evidence]:
    counts: dict[str, int] = {}
    for t in told:
        counts[t.key] = counts.get(t.key, 0) + 1
    shown: dict[str, int] = {}
    for t in told:
        shown[t.key] = shown.get(t.key, 0) + 1
        if shown[t.key] <= _SHOWN:
            more = f" ({counts[t.key]} such)" if counts[t.key] > 1 else ""
            yield ws.binary(t.file, t.member, t.key, t.value, t.text + more)
