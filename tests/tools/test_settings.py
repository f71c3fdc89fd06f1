"""read_settings: canonical names with the lines that say them, what was used, what nobody set."""

from __future__ import annotations

import os
import time

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.settings.settings import read_settings as reading_of
from traindoctor.agent.tools.settings.settings_tools import read_settings

from tests.tools.folders import evidence, values, workspace

DEEPSPEED_LOG = """\
    [2024-03-26 09:14:52,018] [INFO] [config.py:996:print] DeepSpeedEngine configuration:
    [2024-03-26 09:14:52,020] [INFO] [config.py:1000:print]   gradient_clipping ............ 0.0
    [2024-03-26 09:14:52,021] [INFO] [config.py:1000:print]   zero_optimization_stage ...... 3
    {'loss': 1.4, 'grad_norm': 3.1, 'learning_rate': 5e-06, 'epoch': 0.02}
"""


def test_a_config_file_is_cited_by_line(tmp_path):
    ws = workspace(tmp_path, config_yaml="base_model: m\nmicro_batch_size: 2\nmax_grad_norm: 1.0\nsequence_len: 10\n")
    result = read_settings(ws)
    (clip,) = evidence(result, "settings.asked.gradient_clip_norm")
    assert (clip.value, clip.file, clip.line, clip.text, clip.offset) == (
        1.0,
        "config.yaml",
        3,
        "max_grad_norm: 1.0",
        34,
    )


def test_what_the_log_prints_is_used(tmp_path):
    result = read_settings(workspace(tmp_path, train_log=DEEPSPEED_LOG))
    (clip,) = evidence(result, "settings.used.gradient_clip_norm")
    assert (clip.value, clip.line) == (0.0, 2)
    assert values(result, "settings.used.zero_stage") == [3]
    assert not evidence(result, "settings.used.learning_rate")


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("  Gradient Accumulation steps = 32", "used.gradient_accumulation_steps", 32),
        (" > micro_batch_size ................ 4", "used.micro_batch_size", 4),
        ("  tensor_model_parallel_size ...................... 8", "used.tensor_parallel", 8),
        ("Namespace(lr=0.1, batch_size=8, fp16=True)", "used.fp16", True),
        ("non-default args: {'model': 'm', 'gpu_memory_utilization': 0.8}", "used.engine_memory_fraction", 0.8),
        ("args: {'learning_rate': 0.001}", "used.learning_rate", 0.001),
        ("+ torchrun --nproc_per_node=4 train.py --lr 3e-4", "asked.learning_rate", 3e-4),
        ("World size: 8  device: NVIDIA H100", "used.world_size", 8),
    ],
)
def test_lines_of_a_log(tmp_path, line, key, value):
    (found,) = evidence(read_settings(workspace(tmp_path, train_log=f"starting\n{line}\n")), f"settings.{key}")
    assert (found.value, found.line) == (value, 2)


def test_printed_dictionaries_over_many_lines(tmp_path):
    text = (
        "config: {'actor': {'optim': {'lr': 1e-06},\n           'grad_clip': 1.0},\n 'x': <object at 0x7f>}\nstep 1\n"
    )
    ws = workspace(tmp_path, train_log=text)
    (clip,) = evidence(read_settings(ws), "settings.used.gradient_clip_norm")
    assert clip.line == 2


def test_an_absence_names_the_files_and_the_default(tmp_path):
    ws = workspace(tmp_path, ds_json='{\n "zero_optimization": {"stage": 3},\n "bf16": {"enabled": true}\n}\n')
    (absent,) = evidence(read_settings(ws), "settings.asked.gradient_clip_norm")
    assert (absent.kind, absent.value, absent.searched) == ("absent", 0.0, ["ds.json"])


def test_one_thing_spelled_twice_is_told_twice(tmp_path):
    result = read_settings(workspace(tmp_path, run_sh="accelerate launch --mixed_precision fp16 train.py\n"))
    assert values(result, "settings.asked.precision") == ["fp16"]
    assert values(result, "settings.asked.fp16") == [True]


def test_unknown_keys_are_kept_apart(tmp_path):
    result = read_settings(workspace(tmp_path, config_yaml="learning_rate: 1\npooling:\n  token_id: 7\n"))
    assert values(result, "settings.other.pooling.token_id") == [7]


