"""What does not go together: a README and the settings, weights and moments, records and their count, wishes and data."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies
from traindoctor.agent.tools.data.dataset_tools import check_data_files
from traindoctor.agent.tools.logs.log_tools import scan_logs
from traindoctor.agent.tools.settings.environment_tools import environment
from traindoctor.agent.tools.settings.settings_tools import compare_settings

from tests.tools.captured import look

SETTINGS = "lr: 1.0\nbptt: 35\nnhid: 96\nclip: {clip}\nepochs: 12\n"


@pytest.mark.parametrize(
    ("config", "struck"),
    [
        ("resume:\n  weights: runs/a/weights-300.pt\n  optimizer: runs/b/optim-300.pt\n", True),
        ("resume_model_path: out/model_4000.pth\nresume_optimizer_path: out/optimizer_1000.pth\n", True),
        ("resume:\n  weights: runs/a/weights-300.pt\n  optimizer: runs/a/optim-300.pt\n", False),
        ("load_model: ckpt/step-500/model/part.pt\nload_optimizer: ckpt/step-500/optimizer/part.pt\n", False),
        ("resume:\n  weights: runs/a/weights-300.pt\noptimizer: adamw\n", False),
        ("resume:\n  weights: runs/a/base-70b.pt\n  optimizer: runs/a/optim-300.pt\n", False),  # a size, no step
        ("model: hub/base/model.safetensors\noptimizer: adamw_bnb_8bit\n", False),
    ],
)
def test_weights_and_moments_of_two_runs(tmp_path: Path, config: str, struck: bool) -> None:
    (tmp_path / "conf.yaml").write_text("lr: 3.0e-4\n" + config)
    (tmp_path / "train.log").write_text("".join(f"step {n} loss {1 / n:.4f}\n" for n in range(1, 20)))
    assert bool(look(find_anomalies, tmp_path).values("resume.optimizer_elsewhere")) is struck


@pytest.mark.parametrize(
    ("told", "config", "struck"),
    [
        ("  Num examples = 310", "max_target_length: 6\n", True),
        ("INFO trainer: Number of training samples: 310", "cutoff: 6\n", True),
        ("train dataset size: 310", "lr: 1.0e-3\n", True),
        ("  Num examples = 950", "lr: 1.0e-3\n", False),  # a part is held out
        ("  Num examples = 500", "lr: 1.0e-3\n", False),  # one rank of two
        ("  Num examples = 310", "packing: true\n", False),
        ("  Num examples = 310", "max_train_samples: 310\n", False),
        ("  Num eval examples = 310", "lr: 1.0e-3\n", False),
    ],
)
def test_far_fewer_examples_than_records(tmp_path: Path, told: str, config: str, struck: bool) -> None:
    rows = "".join(f'{{"text": "number {n}", "label": {n % 7}}}\n' for n in range(1000))
    (tmp_path / "train.jsonl").write_text(rows)
    (tmp_path / "conf.yaml").write_text(config)
    (tmp_path / "train.log").write_text(f"***** Running training *****\n{told}\nstep 1 loss 2.0\n")
    assert look(check_data_files, tmp_path).values("data.fewer_than_records") == ([310, 310] if struck else [])


@pytest.mark.parametrize(
    "rows",
    [
        "".join(f'{{"dialogue": {n // 3 - n // 900}, "text": "turn {n}"}}\n' for n in range(930)),
        "".join(f'{{"text": "line {n % 310}"}}\n' for n in range(1000)),  # the same ones again
    ],
)
def test_rows_that_belong_together_are_no_loss(tmp_path: Path, rows: str) -> None:
    (tmp_path / "train.jsonl").write_text(rows)
    (tmp_path / "train.log").write_text("  Num examples = 310\nstep 1 loss 2.0\n")
    assert not look(check_data_files, tmp_path).values("data.fewer_than_records")


def test_a_token_a_line_is_no_sample(tmp_path: Path) -> None:
    words = "".join(f"word{n}\tO\n" + ("\n" if n % 9 == 8 else "") for n in range(1000))
    (tmp_path / "train.tsv").write_text(words)
    (tmp_path / "train.log").write_text("  Num examples = 112\nstep 1 loss 2.0\n")
    assert not look(check_data_files, tmp_path).values("data.fewer_than_records")


@pytest.mark.parametrize(
    ("code", "key", "found"),
    [
        ('words = (row["subject"] + row["body"]).split()', "body", ["body"]),
        ("x = encode(example['abstract'])", "abstract", ["abstract"]),
        ('lr = config["peak"]', "peak", []),
        ('w = state_dict["head"]', "head", []),
        ("x = lookup(row[name])", "body", []),
    ],
)
def test_a_field_that_a_record_lacks(tmp_path: Path, code: str, key: str, found: list[str]) -> None:
    log = f'step 3 loss 2.1\nTraceback (most recent call last):\n  File "/data/train.py", line 26, in encode\n    {code}\n'
    (tmp_path / "train.log").write_text(f"{log}KeyError: '{key}'\n")
    assert look(scan_logs, tmp_path).values("error.record_key") == found


@pytest.mark.parametrize(
    ("said", "cut"),
    [
        ("longest tokenized example: 1024", 1024),
        ("max tokens per sample = 512", 512),
        ("longest tokenized example: 1007", None),  # as long as the data are
        ("longest tokenized example: 16384", None),
        ("max_seq_length: 1024", None),  # a setting
    ],
)
def test_samples_cut_at_a_default_length(tmp_path: Path, said: str, cut: int | None) -> None:
    (tmp_path / "args.json").write_text('{"max_seq_length": 16384}')
    (tmp_path / "train.log").write_text(f"{said}\n{{'loss': 1.2, 'epoch': 0.1}}\n")
    values = look(compare_settings, tmp_path).values("compare.asked_not_done")
    assert {v["done"] for v in values} == ({cut} if cut else set())


def test_a_conflict_of_the_packages_from_before_is_none_of_now(tmp_path: Path) -> None:
    (tmp_path / "args.json").write_text('{"gradient_accumulation_steps": 8}')
    (tmp_path / "pip-before.txt").write_text("torch==2.6.0\ntransformers==4.48.3\n")
    assert look(environment, tmp_path).values("env.package_conflict")
    (tmp_path / "pip-after.txt").write_text("torch==2.7.0\ntransformers==4.52.4\n")
    assert not look(environment, tmp_path).values("env.package_conflict")
