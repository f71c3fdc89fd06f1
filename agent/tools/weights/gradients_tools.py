"""Gradients by layer: where they are zero, where they stop being finite, how they run over depth."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from ...core.errors import ToolError
from ...core.types import Evidence, ToolResult, Value
from ...reading.checkpoints.layouts import Checkpoint, checkpoints
from ...reading.checkpoints.moments import Optimizer, optimizer_of
from ...reading.checkpoints.optimizer_health import (
    Told,
    group_findings,
    health,
    matching,
    schedule_findings,
    steps,
    values_of,
)
from ...reading.checkpoints.pairing import Update, updates_of
from ...reading.checkpoints.weights import chosen_checkpoint, weights_of
from ...reading.curves.curves import curves
from ...reading.profiles.gradients import (
    Gradient,
    Profile,
    Recorded,
    broken,
    curve_gradients,
    profile,
    recorded_gradients,
    saved_gradients,
    trained,
    untouched,
)
from ...reading.run.workspace import Workspace
from ..tool import clean, few, finding, not_applicable, tool

_SHOWN = 12  # evidence of one key
_ROWS = 40  # blocks listed in the text
_VANISHED, _EXPLODED = 1e-3, 1e3  # early layers against late ones
_AGAINST_WEIGHT = 100.0  # gradient norm over weight norm, which in working nets is far below one
_BEYOND = 1e8  # norm of all gradients, where weights to compare with are unknown
_TINY, _LARGE = 1e-7, 0.1  # step against weight
_FACTS = {"grad_layer.ratio", "grad_layer.total_norm", "grad_layer.update_ratio", "grad_layer.slope"}


@tool(emits=("grad_layer.*",))
def inspect_gradients(
    ws: Workspace,
    path: Annotated[str, Field(description="file of gradients, or checkpoint; everything of the run when empty")] = "",
) -> ToolResult:
    """Look at gradients layer by layer.

    Use when nothing is learned, the norm explodes, or NaN appears. Reads saved gradients, gradient norms that a
    tracker keeps for each layer, the optimizer's running gradient, and `gradients.jsonl`, which these lines in a
    training script write after backward:

        for name, p in model.named_parameters():
            g = None if p.grad is None else p.grad.detach().float()
            row = {"step": step, "name": name, "norm": None if g is None else g.norm().item()}
            row["requires_grad"] = p.requires_grad
            if g is not None:
                row |= {"max": g.abs().max().item(), "nonfinite": int((~g.isfinite()).sum())}
            file.write(json.dumps(row | {"weight_norm": p.detach().float().norm().item()}) + "\\n")

    Says which parameters get no gradient, which block is the first that is not finite, whether the norm vanishes or
    explodes over depth, and how large the next step is against the weights. A process that is still running is
    asked with `doctor tool live-query` instead.
    """
    sources: list[Recorded] = [*saved_gradients(ws, path)]
    if not path:
        sources += [*recorded_gradients(ws), *curve_gradients(ws, curves(ws))]
    updates = _updates(ws, path) if not sources or not path else []
    if not sources and not updates:
        return not_applicable(f"no gradients in {path}" if path else "no gradients by layer in any file of the run")
    evidence: list[Evidence] = []
    text: list[str] = []
    for source in sources:
        found = profile(trained(source.gradients))
        evidence += _of(ws, source, found)
        text += [f"{source.label} ({source.kind}, {len(source.gradients)} parameters):", *_rows(found)]
    if updates:
        evidence += _of_updates(ws, updates, recorded=bool(sources))
        text.append(f"{len(updates)} parameters with a running gradient in the optimizer")
    telling = sorted({e.key for e in evidence} - _FACTS)
    labels = ", ".join(dict.fromkeys([*(s.label for s in sources), *(["optimizer moments"] if updates else [])]))
    text += [e.text for e in evidence if e.kind == "binary"]
    if telling:
        named = ", ".join(k.removeprefix("grad_layer.") for k in telling)
        return finding(f"{labels}: {named}", evidence, "\n".join(text))
    if unread := sum(s.unread for s in sources):
        return ToolResult("failed", f"{labels}: {unread} rows or tensors could not be read", evidence, "\n".join(text))
    return clean(f"{labels}: gradients reach every layer and are of ordinary size", evidence, "\n".join(text))


def _of(ws: Workspace, source: Recorded, found: Profile) -> Iterator[Evidence]:
    """Everything one source says."""
    bad = broken(source.gradients)
    meant = trained(source.gradients)
    some = next((g for g in reversed(source.gradients) if g.line is not None), source.gradients[-1])
    if bad:
        first, last = bad[0], bad[-1]
        step = f" at step {first.bad_step}" if first.bad_step is not None and first.bad_step >= 0 else ""
        text = (
            f"{len(bad)} of {len(source.gradients)} gradients are not finite{step}: in forward order the first is "
            f"{first.name}, the last {last.name}, where the backward pass met it first"
        )
        yield _told(ws, first, "grad_layer.first_nonfinite", first.name, text, bad=True)
        yield _told(ws, last, "grad_layer.backward_origin", last.name, text, bad=True)
        if len(bad) == len(source.gradients):
            text += "; all of them: the loss itself was"
            yield _told(ws, last, "grad_layer.all_nonfinite", True, text, bad=True)
    silent = untouched(found)
    if silent and len(silent) == len(meant):
        yield _told(ws, some, "grad_layer.all_zero", True, f"all {len(silent)} gradients are zero at every step")
    else:
        for g in silent[:_SHOWN]:
            how = "missing, as it is frozen," if g.frozen else "missing" if g.absent == g.steps else "zero"
            text = f"{g.name}: gradient {how} at all {g.steps} recorded steps ({len(silent)} such parameters)"
            yield _told(ws, g, "grad_layer.zero", g.name, text)
    yield from _depth(ws, some, found)


def _depth(ws: Workspace, some: Gradient, found: Profile) -> Iterator[Evidence]:
    """The profile over depth, and the size of everything."""
    if math.isfinite(found.total):
        text = f"norm of all gradients together: {found.total:.4g}"
        yield _told(ws, some, "grad_layer.total_norm", _short(found.total), text)
    layers = found.layers
    if not math.isnan(found.ratio):
        at = layers[0].gradients[0]
        text = (
            f"gradient norm over {len(layers)} layers: {layers[0].norm:.3g} in {layers[0].name}, {layers[-1].norm:.3g} "
            f"in {layers[-1].name}; first quarter over last {found.ratio:.3g}"
        )
        yield _told(ws, at, "grad_layer.ratio", _short(found.ratio), text)
        if math.isfinite(found.slope):
            yield _told(ws, at, "grad_layer.slope", _short(found.slope), f"{found.slope:+.3g} decades for each layer")
        if found.ratio < _VANISHED:
            yield _told(ws, at, "grad_layer.vanishing", _short(found.ratio), f"vanishing: {text}")
        elif found.ratio > _EXPLODED:
            text = f"exploding towards the first layers: {text}"
            yield _told(ws, at, "grad_layer.exploding", _short(found.ratio), text)
    if found.to_weight > _AGAINST_WEIGHT:
        text = f"gradients are {found.to_weight:.3g} times as large as the weights (median over the blocks)"
        yield _told(ws, some, "grad_layer.exploding", _short(found.to_weight), text)
    elif math.isnan(found.to_weight) and math.isfinite(found.total) and found.total > _BEYOND:
        text = f"norm of all gradients together: {found.total:.4g}, beyond that of any net that trains"
        yield _told(ws, some, "grad_layer.exploding", _short(found.total), text)
    grown = [m for m in found.modules if m.first_norm > 0 and m.norm > _EXPLODED * m.first_norm]
    if grown:
        most = max(grown, key=lambda m: m.norm / m.first_norm)
        text = f"{most.name}: gradient norm from {most.first_norm:.3g} to {most.norm:.3g} over the recorded steps"
        yield _told(ws, most.gradients[0], "grad_layer.growing", most.name, text)


def _updates(ws: Workspace, path: str) -> list[Update]:
    """From the newest checkpoint that has an optimizer, or the one that is named."""
    held = [c for c in checkpoints(ws) if not c.good]
    if path:
        named = chosen_checkpoint(ws, path)
        held = [named] if named else []
    for checkpoint in reversed(held):
        weights = weights_of(ws, checkpoint)
        optimizer = optimizer_of(ws, checkpoint, weights)
        if optimizer.moments:
            return updates_of(ws, optimizer, weights)
    return []


def _of_updates(ws: Workspace, updates: list[Update], recorded: bool) -> Iterator[Evidence]:
    """The optimizer's running gradient by depth, and its next step against the weights."""
    moving = [u for u in updates if u.ratio > 0]
    if moving:
        middle = statistics.median(u.ratio for u in moving)
        u = min(moving, key=lambda u: abs(u.ratio - middle))
        text = f"the next step moves the weights by {middle:.3g} of their norm (median of {len(moving)} parameters)"
        yield _moment(ws, u, "grad_layer.update_ratio", _short(middle), text)
        if middle > _LARGE:
            yield _moment(ws, u, "grad_layer.update_large", _short(middle), text)
        if middle < _TINY:
            yield _moment(ws, u, "grad_layer.update_tiny", _short(middle), text)
    if recorded:
        return
    gradients = []
    for u in updates:
        first = u.moments.slots["exp_avg"]
        gradient = Gradient(u.moments.label, first.file, weight_norm=u.norm, member=first.name)
        gradient.add(u.gradient, None, None)
        gradients.append(gradient)
    yield from _depth(ws, gradients[-1], profile(gradients))


