"""A verdict answers what was asked, or the report says that it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.core.own_files import KNOWLEDGE, read_table
from traindoctor.agent.core.playbook import playbooks
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.verdict.meaning import left_by

TORN = """step 1 loss 2.1
step 2 loss 2.0
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    import flash_attn
ImportError: /usr/lib/python3/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE
"""


@pytest.mark.parametrize(
    ("cause", "symptoms", "left"),
    [
        ("loss.lr_too_high", {"slow"}, ("that it is slow",)),
        ("loss.lr_too_high", {"slow", "nan"}, ()),
        ("speed.dataloader_bound", {"slow"}, ()),
        ("env.torch_cuda_mismatch", {"crash"}, ()),
        ("env.torch_cuda_mismatch", set(), ()),
    ],
)
def test_a_complaint_is_left_where_a_cause_brings_none_of_it_about(
    cause: str, symptoms: set[str], left: tuple[str, ...]
):
    assert left_by(cause, symptoms) == left


def test_what_is_not_brought_about_is_said_in_words_of_symptoms_and_families():
    table = read_table(KNOWLEDGE / "complaints.yaml")["not_brought_about"]
    families = {p.cause.partition(".")[0] for p in playbooks()}
    assert set(table) <= set(read_table(KNOWLEDGE / "symptoms.yaml"))
    assert all(set(entry["by"]) <= families and entry["words"] for entry in table.values())


@pytest.mark.parametrize(("question", "left"), [("why did it stop?", False), ("it does not learn", True)])
def test_a_report_says_what_of_the_question_it_does_not_explain(question: str, left: bool, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.log").write_text(TORN)
    run = Workspace([tmp_path / "run"], question=question)
    *_, last = diagnose(run, question, state=tmp_path / "state", history=False)
    assert isinstance(last, ReportReady)
    report = last.report
    assert report.root_cause.id and report.root_cause.id.startswith("env."), report.root_cause
    said = [s.text for s in report.summary if s.text.startswith("This does not explain what was asked about")]
    assert said == ["This does not explain what was asked about: that it does not learn."] * left
    assert (report.status == "confirmed") is not left
