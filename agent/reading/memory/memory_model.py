"""The peak of a training step: what lies in memory at each of its moments, by component.

    estimate = of(model, plan)
    estimate.peak.total, estimate.peak.parts      bytes of one device at the fullest moment
    estimate.moments                              the loss, a layer's backward, the end of backward, the update

Moments are told apart because they hold different things: logits and stored activations meet at the loss, gradients
and the optimizer's temporaries at the update. A step needs the largest of them, not their sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.playbook import quantity
from .memory_plan import Parameters, Plan, adapters, divided, linear, plan_of, share, states, whole
from .model_config import Described, Model, models_of, tables

if TYPE_CHECKING:
    from ..run.workspace import Workspace

# ----------
# What the backward pass keeps of one layer, in bytes per token, as PyTorch's autograd saves it.
#
# Counted from the operations of Hugging Face's modules and checked against what they allocate
# (`benchmarks/memory_estimate.py`): a norm in float32 keeps its input and its normalised value, attention keeps
# queries, keys, values, output and one number per head, a gated feed-forward keeps four tensors of its width. Linear
# layers under autocast copy their input once each, because only weights are cached. Fused kernels keep inputs alone.


def layer(m: Model, plan: Plan, moe: bool) -> float:
    """Bytes per token kept by one layer on one device, without checkpointing.

    Args:
        moe: the layer's feed-forward is made of experts.
    """
    t = plan.tensor
    along = t if plan.sequence_parallel else 1
    feed = _experts(m, plan) if moe else _feed_forward(m, plan, m.ffn)
    return _norms(m, plan) / along + _projections(m, plan, moe) / along + (_attention(m, plan) + feed) / t


def _norms(m: Model, plan: Plan) -> float:
    """Inputs and normalised values of norms; what they hand to linear layers counts in `_projections`."""
    t, h, d = m.traits, m.hidden, plan.compute
    wide = plan.residual
    if plan.kernels == "fused":
        return t["norms"] * h * wide
    if t["norm"] == "layer":
        return t["norms"] * (h * wide + 8)
    kept = 4 + (0 if plan.lora_rank else 4 if t["norm"] == "rms_plus_one" else wide)
    each = (t["norms"] * h + (m.query + m.keys_values // 2 if t["qk_norm"] else 0)) * kept + t["norms"] * 4
    return each + ((m.q_rank + m.kv_rank) * (kept + d) if m.kv_rank else 0)


def _projections(m: Model, plan: Plan, moe: bool) -> float:
    """Inputs of the linear layers that come from norms: the norm's output, or autocast's copies of it."""
    h, d = m.hidden, plan.compute
    if plan.lora_rank:
        return _adapted(m, plan)
    fused = bool(m.traits["fused_inputs"]) or plan.kernels == "fused"
    if not plan.copied or plan.kernels == "fused":
        return 2 * h * d
    return (1 if fused else 3) * h * d + (1 if fused or moe else m.gates - 1) * h * d


def _adapted(m: Model, plan: Plan) -> float:
    """Inputs of adapters: the base is frozen and keeps none; adapters in float32 copy their input each."""
    h = m.hidden
    everything = plan.lora_targets == "all"
    modules = 2 + (2 + m.gates if everything else 0)
    shared = plan.precision == "fp32"
    if everything:
        width = 2 * h + m.ffn if shared else (2 + m.gates) * h + m.values + m.ffn
    else:
        width = h if shared else 2 * h
    each = plan.compute if plan.precision in ("fp32", "mixed") else 4
    return width * each + modules * plan.lora_rank * each


def _attention(m: Model, plan: Plan) -> float:
    d = plan.compute
    per_token = m.query + m.keys_values + m.values + m.traits["attention_extra"] * m.hidden
    if plan.attention != "eager":
        return per_token * d + 4 * m.heads
    groups = m.heads // max(1, m.kv_heads)
    repeated = (m.keys_values * (groups - 1)) if groups > 1 else 0
    return (per_token + repeated) * d + _scores(m, plan)


def _scores(m: Model, plan: Plan) -> float:
    """Scores of eager attention: the softmax, its 16-bit copy where there is one, and the cap's result."""
    d, length = plan.compute, plan.sequence / plan.context
    upcast = m.traits["upcast"] or plan.precision == "mixed"
    each = d + (4 if upcast and d < 4 else 0) + (d if m.traits["softcap"] else 0)
    return m.heads * length * each


