"""The recorded incidents as a whole: labels that are sound, and verdicts that do not get worse unnoticed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from traindoctor.agent.playbook import causes
from traindoctor.agent.redact import Redactor
from traindoctor.agent.report import Report
from traindoctor.evals.case import Case, find
from traindoctor.evals.run import Task, diagnose
from traindoctor.evals.score import Score, score

ROOT = Path(__file__).resolve().parent.parent / "evals"
# Least shares of right causes, and of those among the first three; what a change may cost before it is looked at.
LEAST = {"incidents": (0.95, 0.95), "threads": (0.80, 0.88)}
SHARDS = 4
CASES = {name: find([ROOT / name]) for name in LEAST}


@pytest.mark.parametrize("name", LEAST)
def test_labels_are_sound(name: str) -> None:
    known = set(causes())
    for case in CASES[name]:
        assert set(case.expected) | set(case.acceptable) <= known, case.id
        for mark in case.marks:
            text = (case.files / mark.file).read_text(encoding="utf-8", errors="replace")
            assert mark.text in text, f"{case.id}: {mark}"


def test_no_name_of_an_incident_or_file_gives_its_cause_away() -> None:
    for case in CASES["threads"]:
        words = [w for cause in case.expected for w in cause.split(".")[1].split("_") if len(w) > 4]
        slug = case.id.partition("-")[2]
        assert not all(w in slug for w in words) or not words, case.id
        for path in case.files.rglob("*"):
            assert not any(cause.split(".")[1] in path.name for cause in case.expected), path


def test_threads_are_small_and_hold_no_secrets() -> None:
    for case in CASES["threads"]:
        files = [path for path in case.files.rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) < 100_000, case.id
        for path in files:
            text = path.read_text(encoding="utf-8", errors="replace")
            redactor = Redactor()
            redactor.redact(text)
            assert redactor.count == 0, f"{path}: {redactor.found}"
            assert not re.search(r"/home/(?!user\b|ubuntu\b|jovyan\b|runner\b)[a-z]\w+/|/Users/", text), path


def scored(case: Case) -> Score:
    answer = diagnose(Task(case.files, case.question, case.shell))
    return score(case, Report.model_validate_json(answer.report), answer.seconds)


@pytest.mark.real
@pytest.mark.parametrize(("name", "shard"), [(name, shard) for name in LEAST for shard in range(SHARDS)])
def test_verdicts(name: str, shard: int) -> None:
    """Each shard by itself, so that they can run side by side; the shares hold for each within a few cases."""
    scores = [scored(case) for case in CASES[name][shard::SHARDS]]
    exact, top3 = LEAST[name]
    slack = 0.08  # of a quarter of the cases
    assert sum(s.exact for s in scores) / len(scores) >= exact - slack, [s.id for s in scores if not s.exact]
    assert sum(s.top3 for s in scores) / len(scores) >= top3 - slack, [s.id for s in scores if not s.top3]
    assert not [s.id for s in scores if s.invented or s.false_alarm or s.error]
    sure = [s.id for s in scores if s.status == "confirmed" and not s.lenient and not s.top3]
    assert len(sure) <= 1, f"confirmed and wrong: {sure}"
