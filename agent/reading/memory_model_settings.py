"""The plan of a run as its own settings give it; what they leave open takes a default that is told.

read = plan_of(workspace)
read.plan                the plan
read.given               canonical setting -> the Setting that decided, for citations
read.assumed             what no file says, in words
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .memory_model_plan import Plan
from .model_config import tables
from .settings import Setting, Settings, read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

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
        setting = self.given.get(name)
        return setting is not None and not OFF.match(str(setting.value))


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
    if "max_tokens_per_gpu" in read.given and isinstance(most := read.given["max_tokens_per_gpu"].value, int):
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
        how = str(read.given["fsdp_sharding"].value) if "fsdp_sharding" in read.given else str(read.given["fsdp"].value)
        found["fsdp"] = True
        if re.search(r"no_shard|ddp", how, re.IGNORECASE):
            found["zero"] = 0
        else:
            found["zero"] = 2 if re.search(r"grad_op|shard_grad|^2$|^false$", how, re.IGNORECASE) else 3
    elif "zero_stage" not in read.given:
        found |= _strategy(read, settings)
    found["offload_optimizer"] = read.on("offload_optimizer")
    found["offload_parameters"] = read.on("offload_parameters")
    if "megatron" in settings.frameworks and _one(settings, "distributed_optimizer"):
        found["zero"] = 1
    return found


def _strategy(read: Read, settings: Settings) -> dict[str, Any]:
    """Sharding by the strategy's name, as Lightning, NeMo and verl give it; torchtitan shards unless told otherwise."""
    value = str(read.given["strategy"].value).lower() if "strategy" in read.given else ""
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
    value = str(read.given["precision"].value).lower() if "precision" in read.given else ""
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
    name = str(read.given["optimizer"].value) if "optimizer" in read.given else ""
    found["optimizer"] = next((k for k, p in tables()["optimizer_names"] if re.search(p, name, re.I)), "adamw")
    if not name:
        read.assumed.append("AdamW")
    return found


def _work(read: Read, settings: Settings) -> dict[str, Any]:
    """What the forward pass keeps."""
    found: dict[str, Any] = {}
    value = str(read.given["activation_checkpointing"].value) if "activation_checkpointing" in read.given else ""
    if "select" in value.lower() or value.lower() == "op":
        found["checkpointing"] = "selective"
    elif value and not OFF.match(value):
        found["checkpointing"] = "full"
    attention = read.given.get("attention_implementation")
    if attention and str(attention.value).lower() in ("eager", "local", "unfused"):
        found["attention"] = "eager"
    found["chunked_loss"] = read.on("chunked_loss")
    found["sequence_parallel"] = read.on("sequence_parallel")
    return found


def _adapters(read: Read, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    kind = read.given.get("training_type")
    if kind is not None and not ADAPTERS.search(str(kind.value)):
        return {"lora_rank": 0}
    if kind is not None or read.on("use_peft"):
        found["lora_rank"] = rank or 16
    elif rank:
        found["lora_rank"] = rank
    targets = read.given.get("lora_target_modules")
    value = targets.value if targets else []
    if "all" in str(value) or (isinstance(value, list) and len(value) > 4):
        found["lora_targets"] = "all"
    if found.get("lora_rank") and "quantization" in read.given:
        found["bits"] = {"4": 4, "8": 8}.get(re.sub(r"\D", "", str(read.given["quantization"].value))[:1], 0)
    return found


def _world(read: Read, changes: dict[str, Any]) -> int:
    """Ranks of the run, at least those that the model's layout needs."""
    value: Any = read.given["world_size"].value if "world_size" in read.given else None
    if not isinstance(value, int):
        local, nodes = (read.given.get(n) for n in ("processes_per_node", "nodes"))
        value = local.value * (nodes.value if nodes and isinstance(nodes.value, int) else 1) if (
            local and isinstance(local.value, int)
        ) else None  # fmt: skip
    needed = changes.get("tensor", 1) * changes.get("pipeline", 1) * changes.get("context", 1)
    data = read.given.get("data_parallel")
    if not isinstance(value, int) or value < 1:
        value = needed * (data.value if data and isinstance(data.value, int) and data.value > 0 else 1)
        if changes.get("zero") and value == needed:
            read.assumed.append(f"{value} rank(s): how many there are is not among the files")
    return max(needed, value // needed * needed)
