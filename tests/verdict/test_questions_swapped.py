"""The same run asked in other words: the same verdict, and where the words say nothing of it, the same number."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.verdict.meaning import says_nothing

EVALS = Path(__file__).parents[2] / "evals"
SAYING_NOTHING = ("why?", "fix it", "what do I tell my team?", "What happened here, please?", "diagnose this run")
SAYING_LITTLE = ("my run failed, what is the cause?", "it crashed")


@pytest.mark.parametrize("question", SAYING_NOTHING)
def test_words_by_which_anything_is_asked_say_nothing(question: str):
    assert says_nothing(question)


@pytest.mark.parametrize("question", ["why is it slow?", "loss?", "is the network at fault", "rank 3 hangs", "NaN"])
def test_words_of_a_run_say_something(question: str):
    assert not says_nothing(question)


@pytest.mark.parametrize(
    "name", ["incidents/dist-second-finetune-fails", "incidents/memory-gemma2-9b-squad-step10", "recorded/adze"]
)
def test_five_ways_to_ask_give_one_verdict(name: str, tmp_path: Path):
    said = {}
    for n, question in enumerate((*SAYING_NOTHING, *SAYING_LITTLE)):
        run = Workspace([EVALS / name / "files"], question=question)
        *_, last = diagnose(run, question, state=tmp_path / str(n), history=False)
        assert isinstance(last, ReportReady)
        said[question] = (last.report.root_cause.id, last.report.status, last.report.root_cause.confidence)
    assert len({said[q] for q in SAYING_NOTHING}) == 1, said
    assert len({found[:2] for found in said.values()}) == 1, said
