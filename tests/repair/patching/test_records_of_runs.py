"""Records of a run and files of other programs: no setting is written into them."""

from __future__ import annotations

import pytest
from traindoctor.agent.repair.patching.change import change
from traindoctor.agent.repair.patching.document import is_record, why_not

RECORDS = [
    ("out/trainer_state.json", '{"log_history": [{"step": 1, "learning_rate": 1e-4}], "train_batch_size": 4}'),
    ("wandb/run-20250101_120000-ab12cd34/files/config.yaml", "learning_rate:\n  value: 1.0e-4\n"),
    ("config.yaml", "_wandb:\n  value: {}\nlearning_rate:\n  desc: null\n  value: 1.0e-4\n"),
    ("outputs/2025-01-01/12-00-00/.hydra/config.yaml", "optim:\n  lr: 1.0e-4\n"),
    ("logs/version_0/hparams.yaml", "lr: 0.001\nbatch_size: 32\n"),
    ("out/args.json", '{"learning_rate": 1e-4, "output_dir": "x"}'),
    ("dumped.json", '{"learning_rate": 1e-4, "_n_gpu": 8}'),
    ("mlruns/0/abc/params.yaml", "lr: 1\n"),
    ("out/checkpoint-500/config.json", '{"architectures": ["A"], "model_type": "x", "torch_dtype": "float16"}'),
    ("out/adapter_config.json", '{"peft_type": "LORA", "r": 8, "lora_alpha": 16}'),
    ("resolved_config.json", '{"learning_rate": 1e-4}'),
    ("hparams.yaml", "lr: 0.001\nbatch_size: 32\n"),
    ("uv.lock", "lr = 1\n"),
    ("namespace.yaml", "!!python/object:argparse.Namespace\nlr: 1.0e-4\n"),
]
OTHERS = [
    ("job.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: train\nspec:\n  parallelism: 2\n"),
    ("lws.yaml", "kind: LeaderWorkerSet\nmetadata: {name: x}\napiVersion: leaderworkerset.x-k8s.io/v1\n"),
    ("docker-compose.yml", "services:\n  train:\n    image: x\n    shm_size: 8g\n"),
    (".github/workflows/train.yml", "on: [push]\njobs: {a: {steps: []}}\n"),
    ("ci.yaml", "on: push\njobs:\n  seed: 1\n"),
    ("package.json", '{"name": "x", "scripts": {"train": "python a.py"}}'),
    ("launch.json", '{"cmd": ["python", "train.py", "--learning_rate", "1e-4"], "seed": 1}'),
    ("tokenizer_config.json", '{"model_max_length": 4096, "tokenizer_class": "A"}'),
    ("generation_config.json", '{"temperature": 0.7, "max_new_tokens": 20}'),
    ("pyproject.toml", "[training]\nseed = 1\n"),
    ("sky.yaml", "resources:\n  accelerators: H100:8\nrun: |\n  torchrun train.py --learning_rate 1e-4\nseed: 1\n"),
    ("environment.yml", "name: x\ndependencies:\n  - python=3.11\nseed: 3\n"),
]
SOUND = [
    ("configs/train.yaml", "learning_rate: 1.0e-4\n"),
    ("ds_config.json", '{"zero_optimization": {"stage": 2}}'),
    ("exp/default_config.yaml", "compute_environment: LOCAL_MACHINE\nmixed_precision: fp16\n"),
    ("job.toml", "[job]\ndump_folder = 'x'\n"),
    ("run.sh", "#!/bin/bash\npython train.py --learning_rate 1e-4\n"),
    ("train.py", "# _n_gpu: none\nargs = TrainingArguments(learning_rate=1e-4)\n"),
    (".env", "NCCL_DEBUG=INFO\n"),
    ("hparams.yaml", "seed: 1  # of everything\nlr: 0.001\n"),
    ("args.yaml", "learning_rate: 1.0e-4\n"),
    ("params.yaml", "lr: 1\n"),
    ("base/config.json", '{"architectures": ["A"], "model_type": "x"}'),
    ("grpo.yaml", "policy:\n  optimizer:\n    kwargs: {lr: 1.0e-4}\ngrpo: {seed: 1}\n"),
]


@pytest.mark.parametrize(("name", "text"), RECORDS)
def test_a_record_is_known_and_never_changed(name, text):
    assert is_record(name, text)
    for framework in ("", "hf"):
        got = change(text, name, {"learning_rate": 1e-5, "gradient_clip_norm": 0.5, "precision": "bf16"}, framework)
        assert (got.text, got.edits) == (text, ()) and len(got.snippets) == 3
        assert all(s.reason for s in got.snippets)


@pytest.mark.parametrize(("name", "text"), OTHERS)
def test_a_file_of_another_program_gets_no_settings(name, text):
    assert not is_record(name, text) and why_not(name, text)
    for framework in ("", "hf", "verl", "deepspeed"):
        got = change(text, name, {"learning_rate": 1e-5, "seed": 7, "precision": "bf16", "epochs": 2}, framework)
        assert (got.text, got.edits) == (text, ())


@pytest.mark.parametrize(("name", "text"), SOUND)
def test_files_of_settings_are_neither(name, text):
    assert why_not(name, text) == ""
