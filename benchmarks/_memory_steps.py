"""Training steps whose memory is measured: the cases, the models they build, and the bytes alive while they run."""

from __future__ import annotations

import contextlib
import weakref
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from traindoctor.agent.reading.memory.memory_plan import Plan
from transformers import AutoConfig, AutoModelForCausalLM

SMALL = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6, "num_attention_heads": 8,
         "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 8000}  # fmt: skip
EXPERTS = {**SMALL, "num_local_experts": 8, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 704,
           "num_hidden_layers": 4}  # fmt: skip
MIXTRAL = {**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 4}
GPT2 = {"n_layer": 6, "n_embd": 512, "n_head": 8, "vocab_size": 8000, "n_positions": 2048, "attn_pdrop": 0.0,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0}  # fmt: skip
LLAMA_1B = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "tie_word_embeddings": True}  # fmt: skip
LLAMA_8B = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "vocab_size": 128256}  # fmt: skip
QWEN_4B = {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
           "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True}  # fmt: skip
MISTRAL_7B = {"num_hidden_layers": 32}
GEMMA_2B = {"head_dim": 256}
DEEPSEEK = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "q_lora_rank": 192,
            "kv_lora_rank": 128, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 48,
            "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1,
            "num_experts_per_tok": 2, "moe_intermediate_size": 704, "intermediate_size": 1408,
            "vocab_size": 8000}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One training step to measure: a model's configuration and how it is trained."""

    name: str
    family: str
    config: dict[str, Any] = field(hash=False)
    plan: Plan
    fake: bool = False
    lora: tuple[str, ...] = ()


def plan(**changes: Any) -> Plan:
    """The usual small step, with changes; the optimizer loops over parameters as it does on the CPU."""
    return replace(Plan(micro_batch=2, sequence=512, update="loop"), **changes)


