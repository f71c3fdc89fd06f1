"""What is said beside a repair: what it risks, and how a framework writes what no file of the run takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from traindoctor.agent.core.playbook import KNOWLEDGE, playbooks

from tests.repair.treatment.runs import fix_named, repairs, run_of

TABLE = yaml.safe_load((KNOWLEDGE / "treatment.yaml").read_text(encoding="utf-8"))
FIXES = [(p.slug, f) for p in playbooks() for f in p.fixes]
DESTROYS = re.compile(
    r"rm -rf|\bmv ~|rmmod|\breboot$|power cycle|gpu-reset|setpci|state=drain|nvidia-smi .*-(pl|lgc)|tee /etc|pip install -U \w+ \w+"
)


def test_every_setting_and_variable_that_a_repair_changes_says_what_it_risks() -> None:
    settings = {name for _, f in FIXES for name in f.settings}
    variables = {name for _, f in FIXES for name in f.env}
    assert settings - TABLE["risks"].keys() == set() and variables - TABLE["variables"].keys() == set()


def test_a_command_that_destroys_something_says_so() -> None:
    unsaid = [(slug, c) for slug, f in FIXES for c in f.commands if DESTROYS.search(c) and not f.risk]
    assert unsaid == []


def test_power_is_never_cut_from_the_machine_one_sits_at() -> None:
    cuts = [c for _, f in FIXES for c in f.commands if "ipmitool" in c and "power" in c]
    assert cuts and [c for c in cuts if " -H <" not in c] == []


def test_a_bound_on_what_is_not_known_says_its_risk(tmp_path: Path) -> None:
    ws = run_of(tmp_path, {"train.sh": "python train.py --output_dir out --per_device_train_batch_size 4\n"})
    report = repairs(ws, "dist/timeout_too_short")
    fix = report.fixes[fix_named(report, "Raise the timeout")]
    assert fix.risk == TABLE["risks"]["nccl_timeout"]["up"]


@pytest.mark.parametrize(("slug", "fix", "word"), [
    ("loss/fp16_overflow", "Train in bf16", "--bf16 True"),
    ("env/watchdog_kill", "Let engines", "export VLLM_ENGINE_READY_TIMEOUT_S=3600"),
    ("memory/optimizer_states", "Shard over", '{"zero_optimization": {"stage": 3}}'),
])  # fmt: skip
def test_what_no_file_takes_is_said_in_words_that_a_framework_reads(tmp_path, slug, fix, word):
    report = repairs(run_of(tmp_path, {}), slug)
    assert any(word in h.text for h in report.fixes[fix_named(report, fix)].by_hand)


def test_without_workers_the_loader_keeps_nothing_that_needs_them(tmp_path: Path) -> None:
    call = "TrainingArguments(output_dir='o', dataloader_num_workers=4, dataloader_prefetch_factor=4)"
    ws = run_of(tmp_path, {"train.py": f"from transformers import TrainingArguments\nargs = {call}\n"})
    report = repairs(ws, "data/loader_crash")
    fix = report.fixes[fix_named(report, "Take the workers out")]
    (patch,) = [p for p in report.patches if p.id in fix.patches]
    added = [line for line in patch.diff.split("\n") if line.startswith("+args")]
    assert added == ["+args = TrainingArguments(output_dir='o', dataloader_num_workers=0)"]


def test_what_nothing_sets_is_not_said_to_be_off(tmp_path: Path) -> None:
    report = repairs(run_of(tmp_path, {}), "memory/host_pinned")
    why = report.fixes[fix_named(report, "Do not pin")].why
    assert "has this already" not in why and "on by default" in why


def test_a_repair_comes_before_what_only_helps_to_find_the_cause(tmp_path: Path) -> None:
    script = "#!/bin/bash\ntorchrun --nproc_per_node 2 train.py --ddp_find_unused_parameters False\n"
    report = repairs(run_of(tmp_path, {"launch.sh": script}), "dist/unused_parameters")
    patched = [f for f in report.fixes if f.patches]
    assert [f.finds for f in patched] == [False, True]
    assert patched[1].named == f"A help, no repair: {patched[1].title}"
