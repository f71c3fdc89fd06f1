"""Repairs on the run's own files: which files, what each becomes, and what is not offered."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from tests.repair.treatment.runs import LOG, fix_named, made, repairs, run_of

LAUNCH = """#!/bin/bash
#SBATCH --gres=gpu:8
# the big run
torchrun --nproc_per_node 8 train.py \\
    --model_name_or_path gpt2 --per_device_train_batch_size 8 \\
    --gradient_accumulation_steps 2 --learning_rate 2e-5 \\
    --fp16 True --deepspeed ds.json
"""
DS = """{
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 2,
  "fp16": {"enabled": true, "loss_scale_window": 1000},
  "zero_optimization": {"stage": 2}
}
"""
HF = """\
# what we run at night
model_name_or_path: gpt2
per_device_train_batch_size: 8   # fits with 40 GB
gradient_accumulation_steps: 2
learning_rate: 2.0e-5
num_train_epochs: 3
fp16: true
"""


def test_a_batch_is_halved_in_every_file_that_holds_it(tmp_path: Path) -> None:
    ws = run_of(tmp_path, {"launch.sh": LAUNCH, "ds.json": DS})
    report = repairs(ws, "memory/batch_too_large")
    texts = made(ws, report, fix_named(report, "Halve"))
    assert json.loads(texts["ds.json"])["train_micro_batch_size_per_gpu"] == 4
    assert json.loads(texts["ds.json"])["gradient_accumulation_steps"] == 4
    assert "--per_device_train_batch_size 4" in texts["launch.sh"]
    assert "--gradient_accumulation_steps 4" in texts["launch.sh"]
    assert texts["launch.sh"].count("\n") == LAUNCH.count("\n")


def test_precision_is_switched_in_both_files_or_nowhere(tmp_path: Path) -> None:
    ws = run_of(tmp_path, {"launch.sh": LAUNCH, "ds.json": DS})
    report = repairs(ws, "loss/fp16_overflow")
    fix = fix_named(report, "Train in bf16")
    assert len(report.fixes[fix].patches) == 2
    texts = made(ws, report, fix)
    config = json.loads(texts["ds.json"])
    assert config["fp16"]["enabled"] is False and config["bf16"]["enabled"] is True
    assert "--fp16 False" in texts["launch.sh"] and "--bf16 True" in texts["launch.sh"]


def test_each_patch_is_for_the_bytes_that_stand_there_and_says_what_it_risks(tmp_path: Path) -> None:
    ws = run_of(tmp_path, {"train.yaml": HF})
    report = repairs(ws, "loss/lr_too_high")
    assert report.patches
    for patch in report.patches:
        assert patch.sha256 == hashlib.sha256((tmp_path / patch.file).read_bytes()).hexdigest()
        assert patch.why and patch.risk and patch.verify and patch.edits and patch.by == "playbook"
    lower = made(ws, report, fix_named(report, "Lower the peak"))["train.yaml"]
    assert yaml.safe_load(lower)["learning_rate"] == 6e-6
    assert [a for a, b in zip(HF.split("\n"), lower.split("\n"), strict=True) if a != b] == ["learning_rate: 2.0e-5"]


def test_what_the_run_has_already_comes_last_and_has_no_patch(tmp_path: Path) -> None:
    ws = run_of(tmp_path, {"train.yaml": HF + "max_grad_norm: 0.5\n"})
    report = repairs(ws, "loss/gradient_explosion")
    last = report.fixes[-1]
    assert last.title.startswith("Clip") and not last.patches and last.why.startswith("The run has this already")


@pytest.mark.parametrize(
    "name", ["wandb/run-1/files/config.yaml", ".hydra/config.yaml", "lightning_logs/version_0/hparams.yaml"]
)
def test_a_record_of_the_run_is_never_changed(tmp_path: Path, name: str) -> None:
    ws = run_of(tmp_path, {name: HF})
    report = repairs(ws, "loss/lr_too_high")
    assert not report.patches and any("only records" in h.why for f in report.fixes for h in f.by_hand)


ARGS = '{"per_device_train_batch_size": 512, "gradient_accumulation_steps": 1, "learning_rate": 0.0005}\n'


@pytest.mark.parametrize("launch", [
    "python train.py args.json > a.log", "torchrun --nproc-per-node 2 \\\n  train.py ./args.json data.txt",
    "python -u t.py --config=args.json",
])  # fmt: skip
def test_a_file_called_like_a_record_that_the_launch_reads_is_changed(tmp_path: Path, launch: str) -> None:
    report = repairs(run_of(tmp_path, {"args.json": ARGS, "launch.sh": f"#!/bin/bash\n{launch}\n"}), "loss/lr_too_high")
    assert {p.file for p in report.patches} == {"args.json"}


@pytest.mark.parametrize(
    "launch",
    ["python train.py > args.json", "python train.py tune.yaml  # see args.json", "# python train.py args.json", "cat args.json",
     "python train.py && rm args.json", "python make.py; cat args.json",
     "python train.py my_args.json", "python train.py args.json.bak"],
)  # fmt: skip
def test_a_record_that_the_launch_does_not_read_is_left(tmp_path: Path, launch: str) -> None:
    report = repairs(run_of(tmp_path, {"args.json": ARGS, "launch.sh": f"#!/bin/bash\n{launch}\n"}), "loss/lr_too_high")
    assert "args.json" not in {p.file for p in report.patches}
    state = ARGS.replace("}", ', "_n_gpu": 1}')
    report = repairs(
        run_of(tmp_path, {"args.json": state, "launch.sh": "python train.py args.json\n"}), "loss/lr_too_high"
    )
    assert "args.json" not in {p.file for p in report.patches}


def test_the_healthy_run_beside_it_is_never_changed(tmp_path: Path) -> None:
    from traindoctor.agent.reading.run.workspace import Workspace

    run_of(tmp_path / "bad", {"train.yaml": HF})
    run_of(tmp_path / "good", {"train.yaml": HF.replace("2.0e-5", "1.0e-5")})
    ws = Workspace([tmp_path / "bad"], good=[tmp_path / "good"], live=False)
    report = repairs(ws, "loss/lr_too_high")
    assert report.patches and all(p.file.startswith("r1/") for p in report.patches)


@pytest.mark.parametrize("proof", ["", "train.log", "train.yaml"])
def test_an_earlier_run_kept_inside_this_one_is_never_changed(tmp_path: Path, proof: str) -> None:
    inside = {"last-week/train.yaml": HF, "last-week/train.log": LOG, "more/old/train.yaml": HF, "more/old/a.log": LOG}
    report = repairs(run_of(tmp_path, {"train.yaml": HF, **inside}), "loss/lr_too_high", proof=proof)
    assert {p.file for p in report.patches} == {"train.yaml"}


def test_a_run_inside_that_is_the_one_that_failed_is_repaired(tmp_path: Path) -> None:
    files = {"train.yaml": HF, "second/train.yaml": HF, "second/train.log": LOG}
    report = repairs(run_of(tmp_path, files), "loss/lr_too_high", proof="second/train.log")
    assert "second/train.yaml" in {p.file for p in report.patches}


def test_a_folder_of_configs_and_one_with_no_twin_further_out_are_the_runs_own(tmp_path: Path) -> None:
    files = {"conf/train.yaml": HF, "stage/tune.yaml": HF, "stage/tune.log": LOG}
    report = repairs(run_of(tmp_path, files), "loss/lr_too_high", proof="train.log")
    assert {p.file for p in report.patches} == {"conf/train.yaml", "stage/tune.yaml"}


def test_a_sum_that_would_not_come_out_is_not_offered(tmp_path: Path) -> None:
    whole = json.loads(DS) | {"train_batch_size": 48, "train_micro_batch_size_per_gpu": 3}
    ws = run_of(tmp_path, {"ds.json": json.dumps(whole, indent=2), "launch.sh": "deepspeed --num_gpus 8 train.py\n"})
    report = repairs(ws, "speed/small_batch")
    fix = report.fixes[fix_named(report, "Bigger micro-batch")]
    told = [h.why for h in fix.by_hand]
    assert fix.patches or told
    texts = made(ws, report, fix_named(report, "Bigger micro-batch"))
    config = json.loads(texts["ds.json"])
    sizes = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 8
    assert sizes == 48 or texts["ds.json"] == json.dumps(whole, indent=2)


@pytest.mark.parametrize("status", ["healthy", "insufficient_evidence"])
def test_without_a_verdict_nothing_is_repaired(tmp_path: Path, status: str) -> None:
    ws = run_of(tmp_path, {"train.yaml": HF})
    assert not repairs(ws, "loss/lr_too_high", status).patches


def test_a_run_of_logs_alone_gets_the_words_of_its_framework(tmp_path: Path) -> None:
    ws = run_of(tmp_path, {})
    report = repairs(ws, "memory/eval_no_grad")
    assert not report.patches
    assert any("eval_accumulation_steps" in h.text for f in report.fixes for h in f.by_hand)


def test_of_two_names_of_one_file_one_is_patched(tmp_path: Path) -> None:
    from traindoctor.agent.reading.run.workspace import Workspace

    run_of(tmp_path, {"real.yaml": HF})
    (tmp_path / "a.yaml").symlink_to("real.yaml")
    report = repairs(Workspace([tmp_path], live=False), "loss/lr_too_high")
    assert {p.file for p in report.patches} == {"real.yaml"}


@pytest.mark.parametrize("data", [b"\xff\xfe\x00l\x00r\x00", b"learning_rate: 1e-4\xff\n", b"", b"\0" * 64])
def test_a_file_that_is_no_text_is_left_alone(tmp_path: Path, data: bytes) -> None:
    run_of(tmp_path, {})
    (tmp_path / "train.yaml").write_bytes(data)
    from traindoctor.agent.reading.run.workspace import Workspace

    assert not repairs(Workspace([tmp_path], live=False), "loss/lr_too_high").patches


def test_a_fault_while_patching_costs_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from traindoctor.agent.core.events import ReportReady
    from traindoctor.agent.session import conclude, session

    def broken(*_: object) -> None:
        raise KeyError("lr")

    monkeypatch.setattr(conclude, "treat", broken)
    ws = run_of(tmp_path / "run", {"train.yaml": HF, "train.log": "torch.OutOfMemoryError: CUDA out of memory.\n"})
    events = list(session.diagnose(ws, "why did it die?", state=tmp_path / "state"))
    assert isinstance(events[-1], ReportReady)
    report = events[-1].report
    assert report.root_cause.id and not report.patches
    assert any("this is a bug in doctor" in d for d in report.meta.degraded)
