"""What the recorder kept: the step, layer and batch where a value stopped being finite, and what came before."""

from __future__ import annotations

from collections.abc import Iterator

from ..reading.recorder import RAMP, Event, Recording, recording
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult, Value
from ..workspace import Workspace

EMITS = (
    "recorder.first_nonfinite_step", "recorder.nonfinite_in", "recorder.layer", "recorder.layer_alone",
    "recorder.operation", "recorder.place", "recorder.backward_origin", "recorder.batch_ids",
    "recorder.batch_nonfinite", "recorder.batch_rows", "recorder.batch_finite", "recorder.norm_before",
    "recorder.norm_ratio", "recorder.norm_calm", "recorder.grew_before", "recorder.weights_ratio",
    "recorder.fp16_overflow", "recorder.weights_nonfinite", "recorder.nan_filtered", "recorder.skipped_steps",
    "recorder.spike_step", "recorder.data_wait_share", "recorder.steps", "recorder.lost_lines",
)  # fmt: skip

_SPIKES = 5  # shown
_STEPS_FOR_SHARE = 20  # below this the first steps, which build everything, would speak for all
_ENOUGH_BEFORE = 5  # steps known before, from which calm may be spoken of


@tool(emits=EMITS, recall=True)
def recorder(ws: Workspace) -> ToolResult:
    """Read what traindoctor_recorder kept: the first step that was not finite, its layer and batch, spikes, waits.

    Use when the loss or a gradient became NaN or infinite, spiked, or steps wait for data, and the training was
    recorded (`doctor-recorder/` in the run). Says whether the batch itself held NaN or infinity, which module's output
    was the first that was not finite though what went in was, which operation and line that was, how gradients and
    weights had grown before, which steps a scaler skipped, and whether the logged loss leaves NaNs out.
    """
    found = recording(ws)
    if not found.events and not found.waits:
        return not_applicable("no files of the recorder (doctor-recorder/events_rank_0.jsonl) in the run")
    evidence: list[Evidence] = []
    trouble = found.trouble
    if trouble is not None:
        evidence += _trouble(ws, trouble)
    evidence += _rest(ws, found)
    evidence += _waits(ws, found)
    text = "\n".join(f"{e.key}: {e.value}" for e in evidence)
    telling = {"recorder.first_nonfinite_step", "recorder.nan_filtered", "recorder.spike_step"}
    if trouble is not None:
        return finding(_summary(trouble), evidence, text)
    if any(e.key in telling for e in evidence):
        named = ", ".join(sorted({e.key.partition(".")[2] for e in evidence if e.key in telling}))
        return finding(f"the recorder saw no step that was not finite at its end; it noted: {named}", evidence, text)
    return clean("the recorder saw every step finite", evidence, text)


def _trouble(ws: Workspace, e: Event) -> Iterator[Evidence]:
    """Everything about the first step that was not finite."""
    yield _told(ws, e, "first_nonfinite_step", e.step)
    yield _told(ws, e, "nonfinite_in", e.word("where") or "loss")
    inputs = e.words("batch_nonfinite")
    if inputs:
        yield _told(ws, e, "batch_nonfinite", ", ".join(map(str, inputs[:5])))
        if rows := e.words("batch_rows"):
            yield _told(ws, e, "batch_rows", ", ".join(map(str, rows[:10])))
    elif e.facts.get("batch_known") is True:
        yield _told(ws, e, "batch_finite", True)
    if ids := e.words("ids"):
        yield _told(ws, e, "batch_ids", _ids(e, ids))
    yield from _before(ws, e)
    yield from _layer(ws, e, bool(inputs))


def _ids(e: Event, ids: list) -> str:
    """The ids of the samples; those of the bad rows first where each row has one."""
    rows = [r for r in e.words("batch_rows") if isinstance(r, int) and 0 <= r < len(ids)]
    chosen = [ids[r] for r in rows] or ids
    more = f" and {len(chosen) - 16} more" if len(chosen) > 16 else ""
    return ", ".join(str(i)[:60] for i in chosen[:16]) + more


