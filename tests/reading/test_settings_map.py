"""The map: every spelling leads to its canonical name, units and words are converted, defaults are known."""

from __future__ import annotations

import pytest
from traindoctor.agent.reading.settings.settings_map import as_type, normal, parse, settings_map


@pytest.mark.parametrize(
    ("framework", "key", "name"),
    [
        ("hf", "per_device_train_batch_size", "micro_batch_size"),
        ("deepspeed", "train_batch_size", "global_batch_size"),
        ("diffusers", "train_batch_size", "micro_batch_size"),
        ("openrlhf", "train_batch_size", "global_batch_size"),
        ("verl", "data.train_batch_size", "rollout_batch_size"),
        ("verl", "actor_rollout_ref.rollout.n", "samples_per_prompt"),
        ("verl", "critic.optim.lr", "critic_learning_rate"),
        ("slime", "--n-samples-per-prompt", "samples_per_prompt"),
        ("slime", "--tensor-model-parallel-size", "tensor_parallel"),
        ("llamafactory", "cutoff_len", "sequence_length"),
        ("swift", "--max_length", "sequence_length"),
        ("axolotl", "micro_batch_size", "micro_batch_size"),
        ("torchtitan", "activation_checkpoint.mode", "activation_checkpointing"),
        ("trl", "beta", "kl_coefficient"),
        ("", "training.max_grad_norm", "gradient_clip_norm"),
        ("", "cp_size", "context_parallel"),
        ("env", "CUDA_VISIBLE_DEVICES", "visible_devices"),
        ("launcher", "nproc-per-node", "processes_per_node"),
        ("deepspeed", "zero_optimization.offload_optimizer.device", "offload_optimizer"),
        ("deepspeed", "zero_optimization.stage3_param_persistence_threshold", "zero_persistence_threshold"),
        ("deepspeed", "activation_checkpointing.partition_activations", "partition_activations"),
        ("hf", "activation_checkpointing", "activation_checkpointing"),
        ("openrlhf", "--train.batch_size", "global_batch_size"),
        ("openrlhf", "--actor.adam.lr", "learning_rate"),
        ("torchtitan", "lr_scheduler.min_lr_factor", "min_lr_ratio"),
        ("verl", "actor_rollout_ref.actor.ppo_epochs", "ppo_epochs"),
        ("megatron", "--decoder-first-pipeline-num-layers", "pipeline_first_layers"),
        ("slime", "--rollout-health-check-first-wait", "health_check_first_wait"),
        ("nanogpt", "block_size", "sequence_length"),
        ("env", "TORCH_NCCL_DUMP_ON_TIMEOUT", "nccl_dump_on_timeout"),
    ],
)
def test_spellings(framework, key, name):
    spelling, _own = settings_map().resolve(framework, key) or (None, None)
    assert spelling is not None
    assert spelling.name == name


@pytest.mark.parametrize(
    ("framework", "key"),
    [("", "beta"), ("", "stage"), ("hf", "time"), ("", "r"), ("", "version"), ("", "gamma"), ("", "profile")],
)
def test_short_keys_stay_with_their_framework(framework, key):
    assert settings_map().resolve(framework, key) is None


@pytest.mark.parametrize(
    ("framework", "key", "raw", "value"),
    [
        ("megatron", "distributed_timeout_minutes", 30, 1800),
        ("accelerate", "mixed_precision", "fp16", "fp16"),
        ("lightning", "trainer.precision", "bf16-mixed", "bf16"),
        ("trl", "torch_dtype", "torch.bfloat16", "bf16"),
        ("megatron", "no_save_optim", True, False),
        ("megatron", "recompute_activations", True, "selective"),
        ("slurm", "gres", "gpu:a100:8", 8),
        ("deepspeed", "zero_optimization.offload_optimizer.device", "none", False),
        ("env", "cuda_visible_devices", "0,1", ["0", "1"]),
        ("hf", "gradient_checkpointing", "True", True),
        ("hf", "bf16", "False", False),
        ("deepspeed", "gradient_clipping", "auto", "auto"),
        ("axolotl", "train_on_inputs", True, False),
        ("llamafactory", "disable_gradient_checkpointing", True, False),
        ("megatron", "disable_bias_linear", True, False),
        ("slime", "disable_grpo_std_normalization", True, False),
    ],
)
def test_values_are_converted(framework, key, raw, value):
    found = settings_map().resolve(framework, key)
    assert found
    assert settings_map().convert(found[0], raw) == value


def test_detection_goes_from_special_to_general():
    detect = settings_map().detect
    assert detect(["zero_optimization.stage", "bf16.enabled"], "") == "deepspeed"
    assert detect(["actor_rollout_ref.actor.optim.lr"], "megatron") == "verl"
    assert detect(["rollout-batch-size", "n-samples-per-prompt", "hf-checkpoint"], "") == "slime"
    assert detect([], "from trl import SFTTrainer\nfrom transformers import AutoModel") == "sft"
    assert detect(["x"], "hello") == ""


def test_defaults_are_inherited():
    known = settings_map()
    assert known.default("gradient_clip_norm", "llamafactory") == 1.0
    assert known.default("gradient_clip_norm", "deepspeed") == 0.0
    assert known.default("learning_rate", "swift") is None


def test_the_parsed_map_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCTOR_CACHE", str(tmp_path))
    settings_map.cache_clear()
    first = settings_map()
    assert list(tmp_path.glob("settings-*.json"))
    settings_map.cache_clear()
    assert settings_map().canonical == first.canonical


def test_every_canonical_name_is_sound():
    known = settings_map()
    for c in known.canonical.values():
        assert c.type in ("int", "float", "bool", "str", "list", "seconds"), c.name
        assert set(c.default) <= set(known.frameworks), c.name
        assert set(c.absent) <= set(known.frameworks), c.name
        assert c.name == normal(c.name)
    assert len(known.canonical) >= 600
    for setting, by_value in known.implies.items():
        assert {setting, *(n for implied in by_value.values() for n in implied)} <= set(known.canonical)
    assert set(known.labels.values()) <= set(known.canonical)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("8_000", 8000),
        ("true", True),
        ("None", None),
        ("", None),
        ("9" * 6000, "9" * 2000),
        ("0x10", "0x10"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_plain_values(text, value):
    assert parse(text) == value


def test_types_leave_alone_what_does_not_fit():
    assert as_type("abc", "int") == "abc"
    assert as_type("8", "int") == 8
    assert as_type(2.0, "int") == 2
    assert as_type("00:30:00", "seconds") == 1800
    assert as_type("[a, b]", "list") == ["a", "b"]
