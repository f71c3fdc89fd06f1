"""A conversation: watched, stopped at any moment, made of checks that a user names, left at a question."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from traindoctor.agent.chat.named_check import named_check
from traindoctor.agent.chat.talk import Conversation
from traindoctor.agent.core.errors import Stopped, UsageError
from traindoctor.agent.core.events import CallStarted, Note, Ranked, ReportReady, ToolFinished
from traindoctor.agent.core.types import Call, Risk
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.store import usable_state

from tests.sample import sample

RUN = Path(__file__).resolve().parents[2] / "evals" / "demo" / "files"


@pytest.fixture
def talk() -> Conversation:
    return Conversation(Workspace([RUN], live=False), usable_state()[0])


def test_who_watches_hears_how_the_hypotheses_stand(talk: Conversation) -> None:
    events = list(talk.ask("why did it die?", watched=True))
    ranked = [e for e in events if isinstance(e, Ranked)]
    assert ranked and isinstance(events[-1], ReportReady)
    report = events[-1].report
    last = ranked[-1].hypotheses
    assert last[0].cause == report.root_cause.id and last[0].probability > 0.5
    known = {e.id for e in ranked[-1].evidence}
    assert set(last[0].supported_by) <= known, "what a hypothesis cites is told with it"
    assert not [e for e in talk.ask("why?") if isinstance(e, Ranked)], "only where somebody watches"


def test_a_stopped_answer_ends_at_once_and_is_gone_on_with(talk: Conversation) -> None:
    stop = threading.Event()
    seen = 0
    began = time.monotonic()
    with pytest.raises(Stopped):
        for event in talk.ask("why did it die?", stop=stop):
            if isinstance(event, CallStarted):
                seen += 1
                stop.set()
                began = time.monotonic()
    assert seen == 1 and time.monotonic() - began < 5 and not talk.reports and talk.session
    *_, last = talk.ask("")
    assert isinstance(last, ReportReady) and last.report.question == "why did it die?", "what was asked is answered"
    assert last.report.root_cause.id == "hw.gpu_fell_off_bus"


def test_a_command_of_a_stopped_check_is_killed(talk: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    from traindoctor.agent.session import graph
    from traindoctor.agent.tools.tool import Tool, clean

    def sleep(ws: Workspace):
        ws.shell(["sleep", "60"], timeout=60)
        return clean("slept")

    slow = Tool("slow", sleep, Risk.READ, (), recall=False)
    monkeypatch.setattr(graph, "all_tools", lambda: {"slow": slow})
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(Stopped):
        list(talk.ask("/tool slow", calls=[Call("slow")], stop=stop))
    began = time.monotonic()
    talk.checks_end(30)
    assert time.monotonic() - began < 20 and not talk.running()


def test_checks_that_are_named_are_made_and_told_without_a_diagnosis(talk: Conversation) -> None:
    list(talk.ask("why did it die?"))
    events = list(talk.ask("/tool read-settings", calls=[named_check(["read-settings"])]))
    made = [e for e in events if isinstance(e, ToolFinished)]
    assert [e.call.tool for e in made] == ["read_settings"]
    report = talk.reports[-1]
    assert report.status == "answer" and report.root_cause.title.startswith("read-settings: ")
    assert talk.diagnosis and talk.diagnosis.root_cause.id == "hw.gpu_fell_off_bus"
    assert {i for s in report.summary for i in s.cites} <= {e.id for e in report.evidence}


def test_a_named_check_above_the_allowed_risk_is_asked_about(talk: Conversation) -> None:
    asked: list[tuple[Call, ...]] = []

    def no(calls: tuple[Call, ...]) -> bool:
        asked.append(calls)
        return False

    events = list(talk.ask("/tool dump-stacks", calls=[named_check(["dump-stacks"])], approve=no))
    assert [c.tool for (c,) in asked] == ["dump_stacks"]
    (made,) = [e for e in events if isinstance(e, ToolFinished)]
    assert made.result.outcome == "not_allowed"
    list(talk.ask("/tool dump-stacks", calls=[named_check(["dump-stacks"])], approve=lambda calls: [calls[0].identity]))
    assert talk.reports[-1].checked[-1].outcome != "not_allowed"


@pytest.mark.parametrize(("words", "told"), [
    (["dump-stack"], "did you mean dump-stacks?"),
    (["dump-stacks", "minutes=3"], "/tool dump-stacks [seconds=...]"),
    (["dump-stacks", "seconds=soon"], "seconds"),
    (["verify-checkpoint", "folder=."], "has no argument folder"),
    (["dump-stacks", "1", "2"], "no further argument"),
    (["no\x1b[2J"], "no check"),
])  # fmt: skip
def test_a_check_that_cannot_be_named_so_is_one_line(words: list[str], told: str) -> None:
    with pytest.raises(UsageError) as e:
        named_check(words)
    assert told in str(e.value) and "\n" not in str(e.value)


def test_arguments_of_a_check_in_three_ways() -> None:
    for words in (["seconds=2.5"], ["--seconds", "2.5"], ["--seconds=2.5"], ["2.5"]):
        assert named_check(["dump-stacks", *words]).args == {"seconds": 2.5}
    for words in (["path=a=b/c.pt"], ["--path", "a=b/c.pt"]):
        assert named_check(["verify-checkpoint", *words]).args["path"] == "a=b/c.pt"
    assert named_check(["verify-checkpoint", "./a=b/c.pt"]).args["path"] == "./a=b/c.pt", "no name has a slash"


def test_nothing_follows_from_a_report_that_was_made_elsewhere(talk: Conversation) -> None:
    talk.reports = [sample()]
    events = list(talk.ask("why?"))
    assert isinstance(events[0], Note) and "not made here" in events[0].text
    assert talk.diagnosis and talk.diagnosis.root_cause.id == "hw.gpu_fell_off_bus", "the run was looked at"
    again = list(talk.ask("why?"))
    assert not any(isinstance(e, Note) and "not made here" in e.text for e in again)
    assert talk.reports[-1].status == "answer" and not talk.foreign
