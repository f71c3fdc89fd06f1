"""The peak of a training step: what lies in memory at each of its moments, by component.

    estimate = of(model, plan)
    estimate.peak.total, estimate.peak.parts      bytes of one device at the fullest moment
    estimate.moments                              the loss, a layer's backward, the end of backward, the update

Moments are told apart because they hold different things: logits and stored activations meet at the loss, gradients
and the optimizer's temporaries at the update. A step needs the largest of them, not their sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import memory_model_activations as activations
from .memory_model_parameters import Parameters, adapters, share, whole
from .memory_model_plan import Plan, divided, linear, states
from .model_config import Model

BUCKET = 500_000_000  # elements that DeepSpeed reduces at once, its default
QUANTIZED = 1.0625  # bytes of a quantised weight with its constants, over its bits


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes by component at one moment of a step, on the pipeline stage that holds most."""

    name: str
    parts: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def largest(self) -> str:
        return max(self.parts, key=lambda k: self.parts[k])


@dataclass(frozen=True, slots=True)
class Estimate:
    """All moments; `host` is what offloading puts into the memory of the host, for one process."""

    model: Model
    plan: Plan
    parameters: Parameters
    moments: tuple[Moment, ...]
    host: float

    @property
    def peak(self) -> Moment:
        return max(self.moments, key=lambda m: m.total)

    def part(self, *names: str) -> float:
        """Bytes of these components at the peak."""
        return sum(self.peak.parts.get(n, 0.0) for n in names)


def of(model: Model, plan: Plan) -> Estimate:
    """Estimate one device.

    Raises:
        ValueError: the layout needs more ranks than there are, or divides nothing.
    """
    if plan.world % (plan.tensor * plan.pipeline * plan.context):
        raise ValueError(
            f"{plan.world} ranks cannot be divided into tensor {plan.tensor} x pipeline {plan.pipeline} x context "
            f"{plan.context}"
        )
    stages = {0, plan.pipeline - 1}
    made = [_stage(model, plan, stage) for stage in sorted(stages)]
    return max(made, key=lambda e: e.peak.total)


def _stage(model: Model, plan: Plan, stage: int) -> Estimate:
    held = share(model, stage, plan.pipeline, plan.tensor, plan.expert)
    fixed, host = _fixed(model, plan, held)
    work = _Work.of(model, plan, held, stage)
    grads = _gradients(model, plan, held)
    early = dict(fixed)
    if plan.accumulation > 1:
        early["gradients"] = early.get("gradients", 0) + grads
    moments = (
        Moment("loss", {**early, "activations": work.stored, "logits": work.loss, "weight copies": work.copies}),
        Moment("backward of a layer", _merged(early, {
            "activations": work.stored - work.outer + work.layer, "workspace": work.transient,
            "gradients": 0 if plan.accumulation > 1 else work.first_gradient, "weight copies": work.copies,
        })),
        Moment("backward of the first layer", _merged(fixed, {
            "gradients": grads * (1 - work.late), "activations": work.layer, "workspace": work.transient,
        })),
        Moment("end of backward", _merged(fixed, {"gradients": grads, "workspace": work.last_transient})),
        Moment("update", _merged(fixed, {"gradients": grads, "workspace": _update(model, plan, held)})),
    )  # fmt: skip
    return Estimate(model, plan, held, tuple(_clean(m) for m in moments), host)


def _clean(moment: Moment) -> Moment:
    return replace(moment, parts={k: v for k, v in moment.parts.items() if v >= 1})


