"""The recorder under HF Trainer, Lightning, Accelerate, a GradScaler, torch.compile, and where the disk is full."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.time.profiles_tools import recorder

pytestmark = pytest.mark.soak  # importing three frameworks takes longer than everything else
KINDS = ("hf-bad", "hf-alone-bad", "hf", "lightning-bad", "lightning-old-bad", "accelerate-bad", "accelerate", "scaler",
         "compiled-outer", "compiled", "late-bad", "full")  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frameworks") / "runs"
    program = Path(__file__).with_name("frameworks.py")
    subprocess.run([sys.executable, str(program), str(folder), *KINDS], check=True, timeout=280)
    return folder


def rows(run: Path, name: str = "rank_0.jsonl") -> list[dict]:
    return [json.loads(line) for line in (run / "doctor-recorder" / name).read_text().splitlines()]


def said(run: Path) -> str:
    return "\n".join(x for x in (run / "train.log").read_text().splitlines() if "traindoctor_recorder" in x)


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_goes_to_its_end_without_a_fault_of_the_recorder(runs, kind):
    assert (runs / kind / "train.log").read_text().rstrip().endswith("training finished")
    assert "fault of its own" not in said(runs / kind)


@pytest.mark.parametrize("kind", [k for k in KINDS if "bad" in k])
def test_the_poisoned_batch_is_found(runs, kind):
    found = recorder(Workspace([runs / kind]))
    assert "recorder.first_nonfinite_step: 20" in found.text.splitlines()
    assert "recorder.batch_rows: 1" in found.text.splitlines()
    assert "recorder.layer_alone" not in {e.key for e in found.evidence}
    assert [r["step"] for r in rows(runs / kind)] == list(range(1, 61))


@pytest.mark.parametrize("kind", ["hf", "accelerate", "scaler", "compiled", "compiled-outer"])
def test_sound_trainings_are_clean(runs, kind):
    assert recorder(Workspace([runs / kind])).outcome == "clean"
    assert [r["step"] for r in rows(runs / kind)] == list(range(1, 61))


@pytest.mark.parametrize("kind", ["hf-bad", "hf-alone-bad"])
def test_the_user_is_told_once_that_nans_are_filtered(runs, kind):
    assert said(runs / kind).count("NaNs are being filtered from the logged loss") == 1


@pytest.mark.parametrize("kind", ["hf-bad", "lightning-bad", "accelerate"])
def test_norms_are_those_before_clipping(runs, kind):
    assert max(r["grad_norm"] for r in rows(runs / kind)[:19] if "grad_norm" in r) > 0.5  # clipped to 0.01


def test_skipped_steps_are_counted(runs):
    found = {e.key: e.value for e in recorder(Workspace([runs / "scaler"])).evidence}
    assert found["recorder.skipped_steps"] >= 1


@pytest.mark.parametrize("kind", ["compiled", "compiled-outer"])
def test_a_model_is_compiled_once(runs, kind):
    assert (runs / kind / "graphs.txt").read_text() == "1"


def test_a_full_disk_is_told_once(runs):
    assert said(runs / "full").count("cannot write") == 1
