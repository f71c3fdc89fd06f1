"""Which of several places is changed: the one that the framework reads for the setting; where that is not clear, none."""

from __future__ import annotations

import pytest
from traindoctor.agent.repair.patching.change import change

RATE = {"learning_rate": 1e-6}
GRPO = "policy:\n  optimizer: {kwargs: {lr: 1e-4}}\n  megatron_cfg:\n    enabled: %s\n    optimizer: {lr: 5e-6}\ngrpo: {seed: 1}\n"

PLACED = [
    # (file, framework, text, edits, old -> new)
    ("a.sh", "verl", "python -m verl.trainer.main_ppo actor_rollout_ref.actor.optim.lr=1e-5 critic.optim.lr=1e-5\n", RATE,
     "actor.optim.lr=1e-5", "actor.optim.lr=1e-6"),
    ("a.sh", "openrlhf", "python a.py --micro_train_batch_size 1 --actor_learning_rate 5e-7 --critic_learning_rate 5e-7\n", RATE,
     "actor_learning_rate 5e-7", "actor_learning_rate 1e-6"),
    ("a.yaml", "verl", "actor_rollout_ref:\n  actor: {grad_clip: 2.0}\ncritic: {grad_clip: 2.0}\n", {"gradient_clip_norm": 0.5},
     "actor: {grad_clip: 2.0}", "actor: {grad_clip: 0.5}"),
    ("a.yaml", "", "optimizer:\n  lr: 1e-4\nscheduler:\n  lr: 1e-4\n", RATE, "optimizer:\n  lr: 1e-4", "optimizer:\n  lr: 1.0e-6"),
    ("a.yaml", "pytorch", "train:\n  batch_size: 8\neval:\n  batch_size: 8\n", {"micro_batch_size": 2},
     "train:\n  batch_size: 8", "train:\n  batch_size: 2"),
    ("a.yaml", "nemo", "model:\n  micro_batch_size: 4\n  data:\n    validation_ds:\n      micro_batch_size: 4\n", {"micro_batch_size": 2},
     "model:\n  micro_batch_size: 4", "model:\n  micro_batch_size: 2"),
    ("a.yaml", "nemo_rl", GRPO % "false", RATE, "{lr: 1e-4}", "{lr: 1.0e-6}"),
    ("a.yaml", "nemo_rl", GRPO % "true", RATE, "{lr: 5e-6}", "{lr: 1.0e-6}"),
    ("a.py", "pytorch", "import torch\nactor_opt = AdamW(m, lr=1e-4)\ncritic_opt = AdamW(c, lr=1e-4)\n", RATE,
     "actor_opt = AdamW(m, lr=1e-4)", "actor_opt = AdamW(m, lr=1e-6)"),
    ("a.py", "pytorch", "import torch\na = DataLoader(d, batch_size=4)\nval = DataLoader(d, batch_size=4)\n", {"micro_batch_size": 2},
     "a = DataLoader(d, batch_size=4)", "a = DataLoader(d, batch_size=2)"),
    ("a.py", "pytorch", "import torch\ndef evaluate():\n    d = DataLoader(d, batch_size=4)\nd = DataLoader(d, batch_size=4)\n",
     {"micro_batch_size": 2}, "\nd = DataLoader(d, batch_size=4)", "\nd = DataLoader(d, batch_size=2)"),
    ("a.py", "pytorch", "import torch\np.add_argument('--lr', default=1e-4)\nopt = AdamW(m, lr=args.lr)\n", RATE,
     "default=1e-4", "default=1e-6"),
    ("a.py", "pytorch", "import torch\n@dataclass\nclass C:\n    lr: float = 1e-4\nopt = AdamW(m, lr=cfg.lr)\n", RATE,
     "float = 1e-4", "float = 1e-6"),
    ("a.py", "hf", "config = {'learning_rate': 1e-4}\nwandb.init(config=config)\na = TrainingArguments('x')\n", RATE,
     "'x')", "'x', learning_rate=1e-6)"),
    ("a.py", "hf", "more = {'learning_rate': 1e-4}\na = TrainingArguments('x', **more)\n", RATE, "1e-4", "1e-6"),
    ("a.py", "hf", "learning_rate = 1e-4\nn = f'{learning_rate}'\na = TrainingArguments(learning_rate=learning_rate)\n", RATE,
     "(learning_rate=learning_rate)", "(learning_rate=1e-6)"),
    ("a.py", "unsloth", "max_seq_length = 8\nm = FastLanguageModel.from_pretrained('x', max_seq_length=max_seq_length)\nf(max_seq_length)\n",
     {"sequence_length": 4}, "=max_seq_length", "=4"),
    ("a.py", "hf", "d = {'zero_optimization': {'stage': 2}, 'optimizer': {'params': {'lr': 1e-4}}}\n"
     "a = TrainingArguments(learning_rate=1e-4, deepspeed=d)\n", RATE, "1e-4", "1e-6"),
    ("a.json", "deepspeed", '{"zero_optimization": {}, "optimizer": {"params": {"lr": 1e-4}}, "scheduler": {"params": {"warmup_max_lr": 1e-4}}}',
     RATE, "1e-4", "1e-6"),
    ("a.yaml", "axolotl", "x: &lr 1e-4\nlearning_rate: *lr  # c\nother: *lr\n", RATE, "learning_rate: *lr", "learning_rate: 1.0e-6"),
    ("a.yaml", "axolotl", "learning_rate: 1e-4\n---\nx: 1e-4\n", RATE, "learning_rate: 1e-4", "learning_rate: 1.0e-6"),
    ("a.yaml", "axolotl", "b: &b\n  learning_rate: 1e-4\n<<: *b\nlearning_rate: 1e-4\n", RATE, "\nlearning_rate: 1e-4", "\nlearning_rate: 1.0e-6"),
    ("a.yaml", "", "optim:\n  lr: ${base_lr}\nbase_lr: 1e-4\n", RATE, "base_lr: 1e-4", "base_lr: 1.0e-6"),
    ("a.toml", "torchtitan", '[job]\nx = """\n[optimizer]\nlr = 1e-4\n"""\n[optimizer]\nlr = 1e-3\n', RATE, "lr = 1e-3", "lr = 1e-6"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "framework", "text", "edits", "old", "new"), PLACED, ids=lambda v: None)
