"""How much memory a training step needs, what fits, and the cheapest change that makes it fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from ...core.errors import ToolError
from ...core.types import Evidence, ToolResult
from ...reading.memory import memory_model, model_config
from ...reading.memory.memory_changes import Capacity, Change, recorded, said, that_fit
from ...reading.memory.memory_model import MARGIN, Estimate, gib
from ...reading.memory.memory_plan import UNSHARDED, Plan, Read, plan_of
from ...reading.memory.model_config import Described, tables
from ...reading.run.workspace import Workspace
from ..tool import failed, finding, not_applicable, tool

GIB = 1 << 30
FILLED = 2 / 3  # share of a device that one copy of the weights may take before little else fits
LAYOUT = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert", "dp": "data"}
FIXED = ("weights", "gradients", "optimizer state", "float32 copy", "gathered weights", "communication")
KEYS = {
    "weights": "weights_bytes", "gradients": "gradients_bytes", "optimizer state": "optimizer_bytes",
    "activations": "activations_bytes", "logits": "logits_bytes", "KV cache": "kv_cache_bytes",
}  # fmt: skip


@dataclass
class _Case:
    """What is estimated: the model, the plan with where it came from, the room there is."""

    described: Described
    read: Read
    estimate: Estimate
    capacity: Capacity | None
    several: bool = False

    @property
    def overhead(self) -> float:
        """Context, communicators and the allocator's rounding."""
        return memory_model.overhead(self.estimate)

    @property
    def needed(self) -> float:
        return memory_model.needed(self.estimate)

    @property
    def room(self) -> float:
        """Bytes that tensors may take."""
        return max(0.0, self.capacity.bytes - self.overhead) if self.capacity else 0.0

    @property
    def fits(self) -> str:
        return memory_model.fits(self.estimate, self.capacity.bytes) if self.capacity else ""

    @cached_property
    def changes(self) -> tuple[list[Change], list[Change]]:
        """Each change alone, and the cheapest set that fits."""
        return that_fit(self.estimate.model, self.estimate.plan, self.room)


@tool(emits=("estimate.*",))
def estimate_memory(
    ws: Workspace,
    config: Annotated[str, Field(description="config.json of the run, or a model name such as Qwen2.5-7B")] = "",
    gpu: Annotated[str, Field(description="GiB of the device, or its name such as H100")] = "",
    micro_batch: Annotated[int, Field(description="sequences per device and step; 0: as the run says", ge=0)] = 0,
    sequence: Annotated[int, Field(description="tokens of a sequence; 0: as the run says", ge=0)] = 0,
    ranks: Annotated[int, Field(description="GPUs of the run; 0: as the run says", ge=0)] = 0,
    zero: Annotated[int, Field(description="ZeRO stage 0 to 3 (FSDP: 3); -1: as the run says", ge=-1, le=3)] = -1,
    precision: Annotated[str, Field(description="fp32, mixed, bf16, or master (16 bit with a float32 copy)")] = "",
    optimizer: Annotated[str, Field(description="adamw, adamw_8bit, adafactor, sgd, momentum, lion, muon")] = "",
    checkpointing: Annotated[str, Field(description="none, selective or full")] = "",
    layout: Annotated[str, Field(description="such as tp=2,pp=4,cp=1,ep=8")] = "",
    lora_rank: Annotated[int, Field(description="rank of adapters; 0: none; -1: as the run says", ge=-1)] = -1,
    bits: Annotated[int, Field(description="4 or 8 for a quantised base under adapters; -1: as the run says")] = -1,
    kv_tokens: Annotated[int, Field(description="tokens an engine on the same GPU keeps in its cache", ge=0)] = 0,
) -> ToolResult:
    """Estimate the memory of a training step by component, what fits, and the cheapest change that does.

    Use for an out-of-memory error or before a run: parameters, gradients, optimizer, activations, logits and KV cache
    for the run's model and layout (ZeRO, FSDP, tensor and pipeline parallel, checkpointing, offload, LoRA). What is
    left out is taken from the run's settings; what those leave open is assumed and told. Sizes of tensors are within
    15 % of measured ones; the context of the driver is a round figure on top.
    """
    described = _described(ws, config)
    if described is None:
        return not_applicable("no model is described: no config.json, no model flags, no well-known model name")
    read = plan_of(ws)
    given = {"micro_batch": micro_batch, "sequence": sequence, "world": ranks, "precision": precision,
             "optimizer": optimizer, "checkpointing": checkpointing, "cached_tokens": kv_tokens}  # fmt: skip
    changes = {k: v for k, v in given.items() if v}
    changes |= {k: v for k, v in (("zero", zero), ("lora_rank", lora_rank), ("bits", bits)) if v >= 0}
    plan = _changed(read.plan, changes, layout)
    capacity = said(gpu) if gpu else recorded(ws)
    if gpu and capacity is None:
        raise ToolError(f"gpu {gpu!r} is neither a size in GiB nor a card that is known")
    try:
        estimate = memory_model.of(described.model, plan)
    except ValueError as e:
        return failed(str(e))
    known = {"micro-batch 1": micro_batch, "2048 tokens": sequence, "AdamW": optimizer,
             "bf16 under autocast": precision}  # fmt: skip
    known |= {UNSHARDED: zero >= 0 or plan.shards == 1}
    read.assumed = [a for a in read.assumed if not known.get(a) and not (ranks and "rank(s)" in a)]
    case = _Case(described, read, estimate, capacity, len(model_config.models_of(ws)) > 1 and not config)
    return finding(_summary(case), list(_evidence(ws, case)), _table(case))


