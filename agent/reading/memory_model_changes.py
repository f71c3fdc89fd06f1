"""Changes that lower the peak of a step, cheapest first, each estimated again.

Cost is told as lost speed in words and ordered by rough rank: what costs nothing (fused loss, flash attention), what
costs a few percent (smaller micro-batch with more accumulation, sharding), what costs a third (recomputation), what
costs much (offloading). The order is a judgement; the bytes after each change are estimates like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from . import memory_model
from .memory_model import Estimate
from .memory_model_plan import Plan
from .model_config import Model

STEPS = 4  # changes put together at most


@dataclass(frozen=True, slots=True)
class Change:
    """One change with the settings it means; `estimate` is the step after it and those before it in the list."""

    title: str
    cost: str
    settings: dict[str, object]
    estimate: Estimate


Option = tuple[str, str, dict[str, object], Plan]


def options(plan: Plan) -> Iterator[Option]:
    """`(title, cost, settings, plan)` of every single change that applies, cheapest first."""
    yield from _of_kernels(plan)
    yield from _of_layout(plan)
    yield from _of_training(plan)


def _of_kernels(plan: Plan) -> Iterator[Option]:
    """What costs nothing."""
    if plan.attention == "eager":
        title = "attention that stores no scores (sdpa or flash)"
        yield title, "none, usually faster", {"attention_implementation": "sdpa"}, replace(plan, attention="flash")
    if not plan.chunked_loss:
        title = "a fused or chunked cross entropy"
        yield title, "none, a few percent at most", {"chunked_loss": True}, replace(plan, chunked_loss=True)
    if plan.update == "foreach":
        yield "a fused optimizer kernel", "none", {"optimizer": "adamw_torch_fused"}, replace(plan, update="fused")


def _of_layout(plan: Plan) -> Iterator[Option]:
    """What costs some percent: sharding and smaller micro-batches; then recomputation."""
    if plan.shards > 1 and plan.zero < 1 and not plan.lora_rank:
        title = "the optimizer state sharded over data-parallel ranks (ZeRO-1)"
        yield title, "a few percent", {"zero_stage": 1}, replace(plan, zero=1)
    if plan.micro_batch > 1:
        half, double = plan.micro_batch // 2, plan.accumulation * 2
        settings: dict[str, object] = {"micro_batch_size": half, "gradient_accumulation_steps": double}
        title = f"micro-batch {half} with accumulation {double}"
        yield title, "a few percent", settings, replace(plan, micro_batch=half, accumulation=double)
    if plan.shards > 1 and plan.zero < 3 and not plan.bits:
        fsdp = plan.fsdp or plan.precision != "master"
        title = "weights sharded too (ZeRO-3 or FSDP)"
        yield title, "5 to 20 %, by the links", {"zero_stage": 3}, replace(plan, zero=3, fsdp=fsdp)
    if plan.checkpointing != "full":
        title = "activations recomputed (gradient checkpointing)"
        changed = replace(plan, checkpointing="full")
        yield title, "about a third more compute", {"activation_checkpointing": True}, changed


def _of_training(plan: Plan) -> Iterator[Option]:
    """What changes the training itself, or costs much."""
    if plan.optimizer == "adamw" and not plan.lora_rank:
        cost = "little; compare the loss"
        yield "an 8-bit optimizer", cost, {"optimizer": "adamw_8bit"}, replace(plan, optimizer="adamw_8bit")
    if plan.sequence >= 1024:
        half = plan.sequence // 2
        yield (
            f"sequences of {half} tokens",
            "a shorter context",
            {"sequence_length": half},
            replace(plan, sequence=half),
        )
    if plan.zero and not plan.offload_optimizer and not plan.lora_rank:
        changed = replace(plan, offload_optimizer=True)
        yield "optimizer state in host memory", "two to three times slower", {"offload_optimizer": "cpu"}, changed
    if not plan.lora_rank:
        changed = replace(plan, lora_rank=16, lora_targets="all")
        yield "adapters (LoRA) instead of all weights", "another kind of training", {"lora_rank": 16}, changed
    elif not plan.bits:
        yield (
            "base weights in 4 bit (QLoRA)",
            "slower; weights are rounded",
            {"quantization": "4bit"},
            replace(plan, bits=4),
        )


def that_fit(model: Model, plan: Plan, room: float) -> tuple[list[Change], list[Change]]:
    """`(each alone, cheapest set)`: every change alone with its effect, and the first changes that fit together.

    Args:
        room: bytes that the step may take. The set is empty where nothing of the list makes it fit.
    """
    alone = [Change(t, c, s, memory_model.of(model, p)) for t, c, s, p in options(plan)]
    single = next((c for c in alone if c.estimate.peak.total <= room), None)
    if single is not None:
        return alone, [single]
    together: list[Change] = []
    now, best = plan, memory_model.of(model, plan)
    for _ in range(STEPS * 3):
        step = next((x for x in options(now) if _helps(memory_model.of(model, x[3]), best)), None)
        if step is None:
            break
        title, cost, settings, now = step
        best = memory_model.of(model, now)
        together.append(Change(title, cost, settings, best))
        if best.peak.total <= room:
            return alone, together
    return alone, []


def _helps(after: Estimate, before: Estimate) -> bool:
    return after.peak.total < 0.97 * before.peak.total
