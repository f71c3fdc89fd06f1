"""Real Gloo jobs with their dumps and logs, from the folder to the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose

from tests.jobs.supervised.started import left_by


def verdict(folder: Path, state: Path, question: str) -> Report:
    return list(diagnose(Workspace([folder]), question, state=state))[-1].report  # pyright: ignore


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("skipped", "dist.collective_mismatch"),
        ("other_op", "dist.collective_mismatch"),
        ("other_dtype", "dist.collective_mismatch"),
        ("subgroup", "dist.collective_mismatch"),
        ("uneven", "dist.uneven_data"),
        ("uneven_exit", "dist.uneven_data"),
        ("unrecorded", "dist.rank_died"),
    ],
)
def test_the_cause_of_a_job_that_stopped(name: str, cause: str, tmp_path: Path) -> None:
    report = verdict(left_by("collectives", 4) / name, tmp_path, "the job hangs in a collective, why?")
    assert report.root_cause and report.root_cause.id == cause
    assert any(e.key.startswith("flight.") for e in report.evidence)


def test_a_rank_stuck_in_its_own_code_is_named_and_no_cause_invented(tmp_path: Path) -> None:
    report = verdict(left_by("collectives", 4) / "stuck", tmp_path, "the job hangs, why?")
    assert report.status == "insufficient_evidence"
    assert any(e.key == "flight.rank_behind" and e.rank == 1 for e in report.evidence)


def test_replicas_without_synchronization(tmp_path: Path) -> None:
    question = "Results differ between the ranks, is the model synchronized across GPUs?"
    report = verdict(left_by("training", 3) / "unwrapped", tmp_path, question)
    assert report.root_cause and report.root_cause.id == "dist.silent_desync"


def test_a_training_in_step_has_no_collective_fault(tmp_path: Path) -> None:
    report = verdict(left_by("training", 3) / "in_step", tmp_path, "is anything wrong with this run?")
    assert not report.root_cause or not (report.root_cause.id or "").startswith("dist.")
