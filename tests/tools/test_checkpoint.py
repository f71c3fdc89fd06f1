"""Checkpoints that the frameworks themselves wrote: whole ones come out clean, each damage is found and named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from traindoctor.agent.core.deadline import Deadline
from traindoctor.agent.core.errors import ToolError
from traindoctor.agent.core.types import ToolResult
from traindoctor.agent.reading.checkpoints.checks.checks_verdict import judged
from traindoctor.agent.reading.checkpoints.layouts import checkpoints
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.weights.checkpoint_tools import list_checkpoints, verify_checkpoint

from tests.reading.checkpoints.damage import NEWEST, change, cut, overwrite, poison, weights
from tests.reading.checkpoints.makers import MADE_BY, copy, made

LAYER = {"hf": "layers.1.mlp.up_proj", "hf_gpt2": "h.1.mlp.c_fc.weight", "hf_sharded": "mlp.up_proj", "peft": "lora_A",
         "zero1": "module.1.weight", "zero2": "module.1.weight", "zero3": "fp32_flat_groups", "dcp": "model.1.weight",
         "lightning": "state_dict.model.1.weight", "torch": "model.1.weight", "megatron": "layers.1.mlp",
         "megatron_dist": "decoder.layers.1"}  # fmt: skip
LOST = {"hf": "model.safetensors", "hf_sharded": "model-00002-of-00002.safetensors", "peft": "adapter_model.safetensors",
        "zero1": "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", "zero2": "mp_rank_00_model_states.pt",
        "zero3": "zero_pp_rank_1_mp_rank_00_model_states.pt", "dcp": "__1_0.distcp",
        "megatron": "mp_rank_01/model_optim_rng.pt", "megatron_dist": "__0_0.distcp"}  # fmt: skip


def verified(run: Path, **arguments: str) -> ToolResult:
    result = verify_checkpoint(Workspace([run]), **arguments)
    assert all(verify_checkpoint.allows(e.key) for e in result.evidence)
    return result


def listed(run: Path) -> ToolResult:
    result = list_checkpoints(Workspace([run]))
    assert all(list_checkpoints.allows(e.key) for e in result.evidence)
    return result


def keys(result: ToolResult) -> set[str]:
    return {e.key.removeprefix("checkpoint.") for e in result.evidence if e.kind != "absent"}


def verdicts(result: ToolResult) -> dict[str, str]:
    """Word by the name of the checkpoint."""
    return {e.member or "": str(e.value) for e in result.evidence if e.key == "checkpoint.verdict"}


def fell_back(result: ToolResult) -> object:
    return next(e.value for e in result.evidence if e.key == "checkpoint.last_clean")


@pytest.mark.parametrize("kind", MADE_BY)
def test_what_a_framework_wrote_is_clean(kind: str) -> None:
    result = verified(made(kind))
    assert result.outcome == "clean", result.text
    assert set(verdicts(result).values()) == {"clean"}
    quick = listed(made(kind))
    assert quick.outcome == "clean", quick.text


@pytest.mark.parametrize("kind", NEWEST)
def test_a_truncated_file_is_found(kind: str, tmp_path: Path) -> None:
    run = copy(kind, tmp_path)
    cut(weights(run, kind))
    result = verified(run)
    assert result.outcome == "finding"
    assert verdicts(result)[NEWEST[kind]] == "damaged"
    assert "truncated" in keys(result), result.text
    if weights(run, kind).suffix != ".distcp":
        assert "truncated" in keys(listed(run))
    assert fell_back(result) != NEWEST[kind]


@pytest.mark.parametrize("kind", LOST)
def test_a_missing_shard_is_found_by_names_alone(kind: str, tmp_path: Path) -> None:
    run = copy(kind, tmp_path)
    (run / NEWEST[kind] / LOST[kind]).unlink()
    for result in (listed(run), verified(run)):
        assert "missing_shard" in keys(result), result.text
    assert verdicts(verified(run))[NEWEST[kind]] == "damaged"


@pytest.mark.parametrize("kind", NEWEST)
def test_nan_in_a_weight_is_found(kind: str, tmp_path: Path) -> None:
    run = copy(kind, tmp_path)
    name = overwrite(run, kind, LAYER[kind], float("nan"))
    result = verified(run)
    found = [e for e in result.evidence if e.key == "checkpoint.nonfinite"]
    assert [e.member for e in found] == [name], result.text
    assert found[0].kind == "binary" and isinstance(found[0].value, int)
    assert verdicts(result)[NEWEST[kind]] == "damaged"
    assert list(verdicts(result).values()).count("clean") == len(verdicts(result)) - 1


@pytest.mark.parametrize("kind", sorted(set(NEWEST) - {"peft"}))
def test_a_zeroed_layer_is_found(kind: str, tmp_path: Path) -> None:
    run = copy(kind, tmp_path)
    name = overwrite(run, kind, LAYER[kind], 0.0)
    result = verified(run)
    assert [e.member for e in result.evidence if e.key == "checkpoint.zero_tensor"] == [name], result.text


def test_pages_that_were_never_written_are_found(tmp_path: Path) -> None:
    run = tmp_path / "run" / "checkpoint-5"
    run.mkdir(parents=True)
    weights = {f"layers.{n}.mlp.weight": torch.randn(256, 512) for n in range(6)}
    save_file(weights, run / "model.safetensors", {"format": "pt"})
    with (run / "model.safetensors").open("r+b") as f:
        f.seek(40 * 4096)
        f.write(bytes(5 * 4096))
    found = [e for e in verified(run.parent).evidence if e.key == "checkpoint.zero_block"]
    assert [e.value for e in found] == [5 * 1024] and "never written" in found[0].text
    assert verdicts(verified(run.parent)) == {"checkpoint-5": "damaged"}
    weights["layers.3.mlp.weight"][7:12] = 0  # rows that died are no hole
    save_file(weights, run / "model.safetensors", {"format": "pt"})
    assert "zero_block" in keys(verified(run.parent))
    assert verdicts(verified(run.parent)) == {"checkpoint-5": "clean"}


def test_constant_and_huge_tensors_are_found(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    overwrite(run, "hf", "layers.0.mlp.up_proj", 0.25)
    overwrite(run, "hf", "layers.0.self_attn.k_proj", 3e30)
    assert {"constant_tensor", "huge_tensor"} <= keys(verified(run))


@pytest.mark.parametrize(("kind", "tracker", "text"), [
    ("zero2", "latest", "global_step7"), ("megatron", "latest_checkpointed_iteration.txt", "7"),
    ("megatron_dist", "latest_checkpointed_iteration.txt", "7"), ("zero3", "latest", ""),
])  # fmt: skip
def test_a_tracker_that_names_nothing_is_found(kind: str, tracker: str, text: str, tmp_path: Path) -> None:
    run = copy(kind, tmp_path)
    (run / tracker).write_text(text)
    result = listed(run)
    assert "tracker_mismatch" in keys(result), result.text
    assert "tracker_mismatch" in keys(verified(run))
    assert set(verdicts(verified(run)).values()) == {"clean"}


def test_a_tracker_that_stayed_behind_is_told(tmp_path: Path) -> None:
    run = copy("zero1", tmp_path)
    (run / "latest").write_text("global_step1")
    assert "1 tracker stale" in listed(run).summary


@pytest.mark.parametrize("kind", ["hf", "hf_gpt2", "peft", "zero1", "zero3", "lightning", "torch", "megatron"])
def test_a_missing_optimizer_is_found(kind: str, tmp_path: Path) -> None:
    run = copy(kind, tmp_path)
    newest = run / NEWEST[kind]
    if kind in ("lightning", "torch", "megatron"):
        for path in newest.rglob("*.pt") if newest.is_dir() else [newest]:
            change(path, lambda s: {k: v for k, v in s.items() if not k.startswith("optimizer")})
    else:
        for path in newest.glob("*optim*"):
            path.unlink()
    result = verified(run)
    assert "no_optimizer" in keys(result), result.text
    assert verdicts(result)[NEWEST[kind]] == "damaged"


def test_the_scheduler_random_state_and_progress_are_missed(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    for name in ("scheduler.pt", "rng_state.pth", "trainer_state.json"):
        (run / "checkpoint-4" / name).unlink()
    assert {"no_scheduler", "no_rng", "unfinished"} <= keys(listed(run))


@pytest.mark.parametrize(
    "kind", ["hf", "peft", "zero1", "zero3", "lightning", "torch", "megatron", "dcp", "megatron_dist"]
)
def test_parts_of_another_step_are_found(kind: str, tmp_path: Path) -> None:
    run = copy(kind, tmp_path)
    newest = run / NEWEST[kind]
    if kind in ("hf", "peft"):
        shutil.copy(run / "checkpoint-2" / "optimizer.pt", newest / "optimizer.pt")
    elif kind.startswith("zero"):
        for path in (run / "global_step1").glob("*optim_states.pt"):
            shutil.copy(path, newest / path.name)
    elif kind == "dcp":
        shutil.rmtree(newest)
        shutil.copytree(run / "step-2", newest)
    elif kind == "megatron_dist":
        shutil.copy(run / "iter_0000002" / "common.pt", newest)
    else:
        key = {"lightning": "global_step", "torch": "step", "megatron": "iteration"}[kind]
        change(newest if newest.is_file() else newest / "mp_rank_00/model_optim_rng.pt", lambda s: s.update({key: 2}))
    result = verified(run)
    assert "step_disagrees" in keys(result), result.text
    assert verdicts(result)[NEWEST[kind]] == "damaged"


@pytest.mark.parametrize("kind", ["zero1", "zero3", "megatron"])
def test_a_rank_with_the_file_of_another_is_found(kind: str, tmp_path: Path) -> None:
    run = copy(kind, tmp_path)
    one, two = sorted(f for f in (run / NEWEST[kind]).rglob("*.pt") if "optim" in f.name)[:2]
    shutil.copy(one, two)
    assert "duplicate_shard" in keys(verified(run))


@pytest.mark.parametrize(("kind", "file", "other"), [
    ("hf", "optimizer.pt", "scheduler.pt"), ("hf", "scheduler.pt", "rng_state.pth"), ("hf", "rng_state.pth", "optimizer.pt"),
    ("peft", "optimizer.pt", "training_args.bin"), ("hf", "optimizer.pt", "model.safetensors"),
    ("zero2", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt"),
])  # fmt: skip
def test_a_file_in_the_place_of_another_is_found(kind: str, file: str, other: str, tmp_path: Path) -> None:
    run = copy(kind, tmp_path)
    shutil.copy(run / NEWEST[kind] / other, run / NEWEST[kind] / file)
    assert "wrong_content" in keys(verified(run))


def test_one_rank_of_an_earlier_save_is_found(tmp_path: Path) -> None:
    run = copy("zero2", tmp_path)
    name = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    shutil.copy(run / "global_step1" / name, run / "global_step2" / name)
    result = verified(run)
    assert "step_disagrees" in keys(result), result.text


@pytest.mark.parametrize("kind", ["hf", "zero1", "lightning", "torch", "megatron"])
def test_a_pickle_that_calls_is_named_and_not_called(kind: str, tmp_path: Path) -> None:
    run, canary = copy(kind, tmp_path), tmp_path / "canary"
    path = run / NEWEST[kind] / "optimizer.pt" if kind == "hf" else weights(run, kind)
    poison(path, canary)
    result = verified(run)
    found = [e for e in result.evidence if e.key == "checkpoint.unsafe_global"]
    assert found and "system" in found[0].text
    assert verdicts(result)[NEWEST[kind]] == "damaged"
    assert not canary.exists()


def test_shapes_are_held_against_the_config(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    config = run / "checkpoint-4" / "config.json"
    known = json.loads(config.read_text())
    config.write_text(json.dumps({**known, "vocab_size": 120, "num_hidden_layers": 3, "hidden_size": 48}))
    assert {"vocab_mismatch", "shape_mismatch"} <= keys(verified(run))


def test_the_last_clean_checkpoint_precedes_the_first_anomaly(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    steps = [{"step": s, "loss": 2.0 - s / 10} for s in range(1, 4)] + [
        {"step": s, "loss": float("nan")} for s in (4, 5, 6)
    ]
    (run / "metrics.jsonl").write_text("\n".join(json.dumps(s) for s in steps))
    for state in run.rglob("trainer_state.json"):
        state.write_text(json.dumps({"global_step": int(state.parent.name[-1]), "log_history": []}))
    result = verified(run)
    assert set(verdicts(result).values()) == {"clean"}
    assert fell_back(result) == "checkpoint-2", result.text


def test_a_spike_long_passed_does_not_count(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    rows = [
        {"step": s, "loss": 9.0 if s == 30 else 2.0 - s / 1000, "grad_norm": 90.0 if s == 30 else 1.0}
        for s in range(400)
    ]
    (run / "metrics.jsonl").write_text("\n".join(json.dumps(r) for r in rows))
    for step in (4, 2):
        folder = run / f"checkpoint-{step}"
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step * 50, "log_history": []}))
        (folder / "optimizer.pt").unlink()
        (folder / "scheduler.pt").unlink()
        folder.rename(run / f"checkpoint-{step * 50}")
    assert fell_back(verified(run)) == "checkpoint-200"


def test_unfinished_saves_are_told(tmp_path: Path) -> None:
    run = copy("dcp", tmp_path)
    (run / "step-4" / ".metadata").unlink()
    assert "unfinished" in keys(listed(run))
    run = copy("megatron", tmp_path)
    (run / "iter_0000004").rename(run / "iter_0000004.tmp")
    assert {"unfinished", "tracker_mismatch"} <= keys(listed(run))
    run = copy("lightning", tmp_path)
    (run / "checkpoints" / "epoch=0-step=4.ckpt-unfinished").write_text("")
    assert "unfinished" in keys(listed(run))


def test_surplus_and_empty_files_are_told(tmp_path: Path) -> None:
    run = copy("hf_sharded", tmp_path)
    newest = run / "checkpoint-4"
    shutil.copy(newest / "model-00002-of-00002.safetensors", newest / "model-00003-of-00003.safetensors")
    (newest / "scheduler.pt").write_bytes(b"")
    assert "empty_file" in keys(listed(run)) and "1 surplus shard" in listed(run).summary


@pytest.mark.parametrize(("kind", "inside"), [
    ("hf", "checkpoint-4"), ("zero2", "global_step2"), ("torch", "step_4.pt"), ("megatron", "iter_0000004/mp_rank_00"),
    ("lightning", "checkpoints/last.ckpt"), ("dcp", "step-4"), ("hf", "checkpoint-4/model.safetensors"),
])  # fmt: skip
def test_the_run_may_be_the_checkpoint_itself(kind: str, inside: str) -> None:
    result = verify_checkpoint(Workspace([made(kind) / inside]))
    assert set(verdicts(result).values()) == {"clean"}, result.text


def test_a_checkpoint_is_named_by_the_end_of_its_path(tmp_path: Path) -> None:
    result = verified(made("hf"), path="checkpoint-2", depth="structure")
    assert verdicts(result) == {"checkpoint-2": "unknown"}
    assert result.outcome == "failed"
    with pytest.raises(ToolError, match="no checkpoint is called 'x'"):
        verified(made("hf"), path="x")


def test_a_file_that_may_not_be_read_is_unknown_and_not_missing(tmp_path: Path) -> None:
    run = copy("hf_sharded", tmp_path / "run")
    shard = run / "checkpoint-4" / "model-00002-of-00002.safetensors"
    shard.rename(tmp_path / shard.name)
    shard.symlink_to(tmp_path / shard.name)
    result = verified(run)
    assert verdicts(result) == {"checkpoint-4": "unknown"}
    assert "missing_shard" not in keys(result) | keys(listed(run))
    assert "leads out of the run" in listed(run).text


def test_time_that_is_over_is_unknown(tmp_path: Path) -> None:
    ws = Workspace([made("hf")])
    with Deadline(-1):
        verdict = judged(ws, checkpoints(ws)[-1], "full")
    assert verdict.word == "unknown" and "time was over" in verdict.why


def test_no_checkpoint_is_not_applicable(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 1 loss 2\n")
    (tmp_path / "latest").write_text("global_step1")
    assert listed(tmp_path).outcome == "not_applicable"
    assert verified(tmp_path).outcome == "not_applicable"


def test_time_that_is_over_is_not_remembered(tmp_path: Path) -> None:
    ws = Workspace([made("hf")])
    newest = checkpoints(ws)[-1]
    with Deadline(-1):
        assert judged(ws, newest, "full").word == "unknown"
    assert judged(ws, newest, "full").word == "clean"


def test_a_lost_rank_is_missed_where_the_run_is_the_save(tmp_path: Path) -> None:
    save = tmp_path / "iter_0000004"
    shutil.copytree(made("megatron") / "iter_0000004", save)
    ranks = sorted(save.glob("mp_rank_*"))
    assert len(ranks) > 1
    shutil.rmtree(ranks[-1])
    result = verify_checkpoint(Workspace([save]))
    assert "missing_shard" in keys(result), result.text
    assert set(verdicts(result).values()) == {"damaged"}


def test_names_of_files_where_the_run_is_the_save(tmp_path: Path) -> None:
    for name in ("actor", "critic"):
        for rank in (0, 1):
            path = tmp_path / "global_step_5" / name / f"model_world_size_2_rank_{rank}.pt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"PK\x03\x04")
    (tmp_path / "global_step_5" / "critic" / "model_world_size_2_rank_1.pt").unlink()
    roots = [tmp_path / "global_step_5"]
    for ws in (Workspace(roots), Workspace(roots, good=[made("hf")])):
        own = next(c for c in checkpoints(ws) if not c.good)
        assert "actor/model_world_size_2_rank_0.pt" in {own.within(f) for f in own.all}
        assert any(f.member == "critic/model_world_size_2_rank_1.pt" for f in judged(ws, own, "structure").flaws)


def test_the_optimizer_is_not_opened_for_the_shapes_of_the_weights(tmp_path: Path, monkeypatch) -> None:
    from traindoctor.agent.reading.checkpoints import weights
    from traindoctor.agent.reading.checkpoints.checks.checks_config import weights_of_model

    opened: list[str] = []
    real = weights.state_of
    monkeypatch.setattr(weights, "state_of", lambda ws, file: opened.append(file.path.name) or real(ws, file))
    ws = Workspace([made("hf")])
    assert weights_of_model(ws, checkpoints(ws)[-1])
    assert opened and not any("optimizer" in name for name in opened)


def test_a_model_that_a_setting_names_to_start_from_is_none_of_the_saves(tmp_path: Path) -> None:
    for name in ("models/base", "out/tuned"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
        save_file({"w": torch.ones(2, 2)}, tmp_path / name / "model.safetensors")
    (tmp_path / "tune.yaml").write_text(
        "model_name_or_path: models/base\noutput_dir: out/tuned\nresume_from: out/tuned\n"
    )
    (tmp_path / "train.log").write_text("step 1 loss 2.5\n")
    assert [(e.value, e.member) for e in listed(tmp_path).evidence if e.key == "checkpoint.count"] == [(1, "out/tuned")]
