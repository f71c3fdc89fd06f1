"""The recorder in plain loops: what is on disk after each kind of trouble, and what doctor reads from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.agent.reading.curves.curves import curves
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.time.profiles_tools import recorder
from traindoctor.agent.tools.weights.gradients_tools import inspect_gradients

KINDS = ("healthy", "batch", "log", "rate", "fp16", "gradient", "exit", "kill", "workers")
LOOPS = Path(__file__).with_name("loops.py")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loops")
    subprocess.run([sys.executable, str(LOOPS), str(folder), *KINDS], check=True, timeout=240)
    return folder


def lines(run: Path, name: str = "rank_0.jsonl") -> list[dict]:
    return [json.loads(line) for line in (run / "doctor-recorder" / name).read_text().splitlines()]


def told(run: Path) -> dict[str, str]:
    """What the text says under each key, evidence or not; of several the first."""
    result = recorder(Workspace([run]))
    for e in result.evidence:
        assert recorder.allows(e.key), e.key
        assert e.file and e.line, e
    rows = [row.removeprefix("recorder.").partition(": ") for row in result.text.splitlines()]
    return {key: value for key, _, value in reversed(rows)}


def test_a_sound_run_is_clean(runs):
    rows = lines(runs / "healthy")
    assert [r["step"] for r in rows] == list(range(1, 101))
    assert all({"loss", "learning_rate", "data_time", "compute_time", "indices"} <= r.keys() for r in rows)
    assert all("grad_norm" in r and "step_time" in r for r in rows[1:20])
    assert rows[5]["indices"] == list(range(40, 48))
    assert not list((runs / "healthy/doctor-recorder").glob("nonfinite*"))
    assert not {"first_nonfinite_step", "layer", "nan_filtered"} & told(runs / "healthy").keys()
    assert "recorder" not in (runs / "healthy/train.log").read_text()


def test_the_rows_are_curves_with_their_steps(runs):
    found = {
        s.metric: s for s in curves(Workspace([runs / "healthy"])).series if "doctor-recorder/rank_0" in s.file.name
    }
    assert {"loss", "grad_norm", "learning_rate", "step_time", "data_time", "compute_time"} <= found.keys()
    assert found["loss"].steps[-1] == 100
    assert found["loss"].stepped
    assert max(found["step_time"].values) < 60


def test_gradients_by_parameter_are_read_and_of_ordinary_size(runs):
    assert inspect_gradients(Workspace([runs / "healthy"])).outcome == "clean"


def test_a_poisoned_batch_is_named(runs):
    seen = told(runs / "batch")
    assert seen["first_nonfinite_step"] == "40"
    assert seen["batch_rows"] == "3"
    assert seen["batch_ids"] == "315"  # the one sample of its eight
    assert "layer_alone" not in seen
    assert "the batch itself holds NaN" in (runs / "batch/train.log").read_text()


def test_the_batch_is_kept_and_can_be_loaded(runs):
    import torch

    kept = torch.load(runs / "batch/doctor-recorder/batch_rank_0_step_40.pt", weights_only=True)
    assert kept["input"].shape == (8, 16)
    assert torch.isnan(kept["input"][3]).any()
    assert int(torch.isnan(kept["input"]).sum()) == 1


def test_a_layer_that_takes_the_logarithm_of_zero_is_named_with_its_line(runs):
    seen = told(runs / "log")
    assert seen["layer_alone"] == "0.norm"
    assert "log" in seen["operation"]
    file, _, line = seen["place"].partition(":")
    assert file == "loops.py"
    assert "torch.log(" in LOOPS.read_text().splitlines()[int(line) - 1]
    assert seen["batch_finite"] == "True"


def test_a_rate_that_carries_the_weights_away_blames_no_layer(runs):
    seen = told(runs / "rate")
    assert float(seen["weights_ratio"]) > 3
    assert "grew_before" in seen
    assert not {"layer_alone", "batch_nonfinite"} & seen.keys()


def test_fp16_is_told_from_a_layer(runs):
    seen = told(runs / "fp16")
    assert seen["fp16_overflow"] == "0"
    assert "layer_alone" not in seen


def test_a_gradient_that_breaks_behind_a_finite_loss(runs):
    seen = told(runs / "gradient")
    assert (seen["first_nonfinite_step"], seen["nonfinite_in"]) == ("40", "gradient")
    assert seen["backward_origin"] == "1.inner.bias"
    assert seen["layer_alone"] == "1.inner"
    assert inspect_gradients(Workspace([runs / "gradient"])).outcome == "finding"


@pytest.mark.parametrize("kind", ["exit", "kill"])
def test_everything_is_on_disk_when_the_process_dies_at_once(runs, kind):
    folder = runs / kind / "doctor-recorder"
    assert [r["step"] for r in lines(runs / kind)] == list(range(1, 41))
    whole = json.loads((folder / "nonfinite_rank_0_step_40.json").read_text())
    assert whole["tensors"]["input"]["bad_rows"] == [3]
    assert len(whole["before"]) == 39
    assert (folder / "batch_rank_0_step_40.pt").stat().st_size > 500
    assert told(runs / kind)["batch_ids"] == "315"


def test_workers_of_a_loader_write_nothing(runs):
    assert [r["step"] for r in lines(runs / "workers")] == list(range(1, 41))
    assert len([e for e in lines(runs / "workers", "events_rank_0.jsonl") if e["event"] == "start"]) == 1
