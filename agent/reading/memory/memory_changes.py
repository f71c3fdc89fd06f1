"""Changes that lower the peak of a step, cheapest first, each estimated again.

Cost is told as lost speed in words and ordered by rough rank: what costs nothing (fused loss, flash attention), what
costs a few percent (smaller micro-batch with more accumulation, sharding), what costs a third (recomputation), what
costs much (offloading). The order is a judgement; the bytes after each change are estimates like any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...core.playbook import quantity
from ..run.files import Line, RunFile
from ..scan.anchors import anchored
from ..settings.versions import read_environment
from . import memory_model, oom
from .memory_model import Estimate
from .memory_plan import Plan
from .model_config import Model, tables

if TYPE_CHECKING:
    from ..run.workspace import Workspace

STEPS = 4  # changes put together at most


@dataclass(frozen=True, slots=True)
class Change:
    """One change; `estimate` is the step after it and those before it in the list."""

    title: str
    cost: str
    estimate: Estimate


Option = tuple[str, str, Plan]


def options(plan: Plan) -> list[Option]:
    """`(title, cost, plan)` of every single change that applies, cheapest first."""
    shared, full = plan.shards > 1, not plan.lora_rank
    half, double, short = plan.micro_batch // 2, plan.accumulation * 2, plan.sequence // 2
    offered: list[tuple[bool, str, str, dict[str, Any]]] = [
        (plan.attention == "eager", "attention that stores no scores (sdpa or flash)", "none, usually faster",
         {"attention": "flash"}),
        (not plan.chunked_loss, "a fused or chunked cross entropy", "none, a few percent at most",
         {"chunked_loss": True}),
        (plan.update == "foreach", "a fused optimizer kernel", "none", {"update": "fused"}),
        (shared and plan.zero < 1 and full, "the optimizer state sharded over data-parallel ranks (ZeRO-1)",
         "a few percent", {"zero": 1}),
        (half > 0, f"micro-batch {half} with accumulation {double}", "a few percent",
         {"micro_batch": half, "accumulation": double}),
        (shared and plan.zero < 3 and not plan.bits, "weights sharded too (ZeRO-3 or FSDP)", "5 to 20 %, by the links",
         {"zero": 3, "fsdp": plan.fsdp or plan.precision != "master"}),
        (plan.checkpointing != "full", "activations recomputed (gradient checkpointing)",
         "about a third more compute", {"checkpointing": "full"}),
        (plan.optimizer == "adamw" and full, "an 8-bit optimizer", "little; compare the loss",
         {"optimizer": "adamw_8bit"}),
        (short >= 512, f"sequences of {short} tokens", "a shorter context", {"sequence": short}),
        (plan.zero > 0 and not plan.offload_optimizer and full, "optimizer state in host memory",
         "two to three times slower", {"offload_optimizer": True}),
        (full, "adapters (LoRA) instead of all weights", "another kind of training",
         {"lora_rank": 16, "lora_targets": "all"}),
        (not full and not plan.bits, "base weights in 4 bit (QLoRA)", "slower; weights are rounded", {"bits": 4}),
    ]  # fmt: skip
    return [(title, cost, replace(plan, **changes)) for applies, title, cost, changes in offered if applies]


def that_fit(model: Model, plan: Plan, room: float) -> tuple[list[Change], list[Change]]:
    """`(each alone, cheapest set)`: every change alone with its effect, and the first changes that fit together.

    Args:
        room: bytes that the step may take. The set is empty where nothing of the list makes it fit.
    """
    alone = [Change(title, cost, memory_model.of(model, changed)) for title, cost, changed in options(plan)]
    if single := next((c for c in alone if c.estimate.peak.total <= room), None):
        return alone, [single]
    together: list[Change] = []
    now, best = plan, memory_model.of(model, plan)
    for _ in range(STEPS * 3):
        made = (Change(title, cost, memory_model.of(model, changed)) for title, cost, changed in options(now))
        step = next((c for c in made if c.estimate.peak.total < 0.97 * best.peak.total), None)
        if step is None:
            break
        now, best = step.estimate.plan, step.estimate
        together.append(step)
        if best.peak.total <= room:
            return alone, together
    return alone, []


# ----------
# How much memory the device has: from an out-of-memory message, a capture of nvidia-smi, or the card's name.

TOTAL = re.compile(r"/\s*(\d{4,7})MiB\b")
SAID = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(?:GiB|GB|G)?\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Bytes of one device, and where it was read: `how` in words, a line where there is one."""

    bytes: float
    how: str
    file: RunFile | None = None
    line: Line | None = None


def of_name(name: str) -> float | None:
    """Bytes that a card of this name offers; None for an unknown one."""
    for pattern, size in tables()["accelerators"]:
        if re.search(pattern, name, re.IGNORECASE):
            return float(quantity(size))
    return None


def said(text: str) -> Capacity | None:
    """What a user names: `80`, `80GiB` or a card such as `H100`; None where it is neither."""
    if m := SAID.match(text):
        return Capacity(float(m[1]) * (1 << 30), f"{float(m[1]):g} GiB as given")
    size = of_name(text)
    return Capacity(size, f"a {text}") if size else None


def recorded(ws: Workspace) -> Capacity | None:
    """The capacity that the run's files tell; the smallest where devices differ."""
    found = anchored(ws)
    told = []
    for hit in found.of("oom"):
        what = oom.parse(hit.text)
        if what and "capacity" in what.bytes and not hit.file.good:
            told.append(Capacity(what.bytes["capacity"], "the out-of-memory message", hit.file, hit.line))
    for hit in found.of("gpu") if not told else ():
        if (m := TOTAL.search(hit.text)) and not hit.file.good:
            told.append(Capacity(int(m[1]) * (1 << 20), "nvidia-smi", hit.file, hit.line))
    if told:
        return min(told, key=lambda c: c.bytes)
    for fact in read_environment(ws).facts:
        if fact.key == "gpu" and not fact.file.good and (size := of_name(str(fact.value))):
            told.append(Capacity(size, f"a {fact.value}", fact.file, fact.line))
    return min(told, key=lambda c: c.bytes) if told else None
