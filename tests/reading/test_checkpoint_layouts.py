"""Which files make up one save, over the layouts in use; the real ones are in tests/tools/test_checkpoint.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from traindoctor.agent.reading.checkpoints.layouts import (
    Checkpoint,
    checkpoints,
    part_of,
    step_of_file,
    step_of_folder,
    trackers,
)
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.weights.checkpoint_tools import list_checkpoints, verify_checkpoint

from tests.reading.checkpoints.makers import copy, made


def fill(folder: Path, *names: str) -> Workspace:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PK\x03\x04 not really" if path.suffix not in (".json", ".txt", ".yaml") else b"{}")
    return Workspace([folder])


def seen(ws: Workspace) -> list[tuple[str, str, int | None]]:
    return [(c.name, c.framework, c.step) for c in checkpoints(ws)]


def only(ws: Workspace) -> Checkpoint:
    (one,) = checkpoints(ws)
    return one


def test_verl_has_actor_and_critic_in_one_save(tmp_path: Path) -> None:
    parts = [f"{p}_world_size_2_rank_{r}.pt" for p in ("model", "optim", "extra_state") for r in (0, 1)]
    names = [f"global_step_10/{who}/{part}" for who in ("actor", "critic") for part in parts]
    extra = [
        "global_step_10/data.pt",
        "global_step_10/actor/huggingface/config.json",
        "latest_checkpointed_iteration.txt",
    ]
    ws = fill(tmp_path, *names, *extra)
    assert seen(ws) == [("global_step_10", "verl", 10)]
    assert {p: len(f) for p, f in only(ws).files.items()} == {
        "model": 4, "optimizer": 4, "extra": 4, "data_state": 1, "config": 1
    }  # fmt: skip
    (tmp_path / "global_step_10/critic/optim_world_size_2_rank_1.pt").unlink()
    found = [e for e in list_checkpoints(Workspace([tmp_path])).evidence if e.key == "checkpoint.missing_shard"]
    assert [e.value for e in found] == ["critic/optim_world_size_2_rank_1.pt"]


def test_nemo_keeps_its_weights_below_the_name_of_the_save(tmp_path: Path) -> None:
    names = ("weights/.metadata", "weights/__0_0.distcp", "weights/common.pt", "context/model.yaml")
    ws = fill(tmp_path, *(f"ckpt/model--val_loss=0.00-step=99-last/{n}" for n in names))
    assert seen(ws) == [("ckpt/model--val_loss=0.00-step=99-last", "megatron_dist", 99)]
    ws = fill(tmp_path, "ckpt/model--val_loss=0.00-step=99-last-unfinished")
    assert only(ws).marks == ["model--val_loss=0.00-step=99-last-unfinished"]


def test_files_of_a_loop_of_ones_own(tmp_path: Path) -> None:
    ws = fill(tmp_path, "out/model_0100.pt", "out/optimizer_0100.pt", "out/model_0200.pt", "out/best.pt", "out/ckpt.pt")
    assert seen(ws) == [
        ("out/model_0100.pt", "torch", 100), ("out/model_0200.pt", "torch", 200), ("out/best.pt", "torch", None),
        ("out/ckpt.pt", "torch", None),
    ]  # fmt: skip


def test_parts_beside_each_other_are_one_save(tmp_path: Path) -> None:
    ws = fill(tmp_path, "final/model.pt", "final/optimizer.pt", "final/scheduler.pt")
    assert seen(ws) == [("final", "torch", None)]


def test_tokenized_data_is_no_checkpoint(tmp_path: Path) -> None:
    for name in ("data/train.bin", "data/wiki_text_document.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(range(256)) * 8)
    assert checkpoints(Workspace([tmp_path])) == []


def test_deepspeed_inside_a_trainer_folder_is_one_save(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    shutil.copytree(made("zero2") / "global_step2", run / "checkpoint-2" / "global_step2")
    (run / "checkpoint-2" / "latest").write_text("global_step2")
    for name in ("optimizer.pt", "scheduler.pt"):
        (run / "checkpoint-2" / name).unlink()
    shutil.rmtree(run / "checkpoint-4")
    ws = Workspace([run])
    assert seen(ws) == [("checkpoint-2", "deepspeed", 2)]
    assert [t.target for t in trackers(ws)] == ["global_step2"]
    assert verify_checkpoint(ws).outcome == "clean", verify_checkpoint(ws).text
    (run / "checkpoint-2" / "latest").write_text("global_step9")
    assert "names 'global_step9'" in list_checkpoints(Workspace([run])).text


def test_fsdp_of_a_trainer_is_one_save(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    newest = run / "checkpoint-4"
    (newest / "model.safetensors").unlink()
    (newest / "optimizer.pt").unlink()
    for folder in ("pytorch_model_fsdp_0", "optimizer_0"):
        shutil.copytree(made("dcp") / "step-4", newest / folder)
    ws = Workspace([run])
    assert seen(ws)[1] == ("checkpoint-4", "hf", 4)
    verdict = next(e for e in verify_checkpoint(ws, path="checkpoint-4").evidence if e.key == "checkpoint.verdict")
    assert verdict.value == "clean", verdict.text


@pytest.mark.parametrize(("name", "step"), [
    ("checkpoint-100", ("checkpoint", 100)), ("global_step7", ("global_step", 7)), ("iter_0000002", ("iter", 2)),
    ("tmp-checkpoint-5", ("checkpoint", 5)), ("checkpoint-5.tmp", ("checkpoint", 5)), ("epoch_3", ("epoch", 3)),
    ("checkpoints", None), ("2024-05-01", None), ("steps", None), ("v100", None),
])  # fmt: skip
def test_folders_that_count(name: str, step: object) -> None:
    assert step_of_folder(name) == step


@pytest.mark.parametrize(("name", "step"), [
    ("epoch=0-step=40.ckpt", ("step", 40)), ("model_0100.pt", ("step", 100)), ("step_2.pt", ("step", 2)),
    ("model-00001-of-00002.safetensors", None), ("mp_rank_00_model_states.pt", None), ("consolidated.00.pth", None),
    ("resnet50.pt", None), ("epoch3.pt", ("epoch", 3)), ("ckpt_iter_500_epoch_2.pth", ("iter", 500)),
])  # fmt: skip
def test_files_that_count(name: str, step: object) -> None:
    assert step_of_file(name) == step


@pytest.mark.parametrize(
    "name", ["_a" * 120, "model" + "-_." * 80, "optimizer" + "_" * 240, "step=" * 50, "x" * 250 + ".pt"]
)
def test_names_made_to_be_slow_are_not(name: str) -> None:
    part_of(name)
    part_of(f"{name}.pt!")
    step_of_file(name)
    step_of_folder(name)
