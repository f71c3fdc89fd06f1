"""A precision is switched wholly or not at all, in the words of its framework; edits that belong together likewise."""

from __future__ import annotations

import pytest
from traindoctor.agent.repair.patching.change import change

ON, OFF = '"fp16": {"enabled": true', '"fp16": {"enabled": false'
SEATS = "cat > ds.json <<'EOF'\n{%s}\nEOF\ndeepspeed a.py --fp16 True%s --per_device_train_batch_size 1\n"
OPENRLHF = "python a.py --micro_train_batch_size 4%s\n"

SWITCHED = [
    ("ds.json", "", '{"fp16": {"enabled": true, "loss_scale": 0}, "zero_optimization": {}}', "bf16",
     '{"fp16": {"enabled": false, "loss_scale": 0}, "zero_optimization": {}, "bf16": {"enabled": true}}'),
    ("a.py", "hf", "a = TrainingArguments(fp16=True)\n", "bf16", "a = TrainingArguments(fp16=False, bf16=True)\n"),
    ("a.py", "hf", "a = TrainingArguments(bf16=True)\nm = M.from_pretrained('x', torch_dtype=torch.bfloat16)\n", "fp16",
     "a = TrainingArguments(bf16=False, fp16=True)\nm = M.from_pretrained('x', torch_dtype=torch.bfloat16)\n"),
    ("a.sh", "megatron", "python a.py --fp16 --lr 1\n", "bf16", "python a.py --lr 1 --bf16\n"),
    ("a.sh", "megatron", "python a.py --bf16 --lr 1\n", "fp32", "python a.py --lr 1\n"),
    ("a.yaml", "lightning", "trainer: {precision: 16-mixed}\n", "bf16", "trainer: {precision: bf16-mixed}\n"),
    ("a.yaml", "lightning", "trainer: {precision: bf16}\n", "fp16", 'trainer: {precision: "16"}\n'),
    ("a.yaml", "nemo", "trainer: {precision: 16}\n", "bf16", "trainer: {precision: bf16}\n"),
    ("a.sh", "vllm", "vllm serve m --dtype half\n", "bf16", "vllm serve m --dtype bfloat16\n"),
    ("a.sh", "vllm", "vllm serve m --dtype auto\n", "fp16", "vllm serve m --dtype float16\n"),
    ("a.yaml", "accelerate", "mixed_precision: fp16\n", "fp32", 'mixed_precision: "no"\n'),
    ("a.sh", "hf", "accelerate launch --mixed_precision fp16 a.py --fp16 True\n", "bf16",
     "accelerate launch --mixed_precision bf16 a.py --fp16 False --bf16 True\n"),
    ("a.sh", "openrlhf", OPENRLHF % " --param_dtype bf16", "fp16", OPENRLHF % " --param_dtype fp16"),
    ("a.sh", "openrlhf", OPENRLHF % "", "fp16", OPENRLHF % " --param_dtype fp16"),
    ("a.sh", "openrlhf", "python a.py --train.micro_batch_size 4 --ds.zero_stage 3\n", "fp16",
     "python a.py --train.micro_batch_size 4 --ds.zero_stage 3 --ds.param_dtype fp16\n"),
    ("a.sh", "verl", "python -m verl.trainer.main_ppo actor_rollout_ref.rollout.dtype=float16 "
     "actor_rollout_ref.actor.fsdp_config.model_dtype=fp16 critic.model.fsdp_config.model_dtype=fp32\n", "bf16",
     "python -m verl.trainer.main_ppo actor_rollout_ref.rollout.dtype=bfloat16 "
     "actor_rollout_ref.actor.fsdp_config.model_dtype=bf16 critic.model.fsdp_config.model_dtype=fp32\n"),
    ("a.sh", "hf", SEATS % (ON + '}, "bf16": {"enabled": false}, "zero_optimization": {"stage": 2}', " --bf16 False"), "bf16",
     (SEATS % (OFF + '}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}', " --bf16 True")).replace("fp16 True", "fp16 False")),
    ("a.yaml", "axolotl", "bf16: auto\nfp16:\nmicro_batch_size: 1\n", "fp16", "bf16: false\nfp16: true\nmicro_batch_size: 1\n"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "framework", "text", "value", "after"), SWITCHED, ids=lambda v: None)
def test_all_that_says_the_precision_is_switched(name, framework, text, value, after):
    got = change(text, name, {"precision": value}, framework)
    assert not got.snippets, got.snippets
    assert got.text == after and change(after, name, {"precision": value}, framework).edits == ()


