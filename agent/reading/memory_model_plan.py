"""How a model is trained, as far as memory is concerned: layout, sharding, precision, optimizer, batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .memory_model_parameters import Parameters
from .model_config import Model, tables

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


def states(plan: Plan) -> tuple[float, float]:
    """Bytes per optimized parameter: of the optimizer's state, and of the float32 copy it owns."""
    row = tables()["optimizers"][plan.optimizer]
    master = 4.0 if plan.precision == "master" else 0.0
    wide = 4.0 if plan.precision == "master" or plan.lora_rank else float(plan.weight)
    return row["states"] * (wide if row["bytes"] == "weight" else float(row["bytes"])), master


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
