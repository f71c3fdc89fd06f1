"""A setting changed on paper: conflicts that come and go, memory before and after, repairs that recommend it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.errors import ToolError
from traindoctor.agent.core.types import Evidence, ToolResult
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.settings.changed_settings import Supposed, changed, named_change
from traindoctor.agent.reading.settings.lints import lints
from traindoctor.agent.reading.settings.settings import read_settings
from traindoctor.agent.reading.settings.settings_map import settings_map
from traindoctor.agent.tools.settings.settings_tools import lint_settings
from traindoctor.agent.tools.settings.what_if import what_if
from traindoctor.agent.verdict.gate import verified

INCIDENTS = Path(__file__).resolve().parents[2] / "evals" / "incidents"
LAUNCH = """torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B --fp16 True \\
  --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --learning_rate 2e-5 --deepspeed ds.json
"""
DS = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
      "zero_optimization": {"stage": 2}, "fp16": {"enabled": True}}  # fmt: skip
MODEL = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Workspace:
    """Eight GPUs, fp16, a batch that adds up."""
    (tmp_path / "launch.sh").write_text(LAUNCH)
    (tmp_path / "ds.json").write_text(json.dumps(DS, indent=1))
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "train.log").write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free.\n"
    )
    return Workspace([tmp_path], live=False)


def suppose(ws: Workspace, setting: str, value: str) -> ToolResult:
    result = what_if(ws, setting=setting, value=value)
    assert verified(result.evidence, ws)[1] == 0
    return result


def found(result: ToolResult, name: str) -> list[Evidence]:
    return [e for e in result.evidence if e.key == f"what_if.{name}"]


def test_precision_takes_both_switches_along(job: Workspace) -> None:
    result = suppose(job, "precision", "bf16")
    assert {e.file for e in found(result, "set_now")} == {"launch.sh", "ds.json"}
    assert any("fp16" in e.text for e in found(result, "conflict_gone")) and not found(result, "new_conflict")
    assert "loss.fp16_overflow" in {e.value for e in found(result, "recommended_for")}
    assert all(e.kind == "document" for e in found(result, "recommended_for"))


def test_a_batch_that_no_longer_adds_up_is_a_new_conflict(job: Workspace) -> None:
    result = suppose(job, "per_device_train_batch_size", "8")
    conflict = next(e for e in found(result, "new_conflict") if e.value == "batch_arithmetic")
    assert "global batch 64" in conflict.text and conflict.kind == "document"
    assert {e.file for e in found(result, "conflict_line")} <= {"launch.sh", "ds.json"}
    batch = found(result, "batch")[0]
    assert "4 x accumulation 2 x 8 replicas = 64" in batch.text and "= 128" in batch.text
    assert found(result, "rate_of_former_batch")[0].file == "launch.sh"


def test_memory_before_and_after(job: Workspace) -> None:
    stage = found(suppose(job, "zero_stage", "3"), "memory")[0]
    assert "before" in stage.text and "79.1 GiB" in stage.text
    checkpointing, half = (
        found(suppose(job, *x), "memory")[0]
        for x in (("activation_checkpointing", "true"), ("micro_batch_size", "half"))
    )
    unchanged = found(suppose(job, "learning_rate", "1e-5"), "memory")[0]
    assert "stays at" in unchanged.text
    assert checkpointing.value < unchanged.value and half.value < unchanged.value  # type: ignore[operator]


def test_the_run_itself_is_not_changed(job: Workspace) -> None:
    before = {f.name: f.path.read_bytes() for f in job.files}
    first = lint_settings(job)
    suppose(job, "precision", "bf16")
    assert read_settings(job).value("precision") == "fp16"
    assert [e.as_dict() for e in lint_settings(job).evidence] == [e.as_dict() for e in first.evidence]
    assert {f.name: f.path.read_bytes() for f in job.files} == before


def test_the_lints_are_those_of_the_diagnostic(job: Workspace) -> None:
    told = {(e.key.removeprefix("lint."), e.value) for e in lint_settings(job).evidence}
    assert {(x.rule, x.says) for x in lints(job, read_settings(job))} == told


def test_what_nothing_reads_is_said(job: Workspace) -> None:
    result = suppose(job, "NCCL_TIMEOUT", "3600")
    assert "NCCL reads no variable" in result.summary and not found(result, "conflict_gone")


def test_a_variable_that_a_repair_sets(job: Workspace) -> None:
    result = suppose(job, "NCCL_P2P_DISABLE", "1")
    assert "dist.p2p_acs" in {e.value for e in found(result, "recommended_for")}


def test_a_setting_that_is_nowhere(job: Workspace) -> None:
    result = suppose(job, "gradient_clip_norm", "1.0")
    assert found(result, "set_now")[0].kind == "absent" and "now not set" in result.summary


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [("micro_batchsize_x", "4", "did you mean"), ("micro_batch_size", "many", "takes a number"),
     ("micro_batch_size", "2.5", "whole number"), ("fp16", "perhaps", "on or off"), ("warmup_steps", "double", "no one value")],
)  # fmt: skip
def test_what_cannot_be_supposed_is_one_line(job: Workspace, setting: str, value: str, says: str) -> None:
    with pytest.raises(ToolError, match=says):
        suppose(job, setting, value)


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [("sequence_length", "-5", "1 to 16 000 000"), ("micro_batch_size", "9" * 26, "1 to 1 000 000"),
     ("world_size", "0", "possible is 1 to"), ("precision", "bananas", "possible are .*bf16, fp16, fp32"),
     ("precision", "", "no value is given"), ("learning_rate", "-1", "possible is 0 to 10"), ("lr", "nan", "no finite number"),
     ("lr", "1e999", "no finite number"), ("micro_batch_size", "0", "possible is 1"), ("per_device_train_batch_size", "-4", "possible is 1"),
     ("micro_batch_size", "/0", "above 0"), ("micro_batch_size", "x0", "above 0"), ("micro_batch_size", "x9999999", "possible is 1"),
     ("zero_stage", "9", "possible is 0 to 3"), ("--zero-stage", "-2", "possible is 0 to 3"), ("tensor_parallel", "0", "possible is 1"),
     ("dataloader_workers", "-3", "possible is 0"), ("dropout", "1.5", "possible is 0 to 1")],
)  # fmt: skip
def test_a_value_that_cannot_be_is_refused_with_what_can(job: Workspace, setting: str, value: str, says: str) -> None:
    with pytest.raises(ToolError, match=says) as refused:
        suppose(job, setting, value)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 200


def test_a_framework_s_own_word_for_unset_can_be(job: Workspace) -> None:
    assert "max_steps = -1" in suppose(job, "max_steps", "-1").summary
    with pytest.raises(ToolError):
        suppose(job, "max_steps", "-7")


def test_the_limits_of_the_map_allow_its_defaults() -> None:
    for c in settings_map().canonical.values():
        assert c.low is None or c.high is None or c.low < c.high, c.name
        numbers = [d for d in c.default.values() if isinstance(d, int | float) and not isinstance(d, bool) and d != -1]
        assert all((c.low is None or d >= c.low) and (c.high is None or d <= c.high) for d in numbers), c.name


@pytest.mark.parametrize("spelled", ["lr", "--learning_rate", "learning-rate", "LEARNING_RATE", "learning_rate"])
def test_any_spelling_is_the_same_setting(job: Workspace, spelled: str) -> None:
    change = named_change(job, spelled, "1e-5")
    assert (change.name, change.before, change.after) == ("learning_rate", 2e-5, 1e-5)


def test_what_the_log_printed_gives_way(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(
        "[INFO] learning_rate: 0.001\nTrainingArguments(\nlearning_rate=0.001,\nmax_grad_norm=1.0,\n)\n"
    )
    ws = Workspace([tmp_path], live=False)
    reading = changed(read_settings(ws), named_change(ws, "lr", "1e-4"))
    assert {s.value for s in reading.all if s.name == "learning_rate"} == {1e-4}
    assert Supposed(ws, reading).memo("settings", dict) is reading


@pytest.mark.parametrize("path", sorted(INCIDENTS.iterdir()), ids=lambda p: p.name)
def test_on_real_runs(path: Path) -> None:
    ws = Workspace([path / "files"], live=False)
    for setting, value in (
        ("precision", "bf16"),
        ("micro_batch_size", "2"),
        ("zero_stage", "3"),
        ("learning_rate", "1e-6"),
    ):
        result = suppose(ws, setting, value)
        assert result.outcome in ("finding", "clean") and setting in result.summary


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(st.text(max_size=40), st.sampled_from(sorted(settings_map().canonical))),
    st.one_of(st.text(max_size=30), st.sampled_from(["true", "off", "0", "-1", "1e999", "nan", "half", "x0", "/0", "x2", "[1,2", "auto"])),
)  # fmt: skip
def test_any_setting_and_value(setting: str, value: str) -> None:
    ws = Workspace([INCIDENTS / "loss-pegasus-pretrain-inf" / "files"], live=False)
    try:
        result = suppose(ws, setting, value)
    except ToolError as e:
        assert "\n" not in str(e)
    else:
        assert result.outcome in ("finding", "clean") and result.summary
