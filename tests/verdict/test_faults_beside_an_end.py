"""A fault that ends no run is not refuted by the end of the run; what is merely set is no fault."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose

RECORDED = Path(__file__).parents[2] / "evals" / "recorded"


@pytest.mark.parametrize("name", ["fandango"])
def test_a_fault_that_was_seen_stands_although_the_run_says_that_it_is_done(name: str, tmp_path: Path) -> None:
    run = Path(shutil.copytree(RECORDED / name / "files", tmp_path / "run"))
    for log in run.rglob("*.log"):
        with log.open("a") as out:
            out.write("Training completed.\n")
    label = yaml.safe_load((RECORDED / name / "incident.yaml").read_text(encoding="utf-8"))
    for question in (label["question"], *label.get("also_asked", [])):
        *_, last = diagnose(Workspace([run], live=False), question, state=tmp_path / "state")
        assert isinstance(last, ReportReady)
        assert last.report.status != "healthy", question


def test_an_override_that_is_meant_does_not_make_a_sound_run_sick(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("max_steps: 60\nnum_train_epochs: 3\nlearning_rate: 1.0e-4\nwarmup_steps: 6\n")
    steps = "".join(f"{{'loss': {3 - 0.03 * i:.4f}, 'grad_norm': 1.1, 'epoch': {i / 20:.2f}}}\n" for i in range(1, 61))
    (run / "train.log").write_text(steps + "Training completed.\n")
    *_, last = diagnose(Workspace([run], live=False), "is it fine?", state=tmp_path / "state")
    assert isinstance(last, ReportReady)
    assert last.report.status == "healthy"
