"""What is not written: shared, computed and foreign values, doubled keys; they are told with the reason, the text stays."""

from __future__ import annotations

import pytest
from traindoctor.agent.core.errors import ChangeRefused
from traindoctor.agent.repair.patching.change import change
from traindoctor.agent.repair.patching.document import Document
from traindoctor.agent.repair.patching.sites import verify
from traindoctor.agent.repair.patching.spelling import REMOVE

REFUSED = [
    # (file, framework, text, edits, a word of the reason)
    ("a.yaml", "axolotl", "learning_rate: &lr 1e-4\nother: *lr\n", {"learning_rate": 1e-5}, "anchor"),
    ("a.yaml", "axolotl", "base: &b\n  learning_rate: 1e-4\nrun:\n  <<: *b\n", {"learning_rate": 1e-5}, "anchor"),
    ("a.yaml", "verl", "actor_rollout_ref: {actor: {grad_clip: '${oc.env:CLIP}'}}\n", {"gradient_clip_norm": 1.0}, "filled in"),
    ("a.yaml", "axolotl", "learning_rate: {{ lr }}\n", {"learning_rate": 1e-5}, ""),
    ("a.yaml", "axolotl", "learning_rate: 1e-4\nlearning_rate: 2e-4\n", {"learning_rate": 1e-5}, "twice"),
    ("a.yaml", "axolotl", "learning_rate: 1e-4\n---\nlearning_rate: 1e-4\n", {"gradient_clip_norm": 1.0}, "several documents"),
    ("a.yaml", "axolotl", "learning_rate: [1e-4, \n", {"gradient_clip_norm": 1.0}, "cannot be read"),
    ("a.yaml", "axolotl", "lora_target_modules:\n  - a\n  - b\n", {"lora_target_modules": ["c"]}, "one line"),
    ("a.yaml", "accelerate", "deepspeed_config: yes\n", {"zero_stage": 3}, ""),
    ("a.json", "deepspeed", '{"gradient_clipping": 1.0, "gradient_clipping": 2.0}', {"gradient_clip_norm": 0.5}, "twice"),
    ("a.json", "deepspeed", '{"gradient_clipping": "auto"}', {"gradient_clip_norm": 0.5}, "trainer"),
    ("a.json", "deepspeed", '{"optimizer": {"params": 3}, "gradient_clipping": 1}', {"learning_rate": 1e-5}, "no object"),
    ("a.json", "deepspeed", '{"optimizer": {"params": {}}}', {"learning_rate": 1e-5}, "nothing in the file"),
    ("a.json", "deepspeed", '{"zero_optimization": {"stage": 2}', {"zero_stage": 1}, "never closed"),
    ("a.json", "deepspeed", '{"zero_optimization": {"stage": 2}}', {"learning_rate": 1e-5}, "optimizer"),
    ("a.json", "deepspeed", '{"zero_optimization": {"stage": 2}}', {"nccl_debug": "INFO"}, "launch script"),
    ("a.sh", "hf", "for LR in 1e-4 1e-5; do\n  python a.py --learning_rate $LR\ndone\n", {"learning_rate": 1e-6}, "LR"),
    ("a.sh", "hf", "LR=1e-4\nLR=1e-5\npython a.py --learning_rate $LR\n", {"learning_rate": 1e-6}, "$LR"),
    ("a.sh", "hf", "python a.py --learning_rate $1\n", {"learning_rate": 1e-6}, "set once"),
    ("a.sh", "hf", "python a.py --learning_rate $(cat lr)\n", {"learning_rate": 1e-6}, "filled in"),
    ("a.sh", "hf", "python a.py --learning_rate 1e-4 --learning_rate 2e-4\n", {"learning_rate": 1e-6}, "twice"),
    ("a.sh", "hf", "python a.py --learning_rate 1e-4\npython b.py --learning_rate 2e-4\n", {"learning_rate": 1e-6}, "different"),
    ("a.sh", "hf", "bash -c 'python a.py --output_dir out'\n", {"output_dir": "a b'c"}, "quotes"),
    ("a.sh", "hf", "docker run --shm-size 8g image python a.py\n", {"shm_size": "64g"}, "more than one word"),
    ("a.sh", "hf", "echo NCCL_DEBUG=INFO >> x\npython a.py\n", {"nccl_debug": "WARN"}, "not read"),
    ("a.sh", "hf", "python a.py --weight_decay 1\npython b.py --weight_decay 1\n", {"learning_rate": 1e-5}, "several commands"),
    ("a.yaml", "nemo", "model:\n  optim:\n    lr: 1\n", {"warmup_steps": 5}, "sched"),
    ("a.sh", "megatron", "echo hello\n", {"learning_rate": 1e-6}, "no command"),
    ("a.sh", "verl", "python -m a data.train_batch_size=4\n", {"sequence_length": 1024}, "depends on the script"),
    ("a.py", "hf", "a = TrainingArguments(learning_rate=rate(3))\n", {"learning_rate": 1e-6}, "computed"),
    ("a.py", "hf", "LR = 1e-4\nLR = LR / 2\na = TrainingArguments(learning_rate=LR)\n", {"learning_rate": 1e-6}, "set once"),
    ("a.py", "hf", "def f(lr): return TrainingArguments(learning_rate=lr)\nlr = 1e-4\n", {"learning_rate": 1e-6}, "set once"),
    ("a.py", "hf", "a = TrainingArguments(**base)\n", {"learning_rate": 1e-6}, "unpacks"),
    ("a.py", "hf", "a = TrainingArguments(seed=1)\nb = TrainingArguments(seed=2)\n", {"learning_rate": 1e-6}, "2 times"),
    ("a.py", "hf", "import os\n", {"nccl_debug": "INFO"}, "no environment"),
    ("a.py", "hf", "a = TrainingArguments(seed=\n", {"learning_rate": 1e-6}, "cannot be read"),
    ("a.py", "hf", "p.add_argument('--bf16', action='store_true')\n", {"bf16": True}, "declares"),
    ("a.py", "deepspeed", "a = {'zero_optimization': {'stage': 1}, **base}\n", {"gradient_clip_norm": 1}, "unpacks"),
    ("a.toml", "torchtitan", "[[training]]\nsteps = 1\n", {"sequence_length": 1024}, "array of tables"),
    ("train.log", "hf", "learning_rate: 1e-4\n", {"learning_rate": 1e-6}, "record"),
    ("train.txt", "hf", "learning_rate: 1e-4\n", {"learning_rate": 1e-6}, "kind"),
    ("a.ipynb", "hf", "{}", {"learning_rate": 1e-6}, "kind"),
    ("a.ini", "hf", "[train]\nlearning_rate = 1\n", {"warmup_steps": 5}, "ini"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "framework", "text", "edits", "reason"), REFUSED, ids=lambda v: None)