def cases() -> list[Case]:
    """Every case."""
    big = {"micro_batch": 1, "sequence": 2048}
    return [
        Case("llama 25M fp32", "llama", SMALL, plan(precision="fp32")),
        Case("llama 25M autocast", "llama", SMALL, plan()),
        Case("llama 25M bf16", "llama", SMALL, plan(precision="bf16")),
        Case("llama 25M bf16, 2048 tokens", "llama", SMALL, plan(precision="bf16", sequence=2048, micro_batch=1)),
        Case("llama 25M bf16, 128 tokens", "llama", SMALL, plan(precision="bf16", sequence=128, micro_batch=1)),
        Case("llama 25M autocast, eager", "llama", SMALL, plan(attention="eager")),
        Case("llama 25M bf16, eager, 1024", "llama", SMALL, plan(precision="bf16", attention="eager", sequence=1024)),
        Case("llama 25M autocast, checkpointed", "llama", SMALL, plan(checkpointing="full")),
        Case("llama 25M bf16, checkpointed", "llama", SMALL, plan(precision="bf16", checkpointing="full")),
        Case("llama 25M bf16, checkpointed, 4096", "llama", {**SMALL, "vocab_size": 1000},
             plan(precision="bf16", checkpointing="full", sequence=4096)),
        Case("llama 25M fp32, checkpointed, eager", "llama", {**SMALL, "vocab_size": 1000},
             plan(precision="fp32", checkpointing="full", attention="eager", sequence=1024)),
        Case("llama 25M autocast, SGD", "llama", SMALL, plan(optimizer="sgd")),
        Case("llama 25M autocast, momentum", "llama", SMALL, plan(optimizer="momentum")),
        Case("llama 25M autocast, AdamW foreach", "llama", SMALL, plan(update="foreach", sequence=64)),
        Case("llama 25M autocast, accumulation 2", "llama", SMALL, plan(accumulation=2)),
        Case("llama 25M fp32, LoRA q v", "llama", SMALL, plan(precision="fp32", lora_rank=8),
             lora=("q_proj", "v_proj")),
        Case("llama 25M autocast, LoRA q v", "llama", SMALL, plan(lora_rank=8), lora=("q_proj", "v_proj")),
        Case("llama 25M autocast, LoRA all", "llama", SMALL, plan(lora_rank=8, lora_targets="all"),
             lora=("all-linear",)),
        Case("gpt2 fp32", "gpt2", GPT2, plan(precision="fp32")),
        Case("gpt2 autocast", "gpt2", GPT2, plan()),
        Case("gpt2 autocast, eager, checkpointed", "gpt2", GPT2, plan(attention="eager", checkpointing="full")),
        Case("gpt2 124M autocast, 1024", "gpt2", {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
             plan(sequence=1024), fake=True),
        Case("qwen2 25M autocast", "qwen2", SMALL, plan()),
        Case("qwen3 25M bf16", "qwen3", SMALL, plan(precision="bf16")),
        Case("gemma2 25M bf16, eager", "gemma2", {**SMALL, "sliding_window": 4096},
             plan(precision="bf16", attention="eager")),
        Case("gpt-neox fp32", "gpt_neox", {"num_hidden_layers": 6, "hidden_size": 512, "intermediate_size": 2048,
             "num_attention_heads": 8, "vocab_size": 8000}, plan(precision="fp32")),
        Case("mixtral 8x bf16", "mixtral", MIXTRAL, plan(precision="bf16")),
        Case("mixtral 8x fp32", "mixtral", MIXTRAL, plan(precision="fp32")),
        Case("qwen3-moe 8x bf16, checkpointed", "qwen3_moe", EXPERTS, plan(precision="bf16", checkpointing="full")),
        Case("qwen2-moe 8x bf16", "qwen2_moe", {**EXPERTS, "shared_expert_intermediate_size": 704},
             plan(precision="bf16")),
        Case("deepseek-v3 8x bf16", "deepseek_v3", DEEPSEEK, plan(precision="bf16")),
        Case("Llama 1B autocast", "llama", LLAMA_1B, plan(**big), fake=True),
        Case("Llama 1B bf16, checkpointed", "llama", LLAMA_1B,
             plan(micro_batch=4, sequence=2048, precision="bf16", checkpointing="full"), fake=True),
        Case("Qwen 4B bf16, 4096 tokens", "qwen3", QWEN_4B,
             plan(micro_batch=1, sequence=4096, precision="bf16"), fake=True),
        Case("Llama 8B autocast, checkpointed", "llama", LLAMA_8B, plan(**big, checkpointing="full"), fake=True),
        Case("Llama 8B bf16, SGD, 8192 tokens", "llama", LLAMA_8B,
             plan(micro_batch=1, sequence=8192, precision="bf16", optimizer="sgd"), fake=True),
        Case("Mistral 7B bf16", "mistral", MISTRAL_7B, plan(**big, precision="bf16"), fake=True),
        Case("Gemma 8B autocast, checkpointed", "gemma", GEMMA_2B, plan(**big, checkpointing="full"), fake=True),
    ]  # fmt: skip


class Live(TorchDispatchMode):
    """Bytes of every storage that operations make, while it lives."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.made: dict[int, str] = {}
        self.now = self.peak = 0
        self.at: dict[str, int] = {}
        self.keep = False

    def see(self, tensor: torch.Tensor, what: str) -> None:
        """Count the tensor's storage once, until it is freed; of a distributed tensor the local part."""
        tensor = getattr(tensor, "_local_tensor", tensor)
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        known = self.sizes.get(key)
        if known is None:
            weakref.finalize(storage, self._gone, key)
        self.sizes[key] = size
        self.now += size - (known or 0)
        self.made.setdefault(key, f"{what} {tuple(tensor.shape)} {tensor.dtype}")
        if self.now > self.peak:
            self.peak = self.now
            if self.keep:
                self.at = {}
                for k, n in self.sizes.items():
                    self.at[self.made[k]] = self.at.get(self.made[k], 0) + n

    def _gone(self, key: int) -> None:
        self.now -= self.sizes.pop(key, 0)
        self.made.pop(key, None)

    def __enter__(self) -> Live:
        """FSDP frees and refills gathered weights by resizing storages, which no operation shows."""
        original = self._resize = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            known = self.sizes.get(storage._cdata)
            if known is not None:
                self.sizes[storage._cdata] = size
                self.now += size - known
                self.peak = max(self.peak, self.now)
            return original(storage, size)

        torch.UntypedStorage.resize_ = resize  # pyright: ignore[reportAttributeAccessIssue]
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize
        super().__exit__(*raised)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.see(leaf, str(func))
        return out


def build(case: Case) -> tuple[Any, dict[str, Any]]:
    """The model in training mode and its configuration as config.json would hold it."""
    config = AutoConfig.for_model(case.family, **case.config)
    config.use_cache = False
    config.pad_token_id = None
    if case.plan.precision != "bf16":
        config._experts_implementation = "eager"  # grouped products want 16-bit inputs
    implementation = "eager" if case.plan.attention == "eager" else "sdpa"
    narrow = case.plan.precision == "bf16" or (case.plan.lora_rank and case.plan.precision != "fp32")
    torch.set_default_dtype(torch.bfloat16 if narrow else torch.float32)
    try:
        model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
    finally:
        torch.set_default_dtype(torch.float32)
    if case.plan.checkpointing == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads() if case.lora else None
    if case.lora:
        from peft import LoraConfig, get_peft_model

        targets = case.lora[0] if case.lora == ("all-linear",) else list(case.lora)
        model = get_peft_model(model, LoraConfig(r=case.plan.lora_rank, target_modules=targets, task_type="CAUSAL_LM"))
    return model.train(), config.to_dict()


def optimizer(case: Case, model: Any) -> torch.optim.Optimizer:
    """The optimizer of a case, on what is trained."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if case.plan.optimizer == "adamw":
        return torch.optim.AdamW(trained, lr=1e-5, foreach=case.plan.update == "foreach")
    momentum = 0.9 if case.plan.optimizer == "momentum" else 0.0
    return torch.optim.SGD(trained, lr=1e-5, momentum=momentum, foreach=False)


def measure(case: Case, keep: bool = False) -> tuple[Live, dict[str, Any]]:
    """Peak bytes of the second step."""
    fake = FakeTensorMode(allow_non_fake_inputs=True) if case.fake else contextlib.nullcontext()
    with fake:
        model, config = build(case)
        update = optimizer(case, model)
        live = Live()
        for tensor in [*model.parameters(), *model.buffers()]:
            live.see(tensor.data, "weights")
        tokens = torch.randint(0, 1000, (case.plan.micro_batch, case.plan.sequence))
        for step in range(2):
            live.peak, live.keep = live.now, keep and step == 1
            with live:
                for _ in range(case.plan.accumulation):
                    with torch.autocast("cpu", torch.bfloat16, enabled=case.plan.precision == "mixed"):
                        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
                    loss.backward()
                    del loss
                update.step()
                update.zero_grad()
    return live, config
