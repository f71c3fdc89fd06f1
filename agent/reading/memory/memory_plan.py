"""How a model is trained, as far as memory is concerned: layout, sharding, precision, optimizer, batch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ..settings.settings import Setting, Settings, read_settings
from .model_config import Model, tables

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# How many parameters a model has, by part; a device's share of them under a parallel layout.


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts. `matrices` are the weights of linear layers in the blocks without experts, `rest` norms and biases.

    `embedding` holds tokens and learned positions; `head` is 0 where it shares the embedding's table.
    """

    embedding: float
    head: float
    matrices: float
    experts: float
    rest: float

    @property
    def total(self) -> float:
        return self.embedding + self.head + self.matrices + self.experts + self.rest

    @property
    def dense(self) -> float:
        """All but experts."""
        return self.total - self.experts


def attention_matrices(m: Model) -> int:
    """Weights of the attention of one layer."""
    h = m.hidden
    if m.kv_rank:
        query = h * m.q_rank + m.q_rank * m.query if m.q_rank else h * m.query
        compressed = h * (m.kv_rank + m.rope_dim)
        return query + compressed + m.kv_rank * m.heads * (m.nope_dim + m.value_dim) + m.values * h
    return h * m.query + h * m.keys_values + m.values * h


def layer_rest(m: Model, moe: bool) -> int:
    """Norms and biases of one layer."""
    t, h = m.traits, m.hidden
    norms = t["norms"] * h * (2 if t["norm"] == "layer" else 1)
    if m.kv_rank:
        norms += m.q_rank + m.kv_rank
    if t["qk_norm"]:
        norms += m.query + m.keys_values // 2 if t.get("qk_norm_full") else 2 * m.head_dim
    biases = (m.query + m.keys_values if t["attention_bias"] else 0) + (h if t["output_bias"] else 0)
    if t["mlp_bias"] and not moe:
        biases += m.ffn * (m.gates - 1) + h
    return norms + biases


def whole(m: Model) -> Parameters:
    """Every parameter of the model."""
    h, dense = m.hidden, m.layers - m.moe_layers
    feed_forward = dense * m.gates * h * m.ffn
    routed = 0
    if m.moe_layers:
        routed = m.moe_layers * m.experts * m.gates * h * m.expert_ffn
        gate = h if m.traits.get("shared_gate") else 0
        feed_forward += m.moe_layers * (m.gates * h * m.shared_ffn + h * m.experts + gate)
    rest = dense * layer_rest(m, False) + m.moe_layers * layer_rest(m, True)
    rest += h * (2 if m.traits["norm"] == "layer" else 1)
    table = m.vocab * h
    matrices = m.layers * attention_matrices(m) + feed_forward
    return Parameters(table + m.positions * h, 0 if m.tied else table, matrices, routed, rest)


def adapters(m: Model, rank: int, targets: str) -> float:
    """Parameters of low-rank adapters: of queries and values (`attention`), or of every linear layer (`all`)."""
    h, half = m.hidden, m.keys_values // 2
    attention = rank * (h + m.query + h + half)
    if targets != "all":
        return m.layers * attention
    attention += rank * (h + half + m.values + h)
    width = m.ffn if not m.moe_layers else m.experts * m.expert_ffn + m.shared_ffn
    return m.layers * (attention + m.gates * rank * (h + width))