def _described(ws: Workspace, config: str) -> Described | None:
    found = model_config.models_of(ws)
    if not config:
        return memory_model.largest(found)
    for described in found:
        if described.file and (described.file.name == config or described.file.name.endswith(f"/{config}")):
            return described
    model = model_config.of_name(config)
    if model is None:
        names = ", ".join(d.file.name for d in found if d.file) or "none"
        raise ToolError(f"{config!r} is no config.json of the run and no well-known model (described: {names})")
    return Described(model)


def _changed(plan: Plan, changes: dict[str, Any], layout: str) -> Plan:
    allowed = {
        "precision": ("fp32", "mixed", "bf16", "master"), "optimizer": tuple(tables()["optimizers"]),
        "checkpointing": ("none", "selective", "full"),
    }  # fmt: skip
    for name, values in allowed.items():
        if changes.get(name, values[0]) not in values:
            raise ToolError(f"{name} {changes[name]!r} is none of {', '.join(values)}")
    if changes.get("bits", 0) not in (0, 4, 8):
        raise ToolError(f"bits {changes['bits']} is none of 0, 4, 8")
    data = 0
    for part in filter(None, layout.replace(" ", "").split(",")):
        name, _, value = part.partition("=")
        if name not in LAYOUT or not value.isdigit() or not 0 < int(value) < 1 << 20:
            raise ToolError(f"layout {part!r} is not one of tp=, pp=, cp=, ep=, dp= with a number")
        if name == "dp":
            data = int(value)
        else:
            changes[LAYOUT[name]] = int(value)
    new = replace(plan, **changes)
    needed = new.tensor * new.pipeline * new.context
    if "world" not in changes:
        new = replace(new, world=needed * data if data else max(needed, new.world // needed * needed))
    return new


def _evidence(ws: Workspace, case: _Case) -> Iterator[Evidence]:
    estimate, words, capacity = case.estimate, _sentence(case), case.capacity
    told: list[tuple[str, Any, str]] = [
        ("total_bytes", round(estimate.peak.total), words),
        ("parameters", round(memory_model.parameters_of(estimate.model)), _about(case)),
        ("largest_component", estimate.peak.largest, words),
        ("moment", estimate.peak.name, words),
        *((key, round(value), words) for part, key in KEYS.items() if (value := estimate.part(part))),
        ("states_bytes", round(_states(estimate)), words),
    ]
    told += [("host_bytes", round(estimate.host), words)] if estimate.host else []
    told += [("assumed", case.read.assumed, _assumed(case))] if case.read.assumed else []
    if capacity is not None:
        if capacity.file and capacity.line:
            yield ws.cite(capacity.file, capacity.line, "estimate.capacity_bytes", round(capacity.bytes))
        else:
            value = round(capacity.bytes)
            yield Evidence(key="estimate.capacity_bytes", value=value, kind="asked", text=capacity.how)
        told += [("needed_bytes", round(case.needed), words), ("fits", case.fits, words)]
        told += [(key, value, words) for key, value in _decisive(case, capacity)]
        if case.fits != "yes":
            changed = ((c.title, f"{c.title}: {gib(c.estimate.peak.total)} (costs: {c.cost})") for c in case.changes[1])
            told += [("change", title, said_of) for title, said_of in changed]
    for key, value, text in told:
        yield _cited(ws, case, f"estimate.{key}", value, text)


def _decisive(case: _Case, capacity: Capacity) -> Iterator[tuple[str, Any]]:
    """What alone exceeds the device, where nothing that decides it was assumed and the margin is clear."""
    if case.several:
        return
    estimate, room, peak = case.estimate, case.room, case.estimate.peak
    least = memory_model.of(estimate.model, replace(estimate.plan, **_least(case)))
    world_known = not any("rank" in a for a in case.read.assumed)
    if _states(least) > room * (1 + MARGIN) and world_known:
        yield "states_exceed", True
    if _copy(estimate) > FILLED * capacity.bytes:
        yield "whole_copy_fills", round(_copy(estimate))
    measured = not case.read.assumed or case.read.assumed == ["AdamW"]
    if measured and peak.total >= room * (1 + MARGIN) and _states(estimate) < room * (1 - MARGIN):
        yield "batch_exceeds", True
        for name in ("logits", "activations"):
            if peak.total - estimate.part(name) < room * (1 - MARGIN) and estimate.part(name) > 0.3 * peak.total:
                yield f"{name}_exceed", True


def _copy(estimate: Estimate) -> float:
    """Bytes of all weights where each of several ranks holds them whole, in 8 bits unless fewer are set; else 0."""
    plan = estimate.plan
    if plan.world < 2 or plan.zero or plan.fsdp or plan.tensor * plan.pipeline * plan.expert > 1:
        return 0.0
    return memory_model.parameters_of(estimate.model) * (plan.bits or 8) / 8


def _least(case: _Case) -> dict[str, Any]:
    """Changes that make the plan as small as what is not known allows."""
    small: dict[str, Any] = {}
    if "bf16 under autocast" in case.read.assumed:
        small["precision"] = "bf16"
    if "AdamW" in case.read.assumed:
        small["optimizer"] = "adamw_8bit"
    return small


def _states(estimate: Estimate) -> float:
    """Bytes that any batch needs: the update's moment without its temporaries."""
    update = next(m for m in estimate.moments if m.name == "update")
    return sum(update.parts.get(n, 0.0) for n in FIXED)


def _cited(ws: Workspace, case: _Case, key: str, value: Any, text: str) -> Evidence:
    """Evidence that names where the model is described and says the estimate in words."""
    if case.described.file is not None:
        return ws.binary(case.described.file, "estimate", key, value, text)
    if case.described.setting is not None:
        setting = case.described.setting
        return ws.binary(setting.file, setting.key, key, value, text)
    return Evidence(key=key, value=value, kind="document", file="knowledge/models.yaml", text=text)


def _about(case: _Case) -> str:
    model, plan = case.estimate.model, case.estimate.plan
    count = memory_model.parameters_of(model) / 1e9
    how = f"ZeRO {plan.zero}" if not plan.fsdp else f"FSDP ({'full' if plan.zero == 3 else 'gradients'})"
    trained = f"LoRA rank {plan.lora_rank}" if plan.lora_rank else plan.optimizer
    return (
        f"{model.family}, {count:.2f} B parameters ({model.source}); {plan.precision}, {trained}, micro-batch "
        f"{plan.micro_batch} x {plan.sequence} tokens, accumulation {plan.accumulation}, checkpointing "
        f"{plan.checkpointing}, {plan.attention} attention; {plan.world} rank(s): tp {plan.tensor}, pp "
        f"{plan.pipeline}, cp {plan.context}, ep {plan.expert}, {how}"
    )


def _sentence(case: _Case) -> str:
    peak = case.estimate.peak
    parts = ", ".join(f"{k} {gib(v)}" for k, v in sorted(peak.parts.items(), key=lambda x: -x[1]))
    of = f" of {gib(case.capacity.bytes)}" if case.capacity else ""
    return f"estimated {gib(peak.total)}{of} per GPU at the {peak.name}: {parts}"


def _assumed(case: _Case) -> str:
    return "assumed, as no file says: " + ", ".join(case.read.assumed)


def _summary(case: _Case) -> str:
    if case.capacity is None:
        return f"{_sentence(case)}; the device's memory is not known"
    words = memory_model.fits_in_words(case.estimate, case.capacity.bytes)
    return f"{gib(case.needed)} with overhead {words}; most is {case.estimate.peak.largest}"


def _table(case: _Case) -> str:
    """The components at every moment, what fits, and the changes."""
    estimate = case.estimate
    rows = [_about(case)]
    if case.read.assumed:
        rows.append(_assumed(case))
    if case.several:
        rows.append("several models are described: this is the largest (choose with config)")
    names = list(dict.fromkeys(n for m in estimate.moments for n in m.parts))
    rows.append(f"{'GiB':<18}" + "".join(f"  {m.name:>10}" for m in estimate.moments))
    for name in [*names, "total"]:
        cells = [(m, m.total if name == "total" else m.parts.get(name, 0)) for m in estimate.moments]
        rows.append(f"{name:<18}" + "".join(f"  {v / GIB:>{max(10, len(m.name))}.2f}" for m, v in cells))
    if estimate.host:
        rows.append(f"host memory of one process: {gib(estimate.host)}")
    if case.capacity is None:
        return "\n".join([*rows, "the device's memory is not known: name it with gpu"])
    rows.append(f"device: {gib(case.capacity.bytes)} ({case.capacity.how}); with about {gib(case.overhead)} for the "
                f"driver's context, communicators and rounding: {gib(case.needed)}, fits: {case.fits}")  # fmt: skip
    alone, together = case.changes
    rows += [f"  {gib(c.estimate.peak.total):>10}  with {c.title} (costs: {c.cost})" for c in alone]
    if case.fits != "yes":
        chosen = "; then ".join(f"{c.title} -> {gib(c.estimate.peak.total)}" for c in together)
        rows.append(f"cheapest that fits: {chosen or 'nothing of this list'}")
    return "\n".join(rows)