def _feed_forward(m: Model, plan: Plan, width: int) -> float:
    copies = m.traits["activation_copies"]
    if plan.kernels == "fused":
        copies = 3 if m.traits["gated"] else 2
    if plan.lora_rank and plan.kernels != "fused":
        copies = max(1, copies - 1)
    return copies * width * plan.compute


def _experts(m: Model, plan: Plan) -> float:
    """Each token visits some experts: its copies, their width, and the result that is weighted; the shared one."""
    routed = m.experts_per_token * (2 * m.hidden * plan.compute + _feed_forward(m, plan, m.expert_ffn))
    router = m.experts * 12 + m.experts_per_token * 24
    return routed + router + (_feed_forward(m, plan, m.shared_ffn) if m.shared_ffn else 0)


# ----------

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
    made = [_Stage(model, plan, stage).estimate() for stage in sorted({0, plan.pipeline - 1})]
    return max(made, key=lambda e: e.peak.total)


class _Stage:
    """One device of a pipeline stage: what it holds, and what a step needs there, in bytes.

    `trained` are parameters that the optimizer sees. `kept` is what is left of each to one rank once sharding divides
    the optimizer (1), gradients (2) and weights (3).
    """

    def __init__(self, model: Model, plan: Plan, stage: int) -> None:
        self.model, self.plan, self.stage = model, plan, stage
        self.first, self.last = stage == 0, stage == plan.pipeline - 1
        self.held = share(model, stage, plan.pipeline, plan.tensor, plan.expert)
        self.blocks = self.held.matrices + self.held.experts + self.held.rest
        self.trained = self.held.total
        if plan.lora_rank:
            self.trained = adapters(model, plan.lora_rank, plan.lora_targets) / plan.tensor / plan.pipeline
        whole_of_it = max(1.0, self.held.total)
        self.kept = {at: divided(plan, self.held, at) / whole_of_it for at in (1, 2, 3)}
        self.state, self.master, self.wide = states(plan)

    def estimate(self) -> Estimate:
        """The moments of a step here."""
        plan, held = self.plan, self.held
        fixed, host = self.fixed()
        stored, outer, again = self.activations()
        grads, transient = self.gradients(), plan.tokens * self.transient()
        copies = 2 * linear(self.model, held) if plan.copied else 0.0
        if plan.checkpointing == "full":
            copies = 2 * (held.head or held.embedding) * plan.copied
        one, early, late, tied = 0.0, {}, 0.0, 0.0  # gradients of the outer table, of former micro-batches, of the rest
        if plan.accumulation > 1:
            early = {"gradients": grads}
        else:
            table = 0.0 if self.model.tied else held.embedding
            late = (self.blocks / -(-self.model.layers // plan.pipeline) + table) / max(1.0, held.total)
            head = held.head or (held.embedding if self.model.tied and self.last else 0.0)
            one = 0.0 if plan.lora_rank or plan.zero >= 2 else head * plan.gradient
        if self.model.tied and self.first and not plan.lora_rank:
            tied = held.embedding * plan.gradient  # a second gradient of the table, which is added to the first
        moments = (
            _moment("loss", fixed, early, activations=stored, logits=self.loss(), weight_copies=copies),
            _moment("backward of a layer", fixed, early, activations=stored - outer + again, workspace=transient,
                    gradients=one, weight_copies=copies),
            _moment("backward of the first layer", fixed, gradients=grads * (1 - late), activations=again,
                    workspace=transient),
            _moment("end of backward", fixed, gradients=grads, workspace=tied),
            _moment("update", fixed, gradients=grads, workspace=self.update()),
        )  # fmt: skip
        return Estimate(self.model, plan, held, moments, host)

    def fixed(self) -> tuple[dict[str, float], float]:
        """What lies there throughout a step, and what offloading moves to the host."""
        plan, held = self.plan, self.held
        weights = divided(plan, held, 3) * plan.weight
        if plan.bits:
            small = held.embedding + held.head + held.rest
            weights = (held.total - small) * plan.bits / 8 * QUANTIZED + small * (4 if plan.bits == 4 else 2)
        if plan.lora_rank:
            weights += self.trained * 4 * self.kept[3]
        optimized, host = self.trained * self.kept[1], 0.0
        parts = {"weights": weights, "optimizer state": optimized * self.state, "float32 copy": optimized * self.master}
        if plan.offload_optimizer:
            host += parts["optimizer state"] + parts["float32 copy"] + optimized * 4
            parts["optimizer state"] = parts["float32 copy"] = 0
        if plan.offload_parameters and plan.zero == 3:
            host += weights
            parts["weights"] = 0
        if plan.shards > 1:
            parts |= self.exchanged()
        if plan.cached_tokens:
            layers, ranks = self.model.layers / plan.pipeline, 1 if self.model.kv_rank else plan.tensor
            parts["KV cache"] = 2 * plan.cached_tokens * layers * self.model.cached / ranks
        return parts, host

    def exchanged(self) -> dict[str, float]:
        """What data-parallel ranks exchange.

        DDP keeps a second copy of all gradients, DeepSpeed two buckets of a fixed size. Sharding puts weights together
        while they are used: the outer tables throughout, two layers at a time.
        """
        plan, held, buckets, gathered = self.plan, self.held, 0.0, 0.0
        if plan.zero == 0:
            buckets = self.trained * plan.gradient if plan.precision != "master" else 0.0
        elif not plan.fsdp:
            buckets = 2 * min(BUCKET, held.total) * plan.compute
        if plan.zero == 3 or (plan.fsdp and plan.zero == 2):
            two = 2 * self.blocks / max(1.0, self.model.layers / plan.pipeline)
            at_once = self.blocks if plan.zero == 2 else min(self.blocks, two)
            gathered = (held.embedding + held.head + at_once) * plan.compute
        return {"communication": buckets, "gathered weights": gathered}

    def gradients(self) -> float:
        """All gradients once backward is over."""
        if self.plan.lora_rank:
            return self.trained * 4 * self.kept[2]
        if self.plan.offload_optimizer and self.plan.zero >= 2:
            return 0.0
        return divided(self.plan, self.held, 2) * self.plan.gradient

    def update(self) -> float:
        """Temporaries of the optimizer."""
        plan, held, trained = self.plan, self.held, self.trained * self.kept[1]
        if plan.offload_optimizer or plan.optimizer != "adamw" or plan.update == "fused":
            return 0.0
        if plan.update == "foreach":
            return trained * self.wide
        pair = held.experts * (2 / 3) / max(1.0, self.model.moe_layers / plan.pipeline)  # gate and up of one layer
        return 2 * min(trained, max(held.embedding, held.head, pair) * self.kept[1]) * self.wide

    def activations(self) -> tuple[float, float, float]:
        """All that is stored between forward and backward, the last norm's part of it, and one layer's, made again."""
        m, plan = self.model, self.plan
        of_moe = m.moe_layers / m.layers
        one = {moe: layer(m, plan, moe) for moe in (False, True)}
        kept, again = one[True] * of_moe + one[False] * (1 - of_moe), 0.0
        if plan.checkpointing == "full":
            again = one[bool(of_moe)]
            kept = plan.residual * m.hidden / (plan.tensor if plan.sequence_parallel else 1)
        elif plan.checkpointing == "selective" and plan.attention == "eager":
            again = _scores(m, plan) / plan.tensor
            kept -= again
        in_flight = min(plan.pipeline - self.stage, plan.accumulation) if plan.pipeline > 1 else 1
        outer = (3 if plan.copied else 2.5) * plan.residual * m.hidden if self.last else 0.0
        layers = -(-m.layers // plan.pipeline)
        return plan.tokens * (kept * layers * in_flight + outer), plan.tokens * outer, plan.tokens * again

    def loss(self) -> float:
        """Log-probabilities, their gradient and its copy, in float32 at once; a chunked loss holds a part of them."""
        m, plan = self.model, self.plan
        each = 12 + (plan.compute if m.traits.get("logits_softcap") else 0)
        all_at_once = plan.tokens * m.vocab * each / plan.tensor if self.last else 0.0
        return all_at_once / max(1.0, m.vocab / m.hidden) if plan.chunked_loss else all_at_once

    def transient(self) -> float:
        """Gradients of one layer's activations that live at once, per token.

        Two of the feed-forward's width come first; once they and what it kept are gone, eager attention needs two of
        its scores in float32.
        """
        m, plan = self.model, self.plan
        width = m.experts_per_token * m.expert_ffn + m.shared_ffn if m.moe_layers else m.ffn
        early = 2 * width * plan.compute / plan.tensor + m.hidden * plan.residual
        if plan.attention != "eager":
            return early
        feed = _experts(m, plan) if m.moe_layers else _feed_forward(m, plan, m.ffn)
        return max(early, 8 * m.heads * plan.sequence / plan.context / plan.tensor - feed / plan.tensor)


def _moment(name: str, *held: dict[str, float], **more: float) -> Moment:
    parts: dict[str, float] = {}
    for some in (*held, {k.replace("_", " "): v for k, v in more.items()}):
        for part, size in some.items():
            parts[part] = parts.get(part, 0.0) + size
    return Moment(name, {k: v for k, v in parts.items() if v >= 1})


def parameters_of(model: Model) -> float:
    """All parameters of a model."""
    return whole(model).total


# ----------
# Whether a step fits: what is needed on top of its tensors, and how near that comes to the device.

MARGIN = 0.15  # share of the device within which the answer is "tight"


def overhead(estimate: Estimate) -> float:
    """Bytes of context, communicators and the allocator's rounding."""
    row = tables()["overhead"]
    fixed = float(quantity(row["context"]))
    if estimate.plan.world > 1:
        fixed += float(quantity(row["communicators"]))
    return fixed + row["rounding"] * estimate.peak.total


def needed(estimate: Estimate) -> float:
    """Bytes of a device that the step takes in all."""
    return estimate.peak.total + overhead(estimate)


def fits(estimate: Estimate, capacity: float) -> str:
    """`yes`, `tight` or `no`.

    Args:
        capacity: bytes of the device.
    """
    ratio = needed(estimate) / max(1.0, capacity)
    return "no" if ratio > 1 + MARGIN else "tight" if ratio > 1 - MARGIN / 2 else "yes"


def fits_in_words(estimate: Estimate, capacity: float) -> str:
    """Such as `is tight in 79.1 GiB`."""
    words = {"yes": "fits", "tight": "is tight", "no": "does not fit"}[fits(estimate, capacity)]
    return f"{words} in {gib(capacity)}"


def gib(size: float) -> str:
    """Bytes as people name them."""
    return f"{size / (1 << 30):.1f} GiB"


def largest(described: Iterable[Described]) -> Described | None:
    """The description of the model with the most parameters."""
    return max(described, key=lambda d: parameters_of(d.model), default=None)


def as_it_would_be(ws: Workspace, then: Workspace) -> tuple[Estimate, Estimate] | None:
    """The estimate of a step as the run is and as it would be, for the largest model; None where none is described.

    Raises:
        ValueError: sizes that cannot be, such as more stages than layers.
    """
    described = largest(models_of(ws))
    return (of(described.model, plan_of(ws).plan), of(described.model, plan_of(then).plan)) if described else None
