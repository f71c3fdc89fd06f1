"""The memory estimate: parameters to the digit, moments of a step, layouts, what fits, and what is assumed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.errors import ToolError
from traindoctor.agent.reading.memory import memory_changes as capacity
from traindoctor.agent.reading.memory import memory_model
from traindoctor.agent.reading.memory import memory_model as activations
from traindoctor.agent.reading.memory.memory_changes import that_fit
from traindoctor.agent.reading.memory.memory_plan import Plan, share, whole
from traindoctor.agent.reading.memory.model_config import of_config, of_name
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.memory.estimate import estimate_memory

from tests.tools.captured import Seen

GIB = 1 << 30
LLAMA = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}  # fmt: skip
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of "
    "which 1.00 GiB is free.\n"
)


def ask(folder: Path, files: dict[str, Any], **arguments: Any) -> Seen:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    result = estimate_memory(Workspace([folder]), **arguments)
    assert all(estimate_memory.allows(e.key) for e in result.evidence)
    return Seen(result, folder)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("meta-llama/Llama-3.1-8B", 8_030_261_248),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("google/gemma-2-2b", 2_614_341_888),
        ("mistralai/Mixtral-8x7B-v0.1", 46_702_792_704),
        ("gpt2", 124_439_808),
    ],
)
def test_well_known_models_have_their_published_size(name: str, parameters: int) -> None:
    model = of_name(name)
    assert model is not None and whole(model).total == parameters


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", "qwen3", "gemma2", "mixtral", "qwen3_moe", "deepseek_v3", "gpt_neox"]
)
def test_parameters_agree_with_the_real_model(family: str) -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    small = {"num_hidden_layers": 3} if family != "gpt2" else {"n_layer": 3}
    config = transformers.AutoConfig.for_model(family, **small)
    with torch.device("meta"):
        real = transformers.AutoModelForCausalLM.from_config(config)
    model = of_config(config.to_dict())
    assert model is not None
    assert whole(model).total == sum(p.numel() for p in real.parameters())


def test_a_step_needs_its_fullest_moment_and_not_the_sum() -> None:
    model = of_config(LLAMA)
    assert model is not None
    short = memory_model.of(model, Plan(sequence=128, precision="bf16"))
    long = memory_model.of(model, Plan(sequence=16384, precision="bf16"))
    assert short.peak.name in ("update", "end of backward") and long.peak.name == "loss"
    assert short.peak.total == max(m.total for m in short.moments)


def test_sharding_divides_what_its_stage_names() -> None:
    model = of_config(LLAMA)
    assert model is not None
    count = whole(model).total
    plans = [Plan(precision="master", world=8, zero=stage, sequence=128) for stage in range(4)]
    fixed = [next(m for m in memory_model.of(model, p).moments if m.name == "update").parts for p in plans]
    assert fixed[0]["optimizer state"] == 8 * count and fixed[0]["float32 copy"] == 4 * count
    assert fixed[1]["optimizer state"] == count and fixed[1]["gradients"] == 2 * count
    assert fixed[2]["gradients"] == count / 4 and fixed[2]["weights"] == 2 * count
    assert fixed[3]["weights"] == count / 4


def test_layouts_divide_layers_heads_and_tables() -> None:
    model = of_name("Qwen3-30B-A3B")
    assert model is not None
    one = whole(model)
    parts = [share(model, stage, 4, 2, 8) for stage in range(4)]
    assert sum(p.matrices for p in parts) == one.matrices / 2
    assert sum(p.experts for p in parts) == one.experts / 8
    assert parts[0].head == 0 and parts[3].embedding == 0 and parts[3].head == one.head / 2


def test_the_cheapest_change_comes_first_and_fits(tmp_path: Path) -> None:
    model = of_config(LLAMA)
    assert model is not None
    plan = Plan(micro_batch=4, sequence=4096, precision="bf16")
    before = memory_model.of(model, plan).peak.total
    alone, chosen = that_fit(model, plan, 79 * GIB)
    assert before > 79 * GIB and chosen and chosen[-1].estimate.peak.total <= 79 * GIB
    assert all(c.estimate.model is model for c in alone)
    assert that_fit(model, plan, GIB)[1] == []


def test_a_run_that_does_not_fit(tmp_path: Path) -> None:
    arguments = "per_device_train_batch_size: 16\nmax_seq_length: 4096\nbf16: true\noptim: adamw_torch\n"
    more = "fsdp: full_shard\nworld_size: 8\n"
    seen = ask(tmp_path, {"model/config.json": LLAMA, "train.yaml": arguments + more, "train.log": OOM})
    assert seen.one("estimate.fits") == "no" and seen.one("estimate.capacity_bytes") == int(79.11 * GIB)
    assert seen.one("estimate.batch_exceeds") is True
    assert not seen.values("estimate.states_exceed")
    assert seen.one("estimate.parameters") == 8_030_261_248
    assert seen.values("estimate.change")
    assert "cheapest that fits" in seen.result.text


def test_states_that_no_batch_size_saves(tmp_path: Path) -> None:
    files = {
        "config.json": LLAMA,
        "train.yaml": "per_device_train_batch_size: 1\nmax_seq_length: 512\nfp16: true\noptim: adamw_torch\n",
    }
    seen = ask(tmp_path, {**files, "train.log": OOM})
    assert seen.one("estimate.states_exceed") is True and not seen.values("estimate.batch_exceeds")


@pytest.mark.parametrize(("tensor", "parallel"), [(1, False), (4, False), (4, True)])
def test_fused_kernels_keep_what_is_published(tensor: int, parallel: bool) -> None:
    """Bytes per token of a GPT layer with fused kernels and no dropout: 8h + 24h over the tensor-parallel ranks."""
    config = {
        "model_type": "megatron",
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "vocab_size": 9,
    }
    model = of_config(config)
    assert model is not None
    plan = Plan(precision="master", kernels="fused", world=tensor, tensor=tensor, sequence_parallel=parallel)
    wanted = 2048 * (8 / (tensor if parallel else 1) + 24 / tensor)
    assert activations.layer(model, plan, False) == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize(
    ("name", "gib"),
    [("NVIDIA H100 80GB HBM3", 79.1), ("NVIDIA A100-SXM4-40GB", 39.4), ("NVIDIA H200", 139.8), ("Tesla T4", 15.7),
     ("NVIDIA GeForce RTX 3090", 23.6), ("NVIDIA RTX A4000", 15.7), ("AMD Instinct MI300X", 191), ("SXM4", None)],
)  # fmt: skip
def test_cards_by_name(name: str, gib: float | None) -> None:
    size = capacity.of_name(name)
    assert size == (None if gib is None else pytest.approx(gib * GIB))


def test_packed_batches_have_the_tokens_they_are_packed_to(tmp_path: Path) -> None:
    seen = ask(
        tmp_path, {"config.json": LLAMA, "run.sh": "python train.py --max-tokens-per-gpu 9216 --rollout-batch-size 8\n"}
    )
    assert "micro-batch 1 x 9216 tokens" in seen.result.text


def test_an_engine_on_the_same_device_has_a_cache(tmp_path: Path) -> None:
    seen = ask(tmp_path, {"config.json": LLAMA}, kv_tokens=100_000)
    assert seen.one("estimate.kv_cache_bytes") == 2 * 32 * 2 * 8 * 128 * 100_000


def test_what_is_assumed_is_told_and_decides_nothing(tmp_path: Path) -> None:
    seen = ask(tmp_path, {"config.json": LLAMA, "train.log": OOM})
    assert "2048 tokens" in seen.one("estimate.assumed")
    assert not seen.values("estimate.batch_exceeds")


def test_without_a_device_nothing_is_said_to_fit(tmp_path: Path) -> None:
    seen = ask(tmp_path, {"config.json": LLAMA})
    assert not seen.values("estimate.fits") and "not known" in seen.result.text
    assert ask(tmp_path, {}, gpu="H200").one("estimate.fits") == "yes"
    assert ask(tmp_path, {}, gpu="640").one("estimate.fits") == "yes"


def test_options_come_before_the_run(tmp_path: Path) -> None:
    mixed = ask(tmp_path, {"config.json": LLAMA}, micro_batch=2, sequence=1024, precision="fp32", optimizer="sgd")
    assert "fp32, sgd, micro-batch 2 x 1024" in mixed.result.text
    laid = ask(tmp_path, {}, layout="tp=2,pp=4,dp=2", zero=1)
    assert "16 rank(s): tp 2, pp 4" in laid.result.text and "ZeRO 1" in laid.result.text
    named = ask(tmp_path, {}, config="Qwen2.5-7B")
    assert named.one("estimate.parameters") == 7_615_616_512


@pytest.mark.parametrize(
    "arguments",
    [{"config": "no-such-model"}, {"gpu": "abacus"}, {"precision": "fp7"}, {"layout": "tp=x"}, {"layout": "zz=2"},
     {"optimizer": "magic"}, {"bits": 3}],
)  # fmt: skip
def test_what_cannot_be_is_told_in_one_line(arguments: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ToolError) as told:
        ask(tmp_path, {"config.json": LLAMA}, **arguments)
    assert "\n" not in str(told.value)


def test_a_layout_that_divides_nothing_could_not_be_checked(tmp_path: Path) -> None:
    seen = ask(tmp_path, {"config.json": LLAMA}, layout="tp=4,pp=2", ranks=6)
    assert seen.result.outcome == "failed"


def test_megatron_flags_describe_a_model(tmp_path: Path) -> None:
    flags = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
        "--ffn-hidden-size 11008 --swiglu --normalization RMSNorm --seq-length 4096 --micro-batch-size 2 --bf16 "
        "--tensor-model-parallel-size 4 --use-distributed-optimizer --untie-embeddings-and-output-weights\n"
    )
    seen = ask(tmp_path, {"launch.sh": flags})
    assert "tp 4" in seen.result.text and "ZeRO 1" in seen.result.text
    assert 6.5e9 < seen.one("estimate.parameters") < 7e9


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"hidden_size": -4, "num_hidden_layers": 1e30}', '{"hidden_size": NaN}', "[" * 5000]
)
def test_broken_configurations_are_passed_over(content: str, tmp_path: Path) -> None:
    assert ask(tmp_path, {"config.json": content, "notes.log": "hello\n"}).result.outcome == "not_applicable"


def test_a_nested_configuration_is_found() -> None:
    model = of_config({"model_type": "llava", "text_config": LLAMA})
    assert model is not None and model.layers == 32


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size",
                         "intermediate_size", "n_routed_experts", "num_experts_per_tok", "kv_lora_rank", "v_head_dim",
                         "model_type", "head_dim", "first_k_dense_replace", "tie_word_embeddings"]),
        st.one_of(st.integers(-5, 5000), st.floats(), st.text(max_size=5), st.none(), st.booleans()),
    )
)  # fmt: skip
def test_any_mapping_is_a_model_or_none(data: dict[str, Any]) -> None:
    model = of_config(data)
    if model is not None:
        for change in ({}, {"checkpointing": "full"}, {"lora_rank": 8, "bits": 4}, {"attention": "eager"}):
            assert memory_model.of(model, replace(Plan(), **change)).peak.total >= 0


def test_a_model_named_in_full_needs_no_folder(doctor: Any, tmp_path: Path) -> None:
    done = doctor("tool", "estimate-memory", "--config", "meta-llama/Llama-3.1-8B", "--gpu", "80", cwd=tmp_path)
    assert done.returncode == 0 and "8.03 B parameters" in done.stdout
    assert doctor("tool", "estimate-memory", cwd=tmp_path).returncode == 3


def test_one_whole_copy_on_every_rank_fills_the_device(tmp_path: Path) -> None:
    run = "torchrun --nproc_per_node=4 tune.py --base_model meta-llama/Llama-2-70b-hf --micro_batch_size 1 --lora_r 8\n"
    assert ask(tmp_path, {"run.sh": run, "train.log": OOM}).one("estimate.whole_copy_fills") > 60 * GIB
    for name, other in {
        "small": run.replace("Llama-2-70b", "Llama-2-7b"),
        "alone": run.replace("nproc_per_node=4", "nproc_per_node=1"),
        "sharded": run.replace("--lora_r 8", "--lora_r 8 --fsdp full_shard"),
    }.items():
        seen = ask(tmp_path / name, {"run.sh": other, "train.log": OOM})
        assert not seen.values("estimate.whole_copy_fills"), name
