"""compare_settings over pairs of runs: equal ones differ in nothing, a planted difference is the one that is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.logs.runs_tools import compare_runs
from traindoctor.agent.tools.settings.settings_tools import compare_settings

Settings = dict[str, Any]
BASE: Settings = {
    "model_name_or_path": "org/tiny", "learning_rate": 0.001, "per_device_train_batch_size": 8, "warmup_steps": 100,
    "max_grad_norm": 1.0, "bf16": True, "seed": 7, "temperature": 0.7, "dropout_of_mine": 0.1, "layers_of_mine": [2, 4],
}  # fmt: skip
LOG = "".join(f"step {n} loss {3 - 0.01 * n:.4f}\n" for n in range(60))
DIED = "".join(f"step {n} loss {3 - 0.01 * n if n < 20 else float('nan'):.4f}\n" for n in range(60))


def _yaml(settings: Settings, out: str) -> tuple[str, str]:
    return "yaml", yaml.safe_dump({**settings, "output_dir": out, "master_port": 29500 + len(out)}, sort_keys=False)


def _json(settings: Settings, out: str) -> tuple[str, str]:
    return "json", json.dumps({**settings, "output_dir": out, "run_name": out}, indent=1)


def _script(settings: Settings, out: str) -> tuple[str, str]:
    flags = [f"  --{k} {','.join(map(str, v)) if isinstance(v, list) else v}" for k, v in settings.items()]
    return "sh", " \\\n".join(["python train.py", *flags, f"  --output_dir {out}"]) + f" > run_{out}.log 2>&1\n"


def _exported(settings: Settings, out: str) -> tuple[str, str]:
    kind, command = _script(settings, out)
    return kind, f"#!/bin/bash\nexport NCCL_P2P_LEVEL=NVL\nexport MASTER_PORT={29500 + len(out)}\n{command}"


WRITERS = pytest.mark.parametrize("write", [_yaml, _json, _script, _exported], ids=lambda w: w.__name__)
Writer = Callable[[Settings, str], tuple[str, str]]


def _pair(folder: Path, write: Writer, one: Settings, other: Settings, logs: tuple[str, str] = (LOG, LOG)) -> None:
    for name, settings, log in (("a", one, logs[0]), ("bb", other, logs[1])):
        suffix, text = write(settings, name)
        (folder / f"config_{name}.{suffix}").write_text(text)
        (folder / f"run_{name}.log").write_text(log)


def _told(folder: Path, **more: Any) -> dict[str, Any]:
    found = compare_settings(Workspace([folder], live=False, **more)).evidence
    assert {e.key for e in found} <= {"compare.setting_differs", "compare.only_difference"}
    return {e.value["name"]: e.value for e in found if e.key == "compare.setting_differs"}


@WRITERS
def test_a_run_and_its_copy_differ_in_nothing(tmp_path: Path, write: Writer) -> None:
    _pair(tmp_path, write, BASE, BASE)
    assert _told(tmp_path) == {}


@WRITERS
def test_neither_order_nor_spelling_is_a_difference(tmp_path: Path, write: Writer) -> None:
    other = {**dict(reversed(BASE.items())), "learning_rate": "1e-3", "bf16": "True", "layers_of_mine": [4, 2]}
    _pair(tmp_path, write, BASE, other)
    assert _told(tmp_path) == {}


@WRITERS
def test_defaults_written_out_are_no_difference(tmp_path: Path, write: Writer) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\nfrom transformers import Trainer, TrainingArguments\np = argparse.ArgumentParser()\n"
        'p.add_argument("--tail_of_mine", type=int, default=3)\np.add_argument("--quick", action="store_true")\n'
        'a = p.parse_args()\nx = vars(a).get("soft_of_mine", 0.5)\n'
    )
    other = {**BASE, "tail_of_mine": 3, "soft_of_mine": 0.50, "quick": False, "fp16": False}
    _pair(tmp_path, write, BASE, other)
    assert _told(tmp_path) == {}


@WRITERS
@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("learning_rate", 0.01, "learning_rate"), ("seed", 8, "seed"), ("temperature", 1.0, "temperature"),
        ("bf16", False, "bf16"), ("dropout_of_mine", 0.2, "other.dropout_of_mine"),
        ("layers_of_mine", [2, 6], "other.layers_of_mine"), ("model_name_or_path", "org/small", "model"),
    ],
)  # fmt: skip
def test_one_planted_difference_is_the_only_one(tmp_path: Path, write: Writer, key: str, value: Any, name: str) -> None:
    _pair(tmp_path, write, BASE, {**BASE, key: value})
    (told,) = _told(tmp_path).values()
    assert told["name"].endswith(name) and told["where"] == "a / bb" and "worse" not in told
    only = [e for e in compare_settings(Workspace([tmp_path], live=False)).evidence if "only" in e.key]
    assert {e.file.partition(".")[0] for e in only if e.file} == {"config_a", "config_bb"}


@WRITERS
def test_the_run_that_broke_is_the_worse_one(tmp_path: Path, write: Writer) -> None:
    _pair(tmp_path, write, {**BASE, "learning_rate": 0.1}, BASE, (DIED, LOG))
    assert _told(tmp_path)["learning_rate"] == {
        "name": "learning_rate", "a": 0.1, "b": 0.001, "where": "a / bb", "worse": "a"
    }  # fmt: skip


@WRITERS
def test_a_good_run_is_compared_alike(tmp_path: Path, write: Writer) -> None:
    sides = [(tmp_path / "here", BASE), (tmp_path / "there", {**BASE, "warmup_steps": 0})]
    for folder, settings in sides:
        folder.mkdir()
        suffix, text = write(settings, folder.name)
        (folder / f"config.{suffix}").write_text(text)
        (folder / "train.log").write_text(LOG)
    told = _told(tmp_path / "here", good=[tmp_path / "there"])
    assert told["warmup_steps"]["a"] == 0 and told["warmup_steps"]["where"] == "good / this run" and len(told) == 1
    assert "warmup_steps" in compare_runs(Workspace([tmp_path / "here"], good=[tmp_path / "there"], live=False)).text


# ----------
# What lies in one folder is no variant of anything.


def test_configs_of_which_one_is_used(tmp_path: Path) -> None:
    for n in range(12):
        (tmp_path / f"config_{n}.yaml").write_text(yaml.safe_dump({**BASE, "learning_rate": 0.001 * (n + 1)}))
    (tmp_path / "launch.sh").write_text("python train.py --config config_3.yaml > train.log\n")
    (tmp_path / "train.log").write_text(LOG)
    assert _told(tmp_path) == {}


def test_a_saved_copy_and_a_description_of_a_model(tmp_path: Path) -> None:
    out = tmp_path / "out" / "tb"
    out.mkdir(parents=True)
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(BASE))
    (tmp_path / "example.yaml").write_text(yaml.safe_dump({**BASE, "learning_rate": 0.5}))
    (out / "hparams.yaml").write_text(yaml.safe_dump({**BASE, "max_grad_norm": 0.5}))
    described = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "vocab_size": 100}
    (out / "config.json").write_text(json.dumps(described))
    (out / "metrics.csv").write_text("step,loss\n" + "".join(f"{n},{3 - 0.01 * n}\n" for n in range(60)))
    (tmp_path / "train.log").write_text(LOG)
    assert _told(tmp_path) == {}


def test_runs_of_two_programs(tmp_path: Path) -> None:
    for name, lr in (("a", 0.1), ("b", 0.2)):
        (tmp_path / f"launch_{name}.sh").write_text(f"python {name}_main.py --learning_rate {lr} > run_{name}.log\n")
        (tmp_path / f"run_{name}.log").write_text(LOG)
    assert _told(tmp_path) == {}


def test_words_of_a_vocabulary_are_no_settings(tmp_path: Path) -> None:
    for name, by in (("a", 1), ("b", 2)):
        (tmp_path / f"vocab_{name}.json").write_text(json.dumps({f"word{n}": n * by for n in range(60)}))
        (tmp_path / f"run_{name}.log").write_text(LOG)
    assert _told(tmp_path) == {}


def test_results_are_no_settings(tmp_path: Path) -> None:
    for name, loss in (("a", 1.2), ("b", 2.2)):
        end = f"{{'train_runtime': 12.{name == 'a':d}, 'train_samples_per_second': 68.1, 'train_loss': {loss}}}\n"
        (tmp_path / f"run_{name}.log").write_text(LOG + end)
    assert _told(tmp_path) == {}


def test_two_commands_of_one_script(tmp_path: Path) -> None:
    rows = [
        f"python train.py \\\n  --learning_rate {lr} --warmup_steps 5 \\\n  > sweep_{lr}.log 2>&1\n"
        for lr in (0.1, 0.3)
    ]
    (tmp_path / "launch.sh").write_text("".join(rows))
    for lr in (0.1, 0.3):
        (tmp_path / f"sweep_{lr}.log").write_text(LOG)
    assert list(_told(tmp_path)) == ["learning_rate"]


def test_a_next_stage_differs_in_what_it_takes_over(tmp_path: Path) -> None:
    later = {**BASE, "learning_rate": 1e-4, "seed": 9, "dropout_of_mine": 0.3, "start": "runs/base/w.pt"}
    for name, settings in {"pretrain": {**BASE, "out": "runs/base"}, "finetune": later}.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(settings))
        (tmp_path / f"{name}.log").write_text(LOG if name == "pretrain" else DIED)
    (told,) = _told(tmp_path).values()
    assert (told["name"], told["continues"]) == ("other.dropout_of_mine", "finetune") and "worse" not in told


def test_a_run_taken_up_again_is_no_variant_of_itself(tmp_path: Path) -> None:
    rows = ["--max_steps 60 > first.log", "--resume --max_steps 180 > second.log"]
    (tmp_path / "launch.sh").write_text("".join(f"python train.py --output_dir out --bf16 {row}\n" for row in rows))
    for name in ("first", "second"):
        (tmp_path / f"{name}.log").write_text(LOG)
    assert _told(tmp_path) == {}


def test_what_two_runs_wrote_are_no_further_runs(tmp_path: Path) -> None:
    rows = "".join(f'{{"step": {n}, "loss": {3 - 0.01 * n:.3f}}}\n' for n in range(60))
    for name, lr in (("base", 0.1), ("tuned", 0.2)):
        settings = {**BASE, "learning_rate": lr, "out": f"models/{name}"}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(settings))
        (tmp_path / f"{name}.log").write_text(LOG)
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(rows)
        (folder / "run.json").write_text(json.dumps({**settings, "seed": 7 + len(name)}))
    assert list(_told(tmp_path)) == ["learning_rate"]


def test_what_two_logs_count_is_compared(tmp_path: Path) -> None:
    for name, rows, port in (("a", 1400, 1), ("b", 160, 2)):
        head = f"[INFO] 18,090 parameters, {rows} train images\nlistening on port 2950{port} for 4 workers\n"
        (tmp_path / f"run_{name}.log").write_text(head + f"  Num Epochs = 3\n{rows} rows read in 1.{port} s\n" + LOG)
    found = compare_settings(Workspace([tmp_path], live=False)).evidence
    assert {(e.key, e.line, e.value["where"]) for e in found} == {("compare.counts_differ", 1, "a / b")}


def test_a_shared_config_that_was_edited_speaks_for_no_earlier_run(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("num_train_epochs: 3\nlearning_rate: 0.001\n")
    (tmp_path / "job-monday.log").write_text("  Num Epochs = 2\n" + LOG)
    (tmp_path / "job-tuesday.log").write_text("Traceback (most recent call last):\nOSError: no such file\n")
    assert compare_settings(Workspace([tmp_path], live=False)).evidence == []


def test_epochs_that_follow_from_the_steps_asked_for(tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text("python train.py --num_train_epochs 3 --max_steps 300 > train.log\n")
    (tmp_path / "train.log").write_text("***** Running training *****\n  Num Epochs = 50\n" + LOG)
    assert compare_settings(Workspace([tmp_path], live=False)).evidence == []