def _merged(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {k: one.get(k, 0) + other.get(k, 0) for k in {**one, **other}}


def _trained(model: Model, plan: Plan, held: Parameters) -> float:
    if not plan.lora_rank:
        return held.total
    return adapters(model, plan.lora_rank, plan.lora_targets) / plan.tensor / plan.pipeline


def _fixed(model: Model, plan: Plan, held: Parameters) -> tuple[dict[str, float], float]:
    """What lies there throughout a step, and what offloading moves to the host."""
    state, master = states(plan)
    trained = _trained(model, plan, held)
    base = divided(plan, held, 3)
    weights = base * plan.weight
    if plan.bits:
        small = held.embedding + held.head + held.rest
        weights = (held.total - small) * plan.bits / 8 * QUANTIZED + small * (4 if plan.bits == 4 else 2)
    ratio = divided(plan, held, 1) / max(1.0, held.total)
    if plan.lora_rank:
        weights += trained * 4 * (base / max(1.0, held.total))
    optimizer, owned = trained * ratio * state, trained * ratio * master
    parts = {"weights": weights, "optimizer state": optimizer, "float32 copy": owned}
    host = 0.0
    if plan.offload_optimizer:
        host += optimizer + owned + trained * ratio * 4
        parts["optimizer state"] = parts["float32 copy"] = 0
    if plan.offload_parameters and plan.zero == 3:
        host += weights
        parts["weights"] = 0
    parts["communication"] = _communication(plan, held, trained)
    parts["gathered weights"] = _gathered(model, plan, held)
    if plan.cached_tokens:
        layers = model.layers / plan.pipeline
        parts["KV cache"] = 2 * plan.cached_tokens * layers * model.cached / (1 if model.kv_rank else plan.tensor)
    return {k: v for k, v in parts.items() if v}, host


def _communication(plan: Plan, held: Parameters, trained: float) -> float:
    """Buckets: DDP keeps a second copy of all gradients, DeepSpeed two buckets of a fixed size."""
    if plan.shards == 1:
        return 0.0
    if plan.zero == 0:
        return trained * plan.gradient if plan.precision != "master" else 0.0
    return 0.0 if plan.fsdp else 2 * min(BUCKET, held.total) * plan.compute


def _gathered(model: Model, plan: Plan, held: Parameters) -> float:
    """Weights that sharding puts together while they are used: the outer tables throughout, two layers at a time."""
    if plan.zero < 3 and not (plan.fsdp and plan.zero == 2):
        return 0.0
    if plan.shards == 1:
        return 0.0
    blocks = held.matrices + held.experts + held.rest
    layers = max(1.0, model.layers / plan.pipeline)
    at_once = blocks if plan.zero == 2 else min(blocks, 2 * blocks / layers)
    return (held.embedding + held.head + at_once) * plan.compute


def _gradients(model: Model, plan: Plan, held: Parameters) -> float:
    """All gradients once backward is over."""
    trained = _trained(model, plan, held)
    if plan.lora_rank:
        return trained * 4 * divided(plan, held, 2) / max(1.0, held.total)
    if plan.offload_optimizer and plan.zero >= 2:
        return 0.0
    return divided(plan, held, 2) * plan.gradient


def _update(model: Model, plan: Plan, held: Parameters) -> float:
    """Temporaries of the optimizer."""
    if plan.offload_optimizer:
        return 0.0
    trained = _trained(model, plan, held) * divided(plan, held, 1) / max(1.0, held.total)
    wide = 4 if plan.precision == "master" or plan.lora_rank else plan.weight
    if plan.optimizer == "adamw" and plan.update == "foreach":
        return trained * wide
    if plan.optimizer == "adamw" and plan.update == "loop":
        pair = held.experts * (2 / 3) / max(1.0, model.moe_layers / plan.pipeline)  # gate and up of one layer's experts
        largest = max(held.embedding, held.head, pair) * divided(plan, held, 1) / max(1.0, held.total)
        return 2 * min(trained, largest) * wide
    return 0.0


@dataclass(frozen=True, slots=True)
class _Work:
    """What a micro-batch keeps and needs on one stage, in bytes.

    stored: for all layers between forward and backward, `outer` of it for the last norm; layer: one layer's,
    computed again under checkpointing; loss: logits and what the loss makes of them; transient: gradients of
    activations in a layer; late: the share of gradients that come after the first layer's recomputation.
    """

    stored: float
    outer: float
    layer: float
    loss: float
    transient: float
    last_transient: float
    late: float
    first_gradient: float
    copies: float

    @classmethod
    def of(cls, model: Model, plan: Plan, held: Parameters, stage: int) -> _Work:
        tokens = plan.tokens
        wide = plan.residual
        last = stage == plan.pipeline - 1
        layers = -(-model.layers // plan.pipeline)
        of_moe = model.moe_layers / model.layers
        one = {moe: activations.layer(model, plan, moe) for moe in (False, True)}
        mean = one[True] * of_moe + one[False] * (1 - of_moe)
        most = one[True] if of_moe else one[False]
        kept, again = mean, 0.0
        if plan.checkpointing == "full":
            kept, again = wide * model.hidden / (plan.tensor if plan.sequence_parallel else 1), most
        elif plan.checkpointing == "selective":
            again = activations.recomputed(model, plan)
            kept = mean - again
        in_flight = min(plan.pipeline - stage, plan.accumulation) if plan.pipeline > 1 else 1
        outer = (3 if plan.copied else 2.5) * wide * model.hidden if last else 0.0
        copies = 2 * linear(model, held) if plan.copied else 0.0
        again_copies = copies if plan.checkpointing != "full" else 2 * (held.head or held.embedding) * plan.copied
        head = held.head or (held.embedding if model.tied and last else 0.0)
        return cls(
            stored=tokens * (kept * layers * in_flight + outer), outer=tokens * outer, layer=tokens * again,
            loss=_loss(model, plan, tokens) if last else 0.0,
            transient=tokens * _transient(model, plan), last_transient=_embedding_gradient(model, plan, held, stage),
            late=0.0 if plan.accumulation > 1 else _late(model, held, layers),
            first_gradient=0.0 if plan.lora_rank or plan.zero >= 2 else head * plan.gradient, copies=again_copies,
        )  # fmt: skip


def _loss(model: Model, plan: Plan, tokens: float) -> float:
    """Log-probabilities, their gradient and its copy, in float32 at once; a chunked loss holds a part of them."""
    each = 12 + (plan.compute if model.traits.get("logits_softcap") else 0)
    all_at_once = tokens * model.vocab * each / plan.tensor
    if plan.chunked_loss:
        return all_at_once / max(1.0, model.vocab / model.hidden)
    return all_at_once


def _transient(model: Model, plan: Plan) -> float:
    """Gradients of one layer's activations that live at once, per token.

    Two of the feed-forward's width come first; once they and what it kept are gone, eager attention needs two of its
    scores.
    """
    width = model.experts_per_token * model.expert_ffn + model.shared_ffn if model.moe_layers else model.ffn
    early = 2 * width * plan.compute / plan.tensor + model.hidden * plan.residual
    if plan.attention != "eager":
        return early
    return max(early, activations.score_gradients(model, plan) - activations.feed_forward(model, plan))


def _late(model: Model, held: Parameters, layers: int) -> float:
    table = 0.0 if model.tied else held.embedding
    return ((held.matrices + held.experts + held.rest) / layers + table) / max(1.0, held.total)


def _embedding_gradient(model: Model, plan: Plan, held: Parameters, stage: int) -> float:
    """A tied table gets a second gradient that is added to the first."""
    return held.embedding * plan.gradient if model.tied and stage == 0 and not plan.lora_rank else 0.0


def parameters_of(model: Model) -> float:
    """All parameters of a model."""
    return whole(model).total