def share(m: Model, stage: int, pipeline: int, tensor: int, expert: int) -> Parameters:
    """What one device of a pipeline stage holds before any sharding over data-parallel ranks."""
    of_all = whole(m)
    part = -(-m.layers // pipeline) / m.layers
    first, last = stage == 0, stage == pipeline - 1
    head = of_all.head or (of_all.embedding if pipeline > 1 else 0)
    return Parameters(
        embedding=of_all.embedding / tensor if first else 0,
        head=(head / tensor if last else 0),
        matrices=of_all.matrices * part / tensor,
        experts=of_all.experts * part / expert,
        rest=of_all.rest * part,
    )


# ----------

Precision = Literal["fp32", "mixed", "bf16", "master"]
Checkpointing = Literal["none", "selective", "full"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything but the model.

    precision: `fp32`; `mixed`, float32 weights under autocast; `bf16`, all 16 bit and no copy in float32; `master`,
        16-bit weights beside a float32 copy that the optimizer owns (DeepSpeed, Megatron).
    zero: 0 to 3 as in DeepSpeed; with `fsdp`, 3 shards all, 2 keeps weights gathered between forward and backward.
    kernels: `eager`, one tensor for each operation, or `fused` norms and activations (Megatron, Liger).
    update: how the optimizer computes: `fused`, `foreach` (a copy as large as the weights), or a `loop`.
    bits: of frozen base weights under adapters; 0 where they have the type of `precision`.
    cached_tokens: tokens whose keys and values an inference engine on the same device keeps.
    """

    micro_batch: int = 1
    sequence: int = 2048
    accumulation: int = 1
    precision: Precision = "mixed"
    optimizer: str = "adamw"
    update: str = "fused"
    checkpointing: Checkpointing = "none"
    attention: str = "flash"
    kernels: str = "eager"
    chunked_loss: bool = False
    gradients_in_fp32: bool = False
    world: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    sequence_parallel: bool = False
    zero: int = 0
    fsdp: bool = False
    offload_optimizer: bool = False
    offload_parameters: bool = False
    lora_rank: int = 0
    lora_targets: str = "attention"
    bits: int = 0
    cached_tokens: int = 0

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch that one device works on."""
        return self.micro_batch * self.sequence / self.context

    @property
    def shards(self) -> int:
        """Ranks that hold the same parameters, over which ZeRO and FSDP divide."""
        return max(1, self.world // (self.tensor * self.pipeline))

    @property
    def compute(self) -> int:
        """Bytes of a number in matrix products and activations."""
        return 4 if self.precision == "fp32" else 2

    @property
    def weight(self) -> int:
        """Bytes of a weight as the model holds it; a frozen base under adapters is loaded in 16 bit."""
        if self.lora_rank and self.precision != "fp32":
            return 2
        return 2 if self.precision in ("bf16", "master") else 4

    @property
    def gradient(self) -> int:
        """Bytes of a gradient as it is accumulated."""
        return 4 if self.precision in ("fp32", "mixed") or self.gradients_in_fp32 else 2

    @property
    def copied(self) -> bool:
        """Whether autocast makes 16-bit copies of float32 weights in each step.

        FSDP and ZeRO-3 gather weights in 16 bit instead, so that what flows between layers is 16 bit too.
        """
        return self.precision == "mixed" and self.zero < 3 and not self.fsdp and not self.lora_rank

    @property
    def residual(self) -> int:
        """Bytes of a number between layers."""
        return 4 if self.precision == "fp32" or self.copied else self.compute


def states(plan: Plan) -> tuple[float, float, float]:
    """Bytes per optimized parameter: of the optimizer's state, of the float32 copy it owns, of what it updates."""
    row = tables()["optimizers"][plan.optimizer]
    master = 4.0 if plan.precision == "master" else 0.0
    wide = 4.0 if master or plan.lora_rank else float(plan.weight)
    return row["states"] * (wide if row["bytes"] == "weight" else float(row["bytes"])), master, wide


def divided(plan: Plan, parameters: Parameters, stage: int) -> float:
    """Parameters of one device once sharding divides them: stage 1 the optimizer, 2 gradients, 3 weights."""
    if plan.zero < stage:
        return parameters.total
    experts = max(1, plan.shards // plan.expert)
    return parameters.dense / plan.shards + parameters.experts / experts


def linear(model: Model, parameters: Parameters) -> float:
    """Weights that enter matrix products: what autocast copies."""
    table = parameters.head or parameters.embedding - model.positions * model.hidden
    return parameters.matrices + parameters.experts + max(0.0, table)


# ----------
# The plan of a run as its own settings give it; what they leave open takes a default that is told.
#
# read = plan_of(workspace)
# read.plan                the plan
# read.given               canonical setting -> the Setting that decided, for citations
# read.assumed             what no file says, in words

COUNTS = {
    "micro_batch": "micro_batch_size", "sequence": "sequence_length", "accumulation": "gradient_accumulation_steps",
    "tensor": "tensor_parallel", "pipeline": "pipeline_parallel", "context": "context_parallel",
    "expert": "expert_parallel", "zero": "zero_stage", "lora_rank": "lora_rank",
}  # fmt: skip
OFF = re.compile(r"^(?:false|none|no|0|off|disabled|null|)$", re.IGNORECASE)
ADAPTERS = re.compile(r"lora|dora|adalora", re.IGNORECASE)
UNSHARDED = "weights and optimizer on every rank"
OWN_COPY = {"deepspeed", "megatron", "slime", "nemo"}  # frameworks whose 16-bit training owns a float32 copy


@dataclass(slots=True)
class Read:
    """A plan with its sources."""

    plan: Plan
    given: dict[str, Setting] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)

    def on(self, name: str) -> bool:
        """Whether a setting is there and not switched off."""
        return name in self.given and not OFF.match(str(self.given[name].value))

    def text(self, name: str) -> str:
        """A setting as it is written, in small letters; empty where it is not there."""
        return str(self.given[name].value).lower() if name in self.given else ""

    def count(self, name: str) -> int | None:
        """A setting that is a whole number; None for anything else."""
        value = self.given[name].value if name in self.given else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def plan_of(ws: Workspace) -> Read:
    """The plan that the run's settings describe."""
    settings = read_settings(ws)
    read = Read(Plan())
    for name in (*COUNTS.values(), *_OTHERS):
        if setting := _one(settings, name):
            read.given[name] = setting
    changes: dict[str, Any] = {}
    for name, canonical in COUNTS.items():
        value = read.given[canonical].value if canonical in read.given else None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 24:
            changes[name] = int(value) if name in ("zero", "lora_rank") else max(1, int(value))
    if (most := read.count("max_tokens_per_gpu")) is not None:
        changes |= {"micro_batch": 1, "sequence": max(1, min(most, 1 << 24))}  # batches are packed up to so many tokens
    for name, unit in (("micro_batch", "micro-batch 1"), ("sequence", "2048 tokens")):
        if name not in changes:
            read.assumed.append(unit)
    changes |= _sharding(read, settings) | _numbers(read, settings) | _work(read, settings)
    changes |= _adapters(read, changes.get("lora_rank", 0))
    changes["world"] = _world(read, changes)
    read.plan = replace(read.plan, **changes)
    if read.plan.shards == 1 and UNSHARDED in read.assumed:
        read.assumed.remove(UNSHARDED)
    return read


_OTHERS = (
    "precision", "optimizer", "activation_checkpointing", "attention_implementation", "flash_attention",
    "chunked_loss", "offload_optimizer", "offload_parameters", "fsdp", "fsdp_sharding", "quantization",
    "lora_target_modules", "training_type", "use_peft", "world_size", "processes_per_node", "nodes",
    "sequence_parallel", "data_parallel", "strategy", "max_tokens_per_gpu",
)  # fmt: skip


def _one(settings: Settings, name: str) -> Setting | None:
    """The setting that holds: what was printed before what was asked; none where files contradict each other."""
    for found in (settings.used(name), settings.asked(name)):
        own = [s for s in found if not s.file.good and s.value not in ("auto", None)]
        if own:
            return own[-1] if len({repr(s.value) for s in own}) == 1 else None
    return None


def _sharding(read: Read, settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if read.on("fsdp") and "zero_stage" not in read.given:
        how = read.text("fsdp_sharding" if "fsdp_sharding" in read.given else "fsdp")
        found |= {"fsdp": True, "zero": 2 if re.search(r"grad_op|shard_grad|^2$|^false$", how) else 3}
        if re.search(r"no_shard|ddp", how):
            found["zero"] = 0
    elif "zero_stage" not in read.given:
        found |= _strategy(read, settings)
    found["offload_optimizer"] = read.on("offload_optimizer")
    found["offload_parameters"] = read.on("offload_parameters")
    if "megatron" in settings.frameworks and _one(settings, "distributed_optimizer"):
        found["zero"] = 1
    return found


def _strategy(read: Read, settings: Settings) -> dict[str, Any]:
    """Sharding by the strategy's name, as Lightning, NeMo and verl give it; torchtitan shards unless told otherwise."""
    value = read.text("strategy")
    if stage := re.search(r"(?:stage|zero)[_ -]?([123])", value):
        return {"zero": int(stage[1])}
    if "fsdp" in value or (not value and "torchtitan" in settings.frameworks):
        return {"zero": 3, "fsdp": True}
    if "ddp" not in value and not settings.frameworks & {"megatron"}:
        read.assumed.append(UNSHARDED)
    return {}


def _numbers(read: Read, settings: Settings) -> dict[str, Any]:
    """Precision and optimizer."""
    found: dict[str, Any] = {}
    value = read.text("precision")
    owns = bool(settings.frameworks & OWN_COPY)
    if not value:
        read.assumed.append("bf16 under autocast")
    elif value in ("fp32", "float32", "32", "no", "32-true", "tf32"):
        found["precision"] = "fp32"
    elif "true" in value or "pure" in value:
        found["precision"] = "bf16"
    if owns and found.get("precision") != "fp32" and (value or "megatron" not in settings.frameworks):
        found["precision"] = "master"
    if "megatron" in settings.frameworks:
        found |= {"gradients_in_fp32": True, "kernels": "fused"}
    name = read.text("optimizer")
    found["optimizer"] = next((k for k, p in tables()["optimizer_names"] if re.search(p, name, re.I)), "adamw")
    if not name:
        read.assumed.append("AdamW")
    return found


def _work(read: Read, settings: Settings) -> dict[str, Any]:
    """What the forward pass keeps."""
    found: dict[str, Any] = {}
    value = read.text("activation_checkpointing")
    if "select" in value or value == "op":
        found["checkpointing"] = "selective"
    elif value and not OFF.match(value):
        found["checkpointing"] = "full"
    if read.text("attention_implementation") in ("eager", "local", "unfused"):
        found["attention"] = "eager"
    found["chunked_loss"] = read.on("chunked_loss")
    found["sequence_parallel"] = read.on("sequence_parallel")
    return found


def _adapters(read: Read, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    kind = "training_type" in read.given
    if kind and not ADAPTERS.search(read.text("training_type")):
        return {"lora_rank": 0}
    if kind or read.on("use_peft"):
        found["lora_rank"] = rank or 16
    elif rank:
        found["lora_rank"] = rank
    targets = read.given.get("lora_target_modules")
    value = targets.value if targets else []
    if "all" in str(value) or (isinstance(value, list) and len(value) > 4):
        found["lora_targets"] = "all"
    if found.get("lora_rank") and "quantization" in read.given:
        found["bits"] = {"4": 4, "8": 8}.get(re.sub(r"\D", "", read.text("quantization"))[:1], 0)
    return found


def _world(read: Read, changes: dict[str, Any]) -> int:
    """Ranks of the run, at least those that the model's layout needs."""
    value = read.count("world_size")
    if value is None and (local := read.count("processes_per_node")) is not None:
        nodes = read.count("nodes")
        value = local * (nodes if nodes is not None else 1)
    needed = changes.get("tensor", 1) * changes.get("pipeline", 1) * changes.get("context", 1)
    if value is None or value < 1:
        value = needed * max(1, read.count("data_parallel") or 1)
        if changes.get("zero") and value == needed:
            read.assumed.append(f"{value} rank(s): how many there are is not among the files")
    return max(needed, value // needed * needed)