HALVES = [
    ("a.py", "hf", "a = TrainingArguments(fp16=f())\n", "bf16", "fp16=False\nbf16=True"),
    ("a.py", "hf", "a = TrainingArguments(fp16=True, **more)\n", "bf16", "fp16=False\nbf16=True"),
    ("ds.json", "", '{"fp16": {"enabled": "auto"}, "zero_optimization": {}}', "bf16", '{"bf16": {"enabled": true}}'),
    ("a.sh", "openrlhf", OPENRLHF % " --bf16", "fp16", "fp16"),
    ("a.sh", "hf", SEATS % (ON + '}, "zero_optimization": {}', ""), "bf16", "--bf16 True"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "framework", "text", "value", "told"), HALVES, ids=lambda v: None)
def test_half_a_switch_is_none(name, framework, text, value, told):
    got = change(text, name, {"precision": value}, framework)
    assert (got.text, got.edits) == (text, ()) and [s.name for s in got.snippets] == ["precision"]
    assert told in got.snippets[0].text


def test_both_switches_asked_for_are_one():
    got = change("a = TrainingArguments(seed=1, fp16=f())\n", "a.py", {"fp16": False, "bf16": True, "seed": 2}, "hf")
    assert got.text == "a = TrainingArguments(seed=2, fp16=f())\n"
    assert [s.name for s in got.snippets] == ["fp16", "bf16"]


@pytest.mark.parametrize("together", [False, True])
def test_one_that_fails_stops_the_others_only_where_they_belong_together(together):
    text = "a = TrainingArguments(seed=1, per_device_train_batch_size=f())\n"
    edits = {"gradient_accumulation_steps": 8, "micro_batch_size": 2}
    got = change(text, "a.py", edits, "hf", together=together)
    if together:
        assert (got.text, got.edits) == (text, ()) and [s.name for s in got.snippets] == list(edits)
        assert [s.text for s in got.snippets] == ["gradient_accumulation_steps=8", "per_device_train_batch_size=2"]
    else:
        assert got.text == text.replace("f())", "f(), gradient_accumulation_steps=8)")
        assert [s.name for s in got.snippets] == ["micro_batch_size"]


def test_a_change_that_would_do_more_is_told_and_the_others_are_made():
    text = "x_text: |\n  a\nlearning_rate: 1\nx_last: |\n  b"
    got = change(text, "a.yaml", {"gradient_clip_norm": 1.0, "learning_rate": 2.0}, "axolotl")
    assert got.text == text.replace("learning_rate: 1", "learning_rate: 2")
    assert [s.name for s in got.snippets] == ["gradient_clip_norm"] and "x_last" in got.snippets[0].reason


@pytest.mark.parametrize(
    ("versions", "written"),
    [({}, {"warmup_steps"}), ({"transformers": "5.20.0"}, {"warmup_steps"}),
     ({"transformers": "4.45.2"}, {"warmup_ratio", "group_by_length"})],
)  # fmt: skip
def test_a_keyword_that_the_release_does_not_take_is_not_put_in(versions, written):
    edits = {"warmup_ratio": 0.03, "group_by_length": True, "warmup_steps": 10}
    got = change("a = TrainingArguments(seed=1)\n", "a.py", edits, "hf", versions=versions)
    assert {e.name for e in got.edits} == written and {s.name for s in got.snippets} == set(edits) - written
    assert all("transformers" in s.reason for s in got.snippets if s.name != "warmup_steps")


TIMEDELTAS = [
    ("import torch\nfrom datetime import timedelta\n", "timedelta(seconds=60)", ""),
    ("import torch\nimport datetime as dt\n", "dt.timedelta(seconds=60)", ""),
    ("import torch\nimport os\n", "timedelta(seconds=60)", "from datetime import timedelta\n"),
    ('"""Train."""\n', "timedelta(seconds=60)", "from datetime import timedelta\n"),
    ("from datetime import datetime\nimport torch\n", "timedelta(seconds=60)", "from datetime import timedelta\n"),
]  # fmt: skip


@pytest.mark.parametrize(("head", "word", "imported"), TIMEDELTAS)
def test_a_timeout_is_written_with_the_name_that_the_code_has_for_it(head, word, imported):
    got = change(f"{head}torch.distributed.init_process_group('nccl')\n", "a.py", {"nccl_timeout": 60}, "pytorch")
    assert got.text == f"{head}{imported}torch.distributed.init_process_group('nccl', timeout={word})\n"
    compile(got.text, "a.py", "exec")


@pytest.mark.parametrize("old", ["timedelta(0, 600)", "timedelta(minutes=10)", "timedelta(hours=0, minutes=10)"])
def test_a_timeout_by_position_is_read_and_written(old):
    text = f"import torch\ninit_process_group('nccl', timeout={old})\n"
    assert change(text, "a.py", {"nccl_timeout": 600}, "pytorch").edits == ()
    space = {"timedelta": __import__("datetime").timedelta}
    new = change(text, "a.py", {"nccl_timeout": 5400}, "pytorch").text.partition("timeout=")[2].rstrip().removesuffix(")")
    assert eval(new, space).total_seconds() == 5400