def _moment(ws: Workspace, u: Update, key: str, value: Value, text: str) -> Evidence:
    tensor = u.moments.slots["exp_avg"]
    return ws.binary(tensor.file, tensor.name, key, value, text)


def _told(ws: Workspace, g: Gradient, key: str, value: Value, text: str, bad: bool = False) -> Evidence:
    """Evidence at the gradient's last row, or at its first bad one; or at its tensor."""
    line, step = (g.bad, g.bad_step) if bad else (g.line or g.bad, g.step)
    if line is not None:
        return ws.cite(g.file, line, key, value, step=step)
    return ws.binary(g.file, g.member or g.name, key, value, text, step=step if step != -1 else None)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _rows(found: Profile) -> list[str]:
    rows = [
        f"  {m.name}: norm {m.norm:.4g}" + (f", {m.to_weight:.3g} of the weights" if math.isfinite(m.to_weight) else "")
        for m in found.modules
    ]
    if len(rows) > _ROWS:
        rows = [*rows[: _ROWS // 2], f"  ... {len(rows) - _ROWS} more", *rows[-_ROWS // 2 :]]
    return rows


# ----------
# The optimizer's state in a checkpoint: moments, step counts, groups.

_OPTIMIZER_SHOWN = 12  # evidence of one key
_OPTIMIZER_FACTS = {"optimizer.step", "optimizer.learning_rate", "optimizer.parameters", "optimizer.gradient_rms"}


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
    telling = sorted({t.key for t in told} - _OPTIMIZER_FACTS)
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
    counts = Counter(t.key for t in told)
    for t in few(told, _OPTIMIZER_SHOWN, lambda t: t.key):
        more = f" ({counts[t.key]} such)" if counts[t.key] > 1 else ""
        yield ws.binary(t.file, t.member, t.key, t.value, t.text + more)