def test_what_cannot_be_written_safely_is_a_snippet(name, framework, text, edits, reason):
    got = change(text, name, edits, framework)
    assert got.text == text and got.edits == () and len(got.snippets) == len(edits)
    assert any(reason in s.reason for s in got.snippets), got.snippets
    assert all("\n" not in s.reason for s in got.snippets)


SNIPPETS = [
    ("hf.log", "hf", {"learning_rate": 1e-5}, ""),
    ("a.json", "deepspeed", {"nccl_debug": "INFO"}, "export NCCL_DEBUG=INFO"),
    ("a.json", "megatron", {"learning_rate": 1e-5}, "--lr 1e-5"),
    ("a.json", "megatron", {"bf16": True}, "--bf16"),
    ("a.json", "slime", {"nccl_timeout": 3600}, "--distributed-timeout-minutes 60"),
    ("a.json", "verl", {"gradient_clip_norm": 1.0}, "actor_rollout_ref.actor.grad_clip=1.0"),
    ("a.json", "torchtitan", {"learning_rate": 1e-5}, "[optimizer]\nlr = 1e-5"),
    ("a.toml", "deepspeed", {"zero_stage": 3}, '{"zero_optimization": {"stage": 3}}'),
    ("a.toml", "axolotl", {"learning_rate": 1e-5}, "learning_rate: 1.0e-5"),
    ("a.json", "nemo", {"learning_rate": 1e-5}, "model:\n  optim:\n    lr: 1.0e-5"),
    ("a.toml", "", {"cpus_per_task": 8}, "#SBATCH --cpus-per-task=8"),
    ("a.toml", "vllm", {"sequence_length": 4096}, "--max-model-len 4096"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "framework", "edits", "text"), SNIPPETS)
def test_a_snippet_is_in_the_words_of_its_framework(name, framework, edits, text):
    got = change("{}" if name.endswith("json") else "", name, edits, framework)
    assert [s.text for s in got.snippets] == [text]


def test_a_setting_that_the_map_does_not_know_is_an_error_of_one_line():
    with pytest.raises(ChangeRefused, match="no setting"):
        change("a: 1\n", "a.yaml", {"nonsense": 1})


@pytest.mark.parametrize(("name", "before", "after"), [
    ("a.yaml", "learning_rate: 1\nseed: 2\n", "learning_rate: 5\nseed: 3\n"),
    ("a.yaml", "learning_rate: 1\nseed: 2\n", "learning_rate: 5\n"),
    ("a.yaml", "learning_rate: 1\nseed: 2\n", "learning_rate: 5\nseed: 2\nextra: 1\n"),
    ("a.yaml", "learning_rate: 1\nseed: 2\n", "learning_rate: 4\nseed: 2\n"),
    ("a.json", '{"learning_rate": 1}', '{"learning_rate": 5,}'),
    ("a.json", '{"learning_rate": 1}', '{"learning_rate": 5, "learning_rate": 5}'),
    ("a.sh", "A=(\n --learning_rate 1\n)\npython a.py\n", "A=(\n --learning_rate 5\npython a.py\n"),
])  # fmt: skip
def test_a_change_that_does_more_is_refused(name, before, after):
    old, new = Document.read(before, name, "hf"), Document.read(after, name, "hf")
    touched = [f.leaf for f in old.found if f.name == "learning_rate"]
    with pytest.raises(ChangeRefused) as e:
        verify(old, new, "learning_rate", [5], touched)
    assert "\n" not in str(e.value)