def test_a_code_default_gives_way_to_a_flag(tmp_path):
    code = 'p.add_argument("--lr", default=1e-3)\np.add_argument("--seed", default=1)\n'
    ws = workspace(tmp_path, train_py=code, run_sh="python train.py --lr 1e-4\n")
    assert values(read_settings(ws), "settings.asked.learning_rate") == [1e-4]
    assert values(read_settings(ws), "settings.asked.seed") == [1]


def test_a_notebook_is_read_at_its_own_lines(tmp_path):
    text = '{\n "cells": [\n  {\n   "source": [\n    "!pip install x\\n",\n    "args = TrainingArguments(\\n",\n    "    learning_rate=2e-4)"\n   ]\n  }\n ]\n}\n'
    (lr,) = evidence(read_settings(workspace(tmp_path, a_ipynb=text)), "settings.asked.learning_rate")
    assert (lr.value, lr.line) == (2e-4, 7)


def test_fenced_blocks_of_a_markdown_note(tmp_path):
    text = "# how\n```yaml\nlearning_rate: 1e-4\n```\ntext\n```bash\npython a.py --fp16\n```\n"
    result = read_settings(workspace(tmp_path, notes_md=text))
    assert [e.line for e in evidence(result, "settings.asked.learning_rate")] == [3]
    assert [e.line for e in evidence(result, "settings.asked.fp16")] == [7]


def test_broken_files_are_named_and_the_rest_is_read(tmp_path):
    ws = workspace(tmp_path, a_yaml="lr: [1, 2\nx: }\n", b_json="[" * 100_000, c_yaml="learning_rate: 0.1\n")
    result = read_settings(ws)
    problems = reading_of(ws).problems
    assert any(p.startswith("a.yaml: line") for p in problems)
    assert any(p.startswith("b.json:") for p in problems)
    assert values(result, "settings.asked.learning_rate") == [0.1]
    assert "could not be read" in result.summary


def test_places_say_where_a_patch_would_write(tmp_path):
    ws = workspace(tmp_path, config_yaml="training:\n  max_grad_norm: 100.0  # loose\n")
    (setting,) = reading_of(ws).asked("gradient_clip_norm")
    place = setting.place
    assert (place.format, place.key, place.line) == ("yaml", "training.max_grad_norm", 2)
    assert setting.line.text[place.column : place.column + place.width] == "100.0"


def test_a_thousand_rank_logs_cost_little(tmp_path):
    root = tmp_path / "run"
    root.mkdir()
    text = "Namespace(lr=0.1)\n" + "step 1 loss 2.0\n" * 200
    for rank in range(1024):
        (root / f"rank{rank}.log").write_text(text)
    (root / "config.yaml").write_text("learning_rate: 0.1\n")
    from traindoctor.agent.reading.run.workspace import Workspace

    began = time.perf_counter()
    result = read_settings(Workspace([root]))
    assert time.perf_counter() - began < 20
    assert len(evidence(result, "settings.used.learning_rate")) <= 8
    assert values(result, "settings.asked.learning_rate") == [0.1]


def test_nothing_to_read(tmp_path):
    root = tmp_path / "run"
    root.mkdir()
    (root / "weights.bin").write_bytes(os.urandom(100))
    from traindoctor.agent.reading.run.workspace import Workspace

    assert read_settings(Workspace([root])).outcome == "not_applicable"


def test_a_setting_given_another_way_is_not_absent(tmp_path):
    base = "per_device_train_batch_size: 1\n"
    for more, absent in (("", True), ("warmup_ratio: 0.1\n", False), ("warmup_steps: 5\n", False)):
        folder = tmp_path / str(len(more))
        folder.mkdir()
        result = read_settings(workspace(folder, config_yaml=base + more))
        assert bool([e for e in evidence(result, "settings.asked.warmup_steps") if e.kind == "absent"]) is absent


TEMPLATES = {
    "a variable of OmegaConf": {"conf.yaml": "learning_rate: ${base.lr}\n"},
    "a Jinja field": {"conf.yaml": "learning_rate: '{{ lr }}'\n"},
    "a shell variable that nothing sets": {"run.sh": "python train.py --learning_rate $LR\n"},
    "an environment variable in braces": {"run.sh": "python train.py --learning_rate=${LR}\n"},
    "what a command prints": {"run.sh": "python train.py --learning_rate $(cat lr.txt)\n"},
}