def test_the_place_that_is_read_is_changed(name, framework, text, edits, old, new):
    got = change(text, name, edits, framework)
    assert not got.snippets, got.snippets
    assert got.text == text.replace(old, new) and change(got.text, name, edits, framework).edits == ()


UNCLEAR = [
    ("a.yaml", "", "mixed_precision: true\nlr: 1\n", {"precision": "bf16"}, "a switch stands there"),
    ("a.py", "hf", "space = {'learning_rate': [1e-5, 2e-5]}\na = f(**space)\n", RATE, "list of values"),
    ("a.py", "hf", "a = TrainingArguments('x', learning_rate=a if b else 1e-4)\n", RATE, "computed"),
    ("a.yaml", "hf", "one:\n  learning_rate: 1e-4\ntwo:\n  learning_rate: 1e-4\n", RATE, "which one is meant"),
    ("a.py", "pytorch", "import torch\na = AdamW(m, lr=1e-4)\nb = AdamW(n, lr=3e-4)\n", RATE, "different values"),
    ("a.json", "deepspeed",
     '{"zero_optimization": {}, "optimizer": {"params": {"lr": 1e-4}}, "scheduler": {"params": {"warmup_max_lr": 2e-4}}}',
     RATE, "warmup_max_lr is 0.0002"),
    ("a.yaml", "", "optim:\n  lr: ${base_lr}\nbase_lr: 1e-4\nother: ${base_lr}\n", RATE, ""),
    ("a.yaml", "axolotl", "a: 1\nb:\n  c: 2\n", RATE, "nothing in the file"),
    ("a.json", "deepspeed", '{"name": "x", "seed": 3}', {"gradient_clip_norm": 1.0}, "nothing in the file"),
    ("a.yaml", "verl", "defaults:\n  - _self_\n  - actor: x\nactor_rollout_ref: {actor: {grad_clip: 1}}\n", RATE, "_self_"),
    ("a.yaml", "", "defaults:\n  - optimizer: adam\nbatch_size: 3\n", {"optimizer": "sgd"}, ""),
    ("a.sh", "megatron", "python a.py --lr 1 --seq-length 2048 --max-position-embeddings 2048\n", {"sequence_length": 4096}, "not enough"),
    ("a.yaml", "axolotl", "adam_betas: !!python/tuple [0.9, 0.95]\nsample_packing: true\n", {"adam_betas": [0.9, 0.99]}, "tag"),
    ("a.py", "pytorch", "import torch\ninit_process_group('nccl', 'env://', timedelta(0, 600))\n", {"nccl_timeout": 60}, "by position"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "framework", "text", "edits", "reason"), UNCLEAR, ids=lambda v: None)
def test_where_it_is_not_clear_nothing_is_changed(name, framework, text, edits, reason):
    got = change(text, name, edits, framework)
    assert (got.text, got.edits) == (text, ()) and reason in got.snippets[0].reason


def test_keys_in_a_string_of_several_lines_are_no_settings():
    text = '[training]\nseq_len = 8\nnote = """\n\n[optimizer]\nlr = 1\n"""\nx = ["[", "]"]\n'
    got = change(text, "a.toml", {"learning_rate": 1e-6, "gradient_clip_norm": 0.5}, "torchtitan")
    assert got.text == text + "max_norm = 0.5\n\n[optimizer]\nlr = 1e-6\n"


def test_members_are_put_behind_comments_that_hold_commas():
    text = '{ // c\n  "zero_optimization": {"stage": 2, /* x, y */ "reduce_bucket_size": 5e8 /* a, b */ , },\n  "a": 1.0, // l, m\n}'
    got = change(text, "a.json", {"offload_optimizer": "cpu", "micro_batch_size": 2}, "deepspeed")
    assert got.text == text.replace(" , }", ' , "offload_optimizer": {"device": "cpu"} }').replace(
        "// l, m\n", '// l, m\n  "train_micro_batch_size_per_gpu": 2\n'
    )


def test_a_large_file_takes_no_longer_than_a_moment():
    rows = "".join(f"x_{i}: {{a: {i}, b: 'some text'}}  # why\n" for i in range(3900 // 2))
    text = "learning_rate: 1e-4\nmicro_batch_size: 1\n" + rows + f"x_text: '{'y' * 5_000_000}'\n"
    got = change(text, "a.yaml", {"learning_rate": 1e-5, "micro_batch_size": 2}, "axolotl")
    assert got.text == text.replace("learning_rate: 1e-4", "learning_rate: 1.0e-5").replace("size: 1\n", "size: 2\n")
