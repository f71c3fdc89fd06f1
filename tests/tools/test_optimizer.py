"""Optimizer state of real runs: moments, steps, groups."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.weights.gradients_tools import optimizer_state

from tests.reading.checkpoints.makers import made as made_checkpoints
from tests.tools.captured import Seen
from tests.tools.training_runs import made


@pytest.fixture(scope="module")
def runs(request) -> Path:
    return made(request.config.rootpath)


def seen_in(folder: Path, **arguments: str) -> Seen:
    result = optimizer_state(Workspace([folder]), **arguments)
    for e in result.evidence:
        assert optimizer_state.allows(e.key), e.key
    return Seen(result, folder)


@pytest.mark.parametrize(("name", "count"), [("healthy", 28), ("hf", 28), ("adapter", 4), ("lightning", 4), ("moe", 37), ("mixtral", 21)])
def test_sound_state_of_each_framework(runs, name, count):
    seen = seen_in(runs / name)
    assert seen.result.outcome == "clean", seen.result.summary
    assert seen.one("optimizer.parameters") == count
    assert seen.one("optimizer.step") > 1


def test_corrupt_moments_are_named_by_parameter(runs):
    seen = seen_in(runs / "corrupt")
    assert seen.one("optimizer.negative_variance") == "layers.0.up.weight"
    assert seen.one("optimizer.nonfinite") == "layers.1.norm.weight"
    assert seen.one("optimizer.variance_zero") == "layers.0.down.weight"
    assert seen.values("optimizer.moments_disagree") == ["layers.1.up.weight"]
    assert seen.one("optimizer.step_differs") == "layers.0.norm.bias"
    assert seen.one("optimizer.shape_differs") == "layers.2.up.weight"
    assert seen.one("optimizer.learning_rate_zero") is True


def test_parameters_without_state(runs):
    assert len(seen_in(runs / "detached").values("optimizer.missing_params")) == 6
    frozen = seen_in(runs / "frozen")
    assert "6 of 28 weights have none" in frozen.of("optimizer.missing_params")[0].text


def test_an_optimizer_that_never_stepped(runs):
    assert seen_in(runs / "adapter_untrained").one("optimizer.never_stepped") is True


def test_exploded_gradients_are_seen_in_the_second_moment(runs):
    assert min(seen_in(runs / "exploding").values("optimizer.huge")) > 1e4


def test_a_rate_of_zero_at_the_end_of_the_schedule_is_no_fault(runs):
    seen = seen_in(runs / "hf")
    assert seen.one("optimizer.learning_rate") == 0
    assert not seen.values("optimizer.learning_rate_zero")


def test_an_older_state_than_its_checkpoint(runs, tmp_path):
    shutil.copytree(runs / "hf" / "checkpoint-3", tmp_path / "checkpoint-300")
    seen = seen_in(tmp_path)
    assert seen.one("optimizer.steps_behind") == 297


def test_a_state_that_stood_still_between_two_checkpoints(runs, tmp_path):
    for step in (3, 6):
        shutil.copytree(runs / "hf" / "checkpoint-3", tmp_path / f"checkpoint-{step}")
    assert seen_in(tmp_path).one("optimizer.step_stuck") == 3


def test_a_checkpoint_by_name_and_one_without_state(runs):
    assert "checkpoint-3" in seen_in(runs / "hf", path="checkpoint-3").result.summary
    (only := seen_in(runs / "healthy", path="grads.pt"))
    assert only.result.outcome == "not_applicable"


def test_a_damaged_file_is_not_called_clean(runs, tmp_path):
    shutil.copytree(runs / "hf" / "checkpoint-6", tmp_path / "checkpoint-6")
    path = tmp_path / "checkpoint-6" / "optimizer.pt"
    path.write_bytes(path.read_bytes()[:20_000])
    assert seen_in(tmp_path).result.outcome in ("failed", "not_applicable")


@pytest.mark.parametrize("kind", ["zero1", "zero2", "zero3"])
def test_deepspeed_partitions(kind):
    seen = seen_in(made_checkpoints(kind))
    assert seen.result.outcome == "clean" and "flat buffers" in seen.result.summary
    assert seen.one("optimizer.step") == 2


def test_a_distributed_checkpoint_names_its_parameters():
    seen = seen_in(made_checkpoints("dcp"))
    assert seen.result.outcome == "clean", seen.result.summary
    assert seen.one("optimizer.learning_rate") == pytest.approx(1e-3)
    assert seen.one("optimizer.step") == 4


def test_factored_and_quantised_moments(tmp_path):
    """Adafactor keeps rows and columns; 8-bit state is not decoded, and so not called clean."""
    code = """
import sys, torch
from pathlib import Path
for name in ("factored", "broken", "quantised"):
    folder = Path(sys.argv[1]) / name / "checkpoint-3"
    folder.mkdir(parents=True)
    slots = {"exp_avg_sq_row": torch.rand(4), "exp_avg_sq_col": torch.rand(6)}
    if name == "broken":
        slots["exp_avg_sq_row"][1] = float("nan")
    if name == "quantised":
        slots = {"state1": torch.ones(24, dtype=torch.uint8), "state2": torch.ones(24, dtype=torch.uint8)}
    state = {"state": {0: {"step": 3, **slots}}, "param_groups": [{"lr": 1e-3, "params": [0]}]}
    torch.save(state, folder / "optimizer.pt")
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert seen_in(tmp_path / "factored").result.outcome == "clean"
    assert seen_in(tmp_path / "broken").values("optimizer.nonfinite")
    assert seen_in(tmp_path / "quantised").result.outcome == "failed"


def test_another_rule_than_adams_is_no_damage(tmp_path):
    code = """
import sys, torch
from pathlib import Path
folder = Path(sys.argv[1]) / "checkpoint-3"
folder.mkdir()
slots = {i: {"step": 3, "exp_avg": torch.ones(8, 8), "exp_avg_sq": torch.full((8, 8), 1e-6)} for i in range(4)}
torch.save({"state": slots, "param_groups": [{"lr": 1e-3, "params": [0, 1, 2, 3]}]}, folder / "optimizer.pt")
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert seen_in(tmp_path).result.outcome == "clean"