@pytest.mark.parametrize("how", TEMPLATES)
def test_what_stands_for_a_value_is_none_and_no_absence(tmp_path, how):
    for name, text in TEMPLATES[how].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    reading = reading_of(Workspace([tmp_path]))
    assert not reading.asked("learning_rate")
    assert [s.key for s in reading.open] == ["learning_rate"]


def test_only_a_word_for_it_makes_a_resume_of_weights_to_begin_with(tmp_path):
    reading = reading_of(workspace(tmp_path, a_yaml="init_from: runs/base/model.pt\n", b_yaml="init_from: resume\n"))
    assert [(s.value, s.file.name) for s in reading.asked("resume_from")] == [("resume", "b.yaml")]
    nano = (
        "n_layer = 2\nn_head = 2\nn_embd = 8\nblock_size = 8\ninit_from = '{}'\n"  # where the word is the model's too
    )
    words = {name: nano.format(name) for name in ("scratch", "resume", "gpt2-xl")}
    told = {w: reading_of(workspace(tmp_path / w, train_py=text)) for w, text in words.items()}
    assert [s.value for w in words for s in told[w].asked("resume_from")] == ["resume"]
    assert [s.value for w in words for s in told[w].asked("model")] == ["gpt2-xl"]


def test_only_a_backend_of_processes_is_one(tmp_path):
    code = "import torch\nnet = torch.compile(net, backend='eager')\n"
    files = {"a_yaml": "backend: inductor\n", "b_yaml": "backend: gloo\n", "train_py": code}
    reading = reading_of(workspace(tmp_path, **files))
    assert [s.value for s in reading.asked("backend")] == ["gloo"]
    assert [s.value for s in reading.asked("compile_backend")] == ["eager"]


@pytest.mark.parametrize("before", ["timeout -s KILL 3600", "nice -n 10", "taskset -c 0-3", "python -u", "ionice -c 3"])
def test_options_of_what_only_wraps_a_command_set_nothing(tmp_path, before):
    line = f"{before} python train.py --lr 1e-4\n" if "python" not in before else f"{before} train.py --lr 1e-4\n"
    reading = reading_of(workspace(tmp_path, run_sh=line))
    assert {s.name for s in reading.all} <= {"learning_rate", "other.script"}


def test_flags_before_a_word_that_ends_like_a_program_are_the_tools_own(tmp_path):
    reading = reading_of(workspace(tmp_path, run_sh="swift rlhf --rlhf_type grpo --model m --external_plugins p.py\n"))
    assert [s.value for s in reading.asked("model")] == ["m"]


def test_the_choice_of_a_group_gives_way_to_the_command(tmp_path):
    code = "import hydra\n@hydra.main(config_path='conf', config_name='config')\ndef main(cfg):\n    print(cfg.model.dim)\nmain()\n"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/config.yaml").write_text("defaults:\n  - model: bag\n  - data: mail\n", encoding="utf-8")
    (tmp_path / "run.sh").write_text("python train.py model=tree\n", encoding="utf-8")
    (tmp_path / "train.py").write_text(code, encoding="utf-8")
    assert [s.value for s in reading_of(Workspace([tmp_path])).asked("model")] == ["tree"]


LOADS = "from torch.utils.data import DataLoader, Subset\n{}\n"
HELD_OUT = [
    "DataLoader(val_set, shuffle=False, num_workers=3)",
    "DataLoader(dataset=sets['test'], shuffle=False, num_workers=3)",
    "val_loader = DataLoader(other, shuffle=False, num_workers=3)",
    "self.test_loader = DataLoader(other, shuffle=False, num_workers=3)",
    "DataLoader(Subset(full, eval_ids), shuffle=False, num_workers=3)",
    "def val_dataloader():\n    return DataLoader(sets, shuffle=False, num_workers=3)",
]
TRAINED = [
    "DataLoader(train_set, shuffle=False, num_workers=3)",
    "DataLoader(interval_set, shuffle=False, num_workers=3)",
    "loader = DataLoader(latest, shuffle=False, num_workers=3)",
    "train_loader = DataLoader(test_train, shuffle=False, num_workers=3)",
]


@pytest.mark.parametrize("code", [*HELD_OUT, *TRAINED])
def test_what_a_loader_of_data_that_is_held_out_is_given_is_no_setting_of_the_training(tmp_path, code):
    reading = reading_of(workspace(tmp_path, train_py=LOADS.format(code)))
    assert {s.name for s in reading.all} == (set() if code in HELD_OUT else {"shuffle", "dataloader_workers"})
