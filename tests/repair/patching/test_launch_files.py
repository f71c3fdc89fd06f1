"""Launch files as people write them: what a set of changes makes of each, line by line."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from traindoctor.agent.repair.patching.change import change
from traindoctor.agent.repair.patching.document import Document
from traindoctor.agent.repair.patching.sites import standing
from traindoctor.agent.repair.patching.spelling import REMOVE, same

HERE = Path(__file__).resolve().parent

EDITS = [
    ("slime.sh", "slime", {
        "learning_rate": 5e-7, "gradient_clip_norm": 0.5, "sequence_length": 4096, "engine_memory_fraction": 0.6,
        "kl_coefficient": 0.001, "activation_checkpointing": "selective", "nccl_timeout": 3600, "warmup_steps": 50,
        "dynamic_batch": False, "nodes": 2, "samples_per_prompt": REMOVE,
    }),
    ("megatron.sh", "megatron", {
        "learning_rate": 3e-5, "micro_batch_size": 2, "precision": "bf16", "warmup_ratio": REMOVE, "warmup_steps": 2000,
        "tensor_parallel": 4, "context_parallel": 2, "nccl_timeout": 1800, "nccl_debug": "WARN", "nccl_ib_timeout": 22,
        "gpus": 4, "cpus_per_task": 16, "save_steps": 500, "max_restarts": 3,
    }),
    ("verl.sh", "verl", {
        "learning_rate": 5e-7, "micro_batch_size": 8, "gradient_clip_norm": 0.5, "offload_parameters": "cpu",
        "offload_optimizer": "cpu", "engine_memory_fraction": 0.5, "kl_coefficient": REMOVE, "warmup_steps": 10,
        "nccl_timeout": 3600, "samples_per_prompt": 8, "cuda_alloc_conf": "expandable_segments:True",
    }),
    ("openrlhf.sh", "openrlhf", {
        "learning_rate": 1e-6, "critic_learning_rate": 5e-6, "micro_batch_size": 4, "enable_sleep_mode": False,
        "offload_optimizer": "cpu", "kl_coefficient": 0.02, "gradient_clip_norm": 0.5,
        "activation_checkpointing": False, "nccl_debug": "INFO", "nccl_ib_disable": True,
    }),
    ("deepspeed.json", "deepspeed", {
        "micro_batch_size": 2, "gradient_accumulation_steps": 16, "learning_rate": 1e-5, "warmup_steps": 1000,
        "precision": "bf16", "gradient_clip_norm": 1.0, "zero_stage": 3, "offload_optimizer": "cpu",
        "reduce_bucket_size": 2e8, "weight_decay": REMOVE,
    }),
    ("axolotl.yaml", "axolotl", {
        "learning_rate": 1e-4, "precision": "bf16", "quantization": "4bit", "sequence_length": 4096,
        "gradient_clip_norm": 1.0, "packing": False, "resume_from": "/data/ckpt", "warmup_ratio": REMOVE,
        "warmup_steps": 100, "activation_checkpointing": False,
    }),
    ("llamafactory.yaml", "llamafactory", {
        "micro_batch_size": 2, "gradient_accumulation_steps": 4, "learning_rate": 2e-5, "sequence_length": 1024,
        "nccl_timeout": 1800, "gradient_clip_norm": 0.3, "epochs": 2, "chat_template": "qwen",
        "lora_target_modules": ["all"], "warmup_ratio": REMOVE,
    }),
    ("torchtitan.toml", "torchtitan", {
        "learning_rate": 1e-4, "warmup_steps": 1000, "gradient_clip_norm": 0.5, "precision": "bf16",
        "activation_checkpointing": "full", "tensor_parallel": 2, "pipeline_parallel": 4, "nccl_timeout": 600,
        "save_steps": 100, "offload_optimizer": "cpu", "compile": True,
    }),
    ("hf.py", "hf", {
        "learning_rate": 1e-5, "micro_batch_size": 2, "gradient_accumulation_steps": 16, "precision": "bf16",
        "warmup_steps": 100, "epochs": 1, "dataloader_workers": 4, "logging_steps": REMOVE,
    }),
    ("heredoc.sh", "deepspeed", {
        "learning_rate": 5e-6, "micro_batch_size": 2, "precision": "bf16", "offload_optimizer": "cpu",
        "processes_per_node": 4, "nccl_timeout": 3600, "nccl_debug": REMOVE,
    }),
    ("accelerate.yaml", "accelerate", {
        "precision": "bf16", "zero_stage": 3, "offload_optimizer": "cpu", "gradient_clip_norm": 1.0, "world_size": 4,
    }),
    ("pytorch.py", "pytorch", {
        "learning_rate": 1e-4, "nccl_timeout": 3600, "dataloader_workers": 4, "nccl_debug": "WARN",
        "nccl_p2p_disable": True, "gradient_clip_norm": 0.5,
    }),
]  # fmt: skip
NAMES = [name for name, _, _ in EDITS]
MAIN = {
    "learning_rate": 7e-6, "warmup_steps": 123, "gradient_clip_norm": 0.7, "precision": "bf16", "micro_batch_size": 3,
    "gradient_accumulation_steps": 6, "sequence_length": 1536, "activation_checkpointing": True, "zero_stage": 3,
    "offload_optimizer": "cpu", "offload_parameters": "cpu", "dataloader_workers": 7, "nccl_timeout": 5400,
    "tensor_parallel": 4, "pipeline_parallel": 2, "context_parallel": 2, "expert_parallel": 2,
    "engine_memory_fraction": 0.55, "kl_coefficient": 0.02, "nccl_debug": "TRACE", "nccl_ib_disable": True,
    "cuda_alloc_conf": "expandable_segments:True",
}  # fmt: skip
FRAMEWORKS = {"run.env": "", "run.sbatch": "", "heredoc.sh": "deepspeed"}
TEXTS = sorted(path.name.removesuffix(".txt") for path in (HERE / "texts").iterdir())


def text_of(name):
    path = HERE / "texts" / name
    return (path if path.exists() else path.with_name(f"{name}.txt")).read_bytes().decode()


def changed_lines(old, new):
    rows = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    return [row for row in rows if not row.startswith(("---", "+++", "@@"))]


@pytest.mark.parametrize(("name", "framework", "edits"), EDITS, ids=NAMES)
def test_the_lines_that_change(name, framework, edits):
    old = text_of(name)
    got = change(old, name, edits, framework)
    assert [(s.name, s.reason) for s in got.snippets] == []
    assert changed_lines(old, got.text) == (HERE / "diffs" / f"{name}.diff").read_text("utf-8").splitlines()
    again = change(got.text, name, edits, framework)
    assert (again.text, again.edits) == (got.text, ())


@pytest.mark.parametrize(("name", "framework", "edits"), EDITS, ids=NAMES)
def test_line_ends_marks_and_a_missing_last_newline_stay(name, framework, edits):
    plain = change(text_of(name), name, edits, framework).text
    windows = change("\ufeff" + text_of(name).replace("\n", "\r\n"), name, edits, framework)
    assert windows.text == "\ufeff" + plain.replace("\n", "\r\n")
    bare = change(text_of(name).removesuffix("\n"), name, edits, framework).text
    assert bare.removesuffix("\n") == plain.removesuffix("\n")


@pytest.mark.parametrize("name", TEXTS)
def test_main_settings_are_changed_or_put_in_one_after_the_other(name):
    """Each in the text that the ones before it made; what cannot be written is a snippet with its reason."""
    text, framework = text_of(name), FRAMEWORKS.get(name, name.rpartition(".")[0])
    written = 0
    for setting, value in MAIN.items():
        got = change(text, name, {setting: value}, framework)
        written += not got.snippets
        assert all(s.reason for s in got.snippets)
        if got.snippets:
            assert (got.text, got.edits) == (text, ())
        elif setting != "precision":
            now = [f.value for f in standing(Document.read(got.text, name, framework), setting)]
            assert now and all(same(v, value) or (value is True and v) for v in now), setting
        text = got.text
    assert written >= 3
    assert all(not got.edits for got in (change(text, name, {s: v}, framework) for s, v in MAIN.items()))


def test_what_each_framework_has_words_for_is_put_into_its_file():
    """A snippet is for what a framework does not have: not one of these is left to the user's hand."""
    expected = {
        "slime.sh": 18, "megatron.sh": 15, "verl.sh": 15, "openrlhf.sh": 15, "deepspeed.json": 8, "axolotl.yaml": 11,
        "llamafactory.yaml": 9, "torchtitan.toml": 12, "nemo.yaml": 11, "hf.py": 9, "trl.py": 11,
    }  # fmt: skip
    for name, least in expected.items():
        framework = name.rpartition(".")[0]
        done = [s for s, v in MAIN.items() if not change(text_of(name), name, {s: v}, framework).snippets]
        assert len(done) >= least, f"{name}: {len(done)}: {sorted(set(MAIN) - set(done))}"