def test_one_line_of_several_can_be_meant():
    text = "python a.py --learning_rate 1e-4\npython b.py --learning_rate 2e-4\n"
    got = change(text, "a.sh", {"learning_rate": 3e-4}, "hf", at={"learning_rate": 2})
    assert got.text == text.replace("2e-4", "3e-4") and got.edits[0].line == 2


TAKEN_OUT = [
    ("a.json", "deepspeed", '{\n  "a": 1,\n  "zero_optimization": {"stage": 2}\n}', "zero_stage", '{\n  "a": 1,\n  "zero_optimization": {}\n}'),
    ("a.json", "deepspeed", '{"gradient_clipping": 1, "a": 2}', "gradient_clip_norm", '{"a": 2}'),
    ("a.json", "deepspeed", '{"a": 2, "gradient_clipping": 1}', "gradient_clip_norm", '{"a": 2}'),
    ("a.json", "deepspeed", '{\n  "a": 2,\n  "gradient_clipping": 1 // c\n}', "gradient_clip_norm", '{\n  "a": 2 // c\n}'),
    ("a.yaml", "axolotl", "a: 1\nlearning_rate: 1  # c\nb: 2\n", "learning_rate", "a: 1\nb: 2\n"),
    ("a.yaml", "axolotl", "a: {learning_rate: 1, b: 2}\n", "learning_rate", "a: {b: 2}\n"),
    ("a.yaml", "axolotl", "a: {b: 2, learning_rate: 1}\n", "learning_rate", "a: {b: 2}\n"),
    ("a.toml", "torchtitan", "[optimizer]\nlr = 1\nname = 'x'\n", "learning_rate", "[optimizer]\nname = 'x'\n"),
    ("a.toml", "torchtitan", "optimizer = {name = 'x', lr = 1}\n", "learning_rate", "optimizer = {name = 'x'}\n"),
    ("a.sh", "hf", "python a.py --bf16 --learning_rate 1 --x 2\n", "learning_rate", "python a.py --bf16 --x 2\n"),
    ("a.sh", "hf", "python a.py --bf16 --x 2\n", "bf16", "python a.py --x 2\n"),
    ("a.sh", "hf", "python a.py \\\n  --bf16 \\\n  --x 2\n", "bf16", "python a.py \\\n  --x 2\n"),
    ("a.sh", "hf", "python a.py \\\n  --x 2 \\\n  --learning_rate=1\n", "learning_rate", "python a.py \\\n  --x 2\n"),
    ("a.sh", "hf", 'A="--x 2 --learning_rate 1"\npython a.py $A\n', "learning_rate", 'A="--x 2"\npython a.py $A\n'),
    ("a.sh", "hf", "A=(\n  --x 2\n  --learning_rate 1  # c\n)\n", "learning_rate", "A=(\n  --x 2\n)\n"),
    ("a.sh", "verl", "python a.py \\\n 'data.max_prompt_length=1' \\\n a.b=2\n", "max_prompt_length", "python a.py \\\n a.b=2\n"),
    ("a.sh", "hf", "set -x\nexport NCCL_DEBUG=INFO  # c\npython a.py --x 1\n", "nccl_debug", "set -x\npython a.py --x 1\n"),
    ("a.sh", "hf", "NCCL_DEBUG=INFO A=1 python a.py --x 1\n", "nccl_debug", "A=1 python a.py --x 1\n"),
    ("a.sh", "hf", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --mem=4G\n", "nodes", "#!/bin/bash\n#SBATCH --mem=4G\n"),
    ("a.env", "hf", "A=1\nNCCL_DEBUG=INFO", "nccl_debug", "A=1"),
    ("a.py", "hf", "a = TrainingArguments(seed=1, learning_rate=2)\n", "learning_rate", "a = TrainingArguments(seed=1)\n"),
    ("a.py", "hf", "a = TrainingArguments(\n    learning_rate=2,  # c\n    seed=1,\n)\n", "learning_rate", "a = TrainingArguments(\n    seed=1,\n)\n"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "framework", "text", "setting", "left"), TAKEN_OUT, ids=lambda v: None)
def test_a_setting_is_taken_out(name, framework, text, setting, left):
    got = change(text, name, {setting: REMOVE}, framework)
    assert got.text == left and change(left, name, {setting: REMOVE}, framework).edits == ()


@pytest.mark.parametrize(("name", "text"), [
    ("a.yaml", "a:\n  learning_rate: 1\nb: 2\n"),
    ("a.yaml", "a:\n- learning_rate: 1\n  b: 2\n"),
    ("a.py", "learning_rate = 1\n"),
    ("a.py", "p.add_argument('--learning_rate', default=1)\n"),
    ("a.sh", "echo; export LEARNING_RATE=1; python a.py --seed 1\n"),
])  # fmt: skip
def test_what_others_lean_on_is_not_taken_out(name, text):
    got = change(text, name, {"learning_rate": REMOVE}, "axolotl")
    assert got.text == text
    assert got.snippets or not got.edits