def _before(ws: Workspace, e: Event) -> Iterator[Evidence]:
    """What the steps before looked like."""
    for name in ("norm_before", "norm_ratio", "weights_ratio"):
        if (value := e.number(name)) is not None:
            yield _told(ws, e, name, value)
    if e.facts.get("parameters_nonfinite"):
        yield _told(ws, e, "weights_nonfinite", ", ".join(map(str, e.words("parameters")[:3])))
    if e.grew:
        ratios = {n: v for n in ("norm_ratio", "weights_ratio", "loss_ratio") if (v := e.number(n)) is not None}
        yield _told(ws, e, "grew_before", max(ratios.values()))
    elif (e.number("steps_before") or 0) >= _ENOUGH_BEFORE and (e.number("norm_ratio") or RAMP) < RAMP / 2:
        yield _told(ws, e, "norm_calm", True)


def _layer(ws: Workspace, e: Event, bad_input: bool) -> Iterator[Evidence]:
    """Where in the model it began. Alone: finite numbers went in, and nothing had grown before."""
    layer = e.word("layer")
    half = e.facts.get("fp16") is True
    if half and not bad_input:
        yield _told(ws, e, "fp16_overflow", layer or "unknown")
    if origin := e.word("backward_origin"):
        yield _told(ws, e, "backward_origin", origin)
    if not layer:
        return
    kind = e.word("layer_class")
    yield _told(ws, e, "layer", f"{layer} ({kind})" if kind else layer)
    for name, key in (("op", "operation"), ("place", "place")):
        if word := e.word(name):
            yield _told(ws, e, key, word)
    replayed = e.word("layer_by") == "replay" and e.facts.get("layer_input_finite") is True
    from_gradients = e.word("layer_by") == "gradients"
    sound = not bad_input and not half and not e.grew and not e.facts.get("parameters_nonfinite")
    if sound and (replayed or from_gradients):
        yield _told(ws, e, "layer_alone", layer)


def _rest(ws: Workspace, found: Recording) -> Iterator[Evidence]:
    """Filtered NaNs, skipped steps, spikes, lines that the recorder could not write."""
    for e in found.of("nan_filtered")[:1]:
        yield _told(ws, e, "nan_filtered", int(e.number("count") or 1))
    skipped = found.of("skipped")
    if skipped:
        most = max(skipped, key=lambda e: e.number("total") or 0)
        yield _told(ws, most, "skipped_steps", int(most.number("total") or len(skipped)))
    for e in found.of("spike")[:_SPIKES]:
        yield _told(ws, e, "spike_step", e.step)
    for e in found.of("end"):
        if lost := int(e.number("lost") or 0):
            yield _told(ws, e, "lost_lines", lost)


def _waits(ws: Workspace, found: Recording) -> Iterator[Evidence]:
    """The rank that waits longest for its data."""
    known = [w for w in found.waits if w.steps >= _STEPS_FOR_SHARE]
    if not known:
        return
    worst = max(known, key=lambda w: w.share)
    yield ws.cite(worst.file, worst.line, "recorder.data_wait_share", float(f"{worst.share:.3g}"))
    yield ws.cite(worst.file, worst.line, "recorder.steps", worst.steps)


def _told(ws: Workspace, e: Event, key: str, value: Value) -> Evidence:
    return ws.cite(e.file, e.line, f"recorder.{key}", value, step=e.step, rank=e.rank)


def _summary(e: Event) -> str:
    where = e.word("where") or "loss"
    said = f"step {e.step}, rank {e.rank}: the {where} is not finite"
    if e.words("batch_nonfinite"):
        return f"{said}; the batch itself holds NaN or infinity in {e.words('batch_nonfinite')[0]}"
    if e.grew:
        return f"{said}; weights, gradients or loss had grown before"
    return f"{said}; first in {e.word('layer')}" if e.word("layer") else said
