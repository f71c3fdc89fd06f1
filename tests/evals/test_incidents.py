"""The public incidents as a whole: labels that are sound, files that are small and give nothing away."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from traindoctor.agent.core.playbook import causes
from traindoctor.agent.safety.redact import Redactor
from traindoctor.evals.case import find

ROOT = Path(__file__).resolve().parent.parent.parent / "evals"
CASES = {name: find([ROOT / name]) for name in ("incidents", "threads")}


@pytest.mark.parametrize("name", CASES)
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
