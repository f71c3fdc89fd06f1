"""A session goes on: follow-ups are answered by tools and by the evidence there is, nothing is done or numbered twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.events import ReportReady, SessionStarted, ToolFinished
from traindoctor.agent.core.playbook import KNOWLEDGE, causes
from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.settings.settings_map import settings_map
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.session.store import turns
from traindoctor.agent.verdict.intent import FOLLOW_UPS, changed_setting, follow_up, intent_of, what_is_asked_about

INCIDENTS = Path(__file__).resolve().parents[2] / "evals" / "incidents"
FOUND = {
    "status": "confirmed",
    "root_cause": {"id": "loss.lr_too_high"},
    "evidence": [{"kind": "line", "file": "logs/train.log"}],
}


class Session:
    """One session over an incident; counts the calls made."""

    def __init__(self, name: str, state: Path) -> None:
        self.workspace = Workspace([INCIDENTS / name / "files"], live=False)
        self.state, self.id = state, None
        self.calls: Counter[str] = Counter()
        told = yaml.safe_load((INCIDENTS / name / "incident.yaml").read_text(encoding="utf-8"))
        self.first = self.ask(told["question"])

    def ask(self, question: str) -> Report:
        report = None
        for event in diagnose(self.workspace, question, session=self.id, state=self.state):
            if isinstance(event, SessionStarted):
                self.id = event.session
            elif isinstance(event, ToolFinished):
                self.calls[event.call.identity] += 1
            elif isinstance(event, ReportReady):
                report = event.report
        assert report is not None
        return report


@pytest.fixture
def overflow(tmp_path: Path) -> Session:
    """A Pegasus run whose loss is NaN in fp16."""
    return Session("loss-pegasus-pretrain-inf", tmp_path)


def cited(report: Report) -> dict[str, Any]:
    """Everything that the sentences cite; each of it is in the report."""
    by_id = {e.id: e for e in report.evidence}
    assert all(i in by_id for s in report.summary for i in s.cites)
    return by_id


def test_a_conversation_keeps_its_numbers_and_repeats_no_call(overflow: Session) -> None:
    before = cited(overflow.first)
    asked = ["why?", "are you sure?", "why not the learning rate?", "what if I use bf16?", "check rank 3",
             "what does line 5 of run.sh say", "how do I verify that?", "what should I do", "check rank 3"]  # fmt: skip
    for question in asked:
        report = overflow.ask(question)
        assert (report.status, report.root_cause.id) == ("answer", None), question
        for i, e in cited(report).items():
            if i in before:
                assert (e.key, e.file, e.line, e.text) == (
                    before[i].key,
                    before[i].file,
                    before[i].line,
                    before[i].text,
                )
    assert max(overflow.calls.values()) == 1
    assert {"look_at_rank(rank=3)", "what_if(setting='precision', value='bf16')"} <= set(overflow.calls)
    again = overflow.ask("my loss is NaN after two steps")
    assert again.root_cause.id == overflow.first.root_cause.id, "a new problem statement is diagnosed"
    assert again.root_cause.confidence == pytest.approx(overflow.first.root_cause.confidence, abs=0.02)
    assert len(turns(overflow.state, str(overflow.id))) == len(asked) + 2


def test_a_doubt_is_weighed_against_the_evidence(overflow: Session) -> None:
    report = overflow.ask("why not too high a learning rate?")
    assert report.root_cause.title.startswith("loss.lr_too_high")
    text = " ".join(s.text for s in report.summary)
    assert "What leads instead is loss.fp16_overflow" in text and "doctor tool" in text
    against = next(s for s in report.summary if s.text.startswith("Against it"))
    assert any(cited(report)[i].file == "debug_report.txt" for i in against.cites)
    own = overflow.ask("could it be fp16 overflow?")
    assert "puts it first" in own.root_cause.title
    assert any(cited(own)[i].line for s in own.summary for i in s.cites)
    unknown = overflow.ask("why did you rule out my cat?")
    assert "No cause is known" in unknown.root_cause.title and not unknown.evidence


def test_a_supposed_setting_is_answered_by_the_tool(overflow: Session) -> None:
    report = overflow.ask("what if I use bf16")
    gone = next(s for s in report.summary if "65504" in s.text)
    assert gone.text.startswith("A conflict less") and cited(report)[gone.cites[0]].kind == "document"
    assert any(e.file == "run.sh" and e.line == 8 for e in report.evidence)
    assert any("loss.fp16_overflow" in s.text and s.text.startswith("Recommended") for s in report.summary)
    nothing = overflow.ask("what if I do it on a Friday")
    assert "No setting and value" in nothing.root_cause.title


def test_what_was_found_is_told_from_the_earlier_report(overflow: Session) -> None:
    first = overflow.first
    why = overflow.ask("why?")
    assert [s.text for s in why.summary[: len(first.summary)]] == [s.text for s in first.summary]
    sure = overflow.ask("are you sure?")
    assert sure.summary[0].text.startswith("Confirmed") and sure.summary[0].cites
    act = overflow.ask("what should I do?")
    assert act.fixes == first.fixes and act.restart == first.restart
    verify = overflow.ask("how do I verify that")
    assert verify.summary and all(
        s.text.startswith(("For it", "Against", "Required", "Not known")) for s in verify.summary
    )
    assert any("doctor tool" in step for step in verify.next_steps)
    checked = overflow.ask("what did you check?")
    assert "find_anomalies" in " ".join(s.text for s in checked.summary)


def test_lines_are_read_and_what_is_not_there_is_said(overflow: Session) -> None:
    report = overflow.ask("what does line 8 of run.sh say?")
    assert "--fp16" in report.summary[0].text and report.summary[0].text.startswith("run.sh:8")
    beyond = overflow.ask("show run.sh:4000")
    assert "has no line 4000" in beyond.root_cause.title
    missing = overflow.ask("show nothing.log:3")
    assert "no file 'nothing.log'" in missing.root_cause.title
    evidence = next(e for e in overflow.first.evidence if e.file and e.line)
    shown = overflow.ask(f"show {evidence.id}")
    assert shown.summary[0].cites == [evidence.id]


def test_a_rank_is_looked_at_at_once_where_nothing_else_can_be_meant(tmp_path: Path) -> None:
    ws = Workspace([INCIDENTS / "dist-vlm-bucket-sizes-differ" / "files"], live=False)
    *_, last = diagnose(ws, "check rank 1", state=tmp_path)
    assert isinstance(last, ReportReady) and last.report.status == "answer"
    assert any(e.file == "rank1.log" for e in last.report.evidence)


def test_several_ranks_are_looked_at_one_after_the_other(tmp_path: Path) -> None:
    ws = Workspace([INCIDENTS / "dist-vlm-bucket-sizes-differ" / "files"], live=False)

    def ask(question: str) -> Report:
        *_, last = diagnose(ws, question, state=tmp_path)
        assert isinstance(last, ReportReady) and last.report.status == "answer"
        return last.report

    both = ask("check rank 0 and rank 1")
    assert {0, 1} <= {e.rank for e in both.evidence}
    assert any(s.text.startswith("Rank 0: ") for s in both.summary)
    assert any(s.text.startswith("Rank 1: ") for s in both.summary)
    assert "rank 0: " in both.root_cause.title and "rank 1: " in both.root_cause.title
    assert "rank 99999999999 was never seen" in ask("check rank 99999999999").root_cause.title
    many = ask("check ranks 0-40")
    assert any("Only the first 8" in step for step in many.next_steps)


def test_lines_from_zero_are_the_first_lines(overflow: Session) -> None:
    report = overflow.ask("lines 0-5 of run.sh")
    assert report.root_cause.title == "run.sh, lines 1 to 5" and report.summary[0].text.startswith("run.sh:1:")


FOLLOWING = [
    ("why not a straggler?", "why_not"), ("could it be fragmentation?", "why_not"), ("is it the network?", "why_not"),
    ("isn't it the learning rate?", "why_not"), ("I think it's overheating", "why_not"), ("why?", "because"),
    ("how do you know?", "because"), ("show me the evidence", "because"), ("are you sure?", "sure"),
    ("what else could it be?", "sure"), ("how do I verify that", "verify"), ("what should I do", "act"),
    ("how do I fix it?", "act"), ("can I restart?", "act"), ("what did you check", "checked"),
    ("what about rank 3?", "check_rank"), ("check rank 3", "check_rank"), ("what if I use bf16", "what_if"),
    ("would zero_stage=3 help?", "what_if"), ("should I lower the learning rate to 1e-5?", "what_if"),
    ("show train.log:40", "show_lines"), ("what does line 40 of train.log say", "show_lines"), ("what is E3", "show_evidence"),
]  # fmt: skip
NEW = [
    "loss went NaN at step 4k", "it hangs after 200 steps", "why is it slow", "why did it die?", "now it crashes with OOM",
    "is my run ok", "the second node does not join", "why does rank 3 wait for the others?", "is it safe to restart?",
    "I think the loss exploded again at step 300", "is this run healthy?", "what happened?", "compare rank 3 and 4", "",
]  # fmt: skip


@pytest.mark.parametrize(("question", "name"), FOLLOWING)
def test_a_follow_up_is_known(question: str, name: str) -> None:
    found = intent_of(question, beside_run=True, earlier=FOUND)
    assert found is not None and found.name == name and name in FOLLOW_UPS


@pytest.mark.parametrize("question", NEW)
def test_a_new_problem_is_none(question: str) -> None:
    assert intent_of(question, beside_run=True, earlier=FOUND) is None


def test_no_question_of_the_incidents_is_taken_for_a_follow_up() -> None:
    paths = sorted(INCIDENTS.parent.glob("*/*/incident.yaml"))
    asked = [yaml.safe_load(p.read_text(encoding="utf-8"))["question"] for p in paths]
    assert len(asked) > 250
    assert not [q for q in asked if follow_up(q, None) or follow_up(q, FOUND)]


@pytest.mark.parametrize(("question", "name"), FOLLOWING)
def test_without_a_diagnosis_only_what_leaves_no_doubt_is_one(question: str, name: str) -> None:
    found = follow_up(question, None)
    assert found is None or found.name in ("check_rank", "what_if", "show_lines")
    alone = intent_of(question)
    assert alone is None or alone.name not in FOLLOW_UPS, "of nothing, nothing follows"


def test_a_file_is_named_in_full_where_the_evidence_knows_it() -> None:
    found = follow_up("show train.log:40", FOUND)
    assert found and found.calls[0].args["file"] == "logs/train.log"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("I use bf16", ("precision", "bf16")), ("micro_batch_size=4", ("micro_batch_size", "4")),
        ("I set the learning rate to 1e-5", ("learning_rate", "1e-5")), ("zero 3", ("zero_stage", "3")),
        ("I halve the batch size", ("micro_batch_size", "half")), ("without gradient checkpointing",
        ("activation_checkpointing", "false")), ("NCCL_P2P_DISABLE=1", ("NCCL_P2P_DISABLE", "1")),
        ("it rains", None), ("", None),
    ],
)  # fmt: skip
def test_a_change_in_words(said: str, meant: tuple[str, str] | None) -> None:
    assert changed_setting(said) == meant


def test_what_is_asked_about_stays_the_last_diagnosis() -> None:
    answer = {"status": "answer"}
    assert what_is_asked_about(answer, FOUND) is FOUND
    assert what_is_asked_about(FOUND, None) is FOUND
    assert what_is_asked_about(answer, None) is answer
    assert what_is_asked_about(None, FOUND) is FOUND


def test_the_table_names_what_exists() -> None:
    data = yaml.safe_load((KNOWLEDGE / "intents.yaml").read_text(encoding="utf-8"))
    assert {row["intent"] for row in data["follow_up"]} == FOLLOW_UPS
    assert {c for row in data["names"] for c in row["means"]} <= set(causes())
    named = {row["setting"] for row in data["changes"] if "\\" not in row["setting"]}
    assert named <= set(settings_map().canonical)


ASKING = st.one_of(
    st.text(max_size=300),
    st.builds(lambda a, b, c: f"{a} {b} {c}", st.sampled_from(
        ["why not", "what if", "check rank", "show", "could it be", "is it", "what does line", "what about", "would"]),
        st.text(max_size=60), st.sampled_from(["?", "of train.log", "=1", "help?", "to 1e-5", "\u0663", ""])),
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(ASKING, st.sampled_from([None, FOUND, {"status": "answer"}]))
def test_no_question_breaks_it(question: str, earlier: dict[str, Any] | None) -> None:
    found = intent_of(question, beside_run=True, earlier=earlier)
    assert found is None or all(isinstance(call.args, dict) for call in found.calls)
