"""Odd but healthy checkpoints: they must not be called damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.weights.checkpoint_tools import list_checkpoints, verify_checkpoint

from tests.reading.checkpoints.damage import change
from tests.reading.checkpoints.makers import copy


def words(run: Path) -> set[object]:
    result = verify_checkpoint(Workspace([run]))
    return {e.value for e in result.evidence if e.key == "checkpoint.verdict"}


def test_a_loop_may_count_micro_batches_or_from_zero(tmp_path: Path) -> None:
    run = copy("torch", tmp_path)
    for path in run.glob("*.pt"):
        change(path, lambda s: s.update(step=s["step"] * 8))
    assert words(run) == {"clean"}
    for path in run.glob("*.pt"):
        change(path, lambda s: s.update(step=s["step"] // 8 - 1))
    assert words(run) == {"clean"}


def test_an_optimizer_may_have_begun_anew_at_a_restart(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    for step in (4, 2):
        folder = run / f"checkpoint-{step}"
        state = json.loads((folder / "trainer_state.json").read_text())
        (folder / "trainer_state.json").write_text(json.dumps({**state, "global_step": step + 100}))
        change(folder / "scheduler.pt", lambda s, step=step: s.update(last_epoch=step + 100))
        folder.rename(run / f"checkpoint-{step + 100}")
    assert words(run) == {"clean"}


def test_norms_that_count_from_zero_are_an_initialization(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    for path in run.rglob("model.safetensors"):
        held = load_file(path)
        for name in held:
            if "norm" in name:
                held[name].zero_()
        save_file(held, path, {"format": "pt"})
    assert words(run) == {"clean"}


def test_weights_alone_are_whole(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    for folder in run.iterdir():
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
            (folder / name).unlink()
    assert words(run) == {"clean"}
    for name in ("model.safetensors", "config.json", "training_args.bin", "trainer_state.json"):
        shutil.copy(run / "checkpoint-4" / name, run / name)
    told = [e.text for e in list_checkpoints(Workspace([run])).evidence if "no_" in e.key]
    assert told and all("checkpoint-" in text for text in told)  # the export beside them is not meant for going on


def test_older_saves_may_have_been_thinned(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    (run / "checkpoint-2" / "optimizer.pt").unlink()
    assert words(run) == {"clean"}


def test_fewer_ranks_after_a_restart_are_no_missing_shards(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    for rank in range(4):
        shutil.copy(run / "checkpoint-2" / "rng_state.pth", run / "checkpoint-2" / f"rng_state_{rank}.pth")
    for rank in range(2):
        shutil.copy(run / "checkpoint-4" / "rng_state.pth", run / "checkpoint-4" / f"rng_state_{rank}.pth")
    assert words(run) == {"clean"}


def test_a_config_of_something_else_is_not_the_models(tmp_path: Path) -> None:
    run = copy("torch", tmp_path)
    (run / "config.json").write_text('{"vocab_size": 3, "hidden_size": 1, "data": "x"}')
    assert words(run) == {"clean"}
