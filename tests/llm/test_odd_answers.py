"""Whatever a model answers there is a report, a session keeps to its run, and what is said stands on evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.events import CallStarted, ReportReady
from traindoctor.agent.core.types import Risk
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session import session
from traindoctor.evals.endpoint import Say, ScriptedEndpoint

from tests.llm.test_planner import GOOD, QUESTION, RUN, ask, conclude, contents

DEEP = '{"a":' * 600 + "1" + "}" * 600
NUMBER = "9" * 400


@pytest.mark.parametrize(
    "call",
    [
        ("show_evidence", {"ids": 5}),
        ("show_evidence", {"ids": True, "key": 7}),
        ("show_evidence", DEEP),
        ("weigh_cause", {"cause": ["x", {"y": 1}]}),
        ("more_tools", {"name": 3, "arguments": "x"}),
        ("more_tools", {"name": "diagnosis", "arguments": {"cause": "x"}}),
        ("read_lines", {"file": "train.log", "start": 10**30}),
        ("read_lines", {"file": "result/1", "start": 2.5}),
        ("read_lines", {"file": "result/999999"}),
        ("diagnosis", DEEP),
        ("diagnosis", {**GOOD, "sentences": [{"text": "It grew to 1e400.", "cites": ["E13"]}]}),
        ("diagnosis", {**GOOD, "sentences": [{"text": f"It grew to {NUMBER}.", "cites": ["E13"]}]}),
        ("diagnosis", {**GOOD, "sentences": [{"text": "x", "cites": ["E" + "9" * 5000, "E1-E" + "9" * 50]}]}),
        ("grep_logs", {"pattern": "x" * 100_000}),
        ("", {}),
        ("diagnosis\x00\u202e", {"cause": "\ud800"}),
    ],
)
def test_an_odd_call_costs_no_report(call: tuple[str, Any], tmp_path: Path) -> None:
    report, _, _ = ask([Say(calls=[call]), conclude()], tmp_path)
    assert report.root_cause.id == "memory.sequence_too_long"
    assert "1e400" not in str(report.summary) and NUMBER not in str(report.summary)


def test_a_session_goes_on_with_its_run_alone(tmp_path: Path) -> None:
    first, _, _ = ask([conclude()], tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train.log").write_text("step 1 loss 2.0\n")
    with pytest.raises(UsageError, match="is about"):
        list(session.diagnose(Workspace([tmp_path / "other"]), "and this?", state=tmp_path, session=first.session))


def test_a_verdict_without_any_evidence_is_not_reported(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.log").write_text("hello\n")
    said = {"cause": "memory.sequence_too_long", "sentences": [{"text": "It uses 99 GB.", "cites": []}]}
    with ScriptedEndpoint([Say(calls=[("diagnosis", said)])]) as server:
        model = ModelSettings("scripted", server.url, "k", window=50_000)
        *_, last = session.diagnose(Workspace([tmp_path / "run"]), "why?", state=tmp_path / "state", model=model)
    assert isinstance(last, ReportReady)
    assert (last.report.root_cause.id, last.report.meta.planner) == ("none.insufficient_evidence", "offline")
    assert any("no sentence about it stands" in d for d in last.report.meta.degraded)


def test_what_was_refused_may_be_asked_for_again_once_it_is_allowed(tmp_path: Path) -> None:
    look = Say(calls=[("more_tools", {"name": "nccl_test", "arguments": {}})])
    first, _, _ = ask([look, conclude()], tmp_path)
    with ScriptedEndpoint([look, conclude()]) as server:
        model = ModelSettings("scripted", server.url, "k", window=50_000)
        events = list(session.diagnose(Workspace([RUN]), "now measure it, please", state=tmp_path, model=model,
                                       session=first.session, allow=Risk.COSTLY))  # fmt: skip
    assert any(isinstance(e, CallStarted) and e.call.tool == "nccl_test" for e in events)


def test_the_last_answer_may_hold_a_conclusion_beside_calls(tmp_path: Path) -> None:
    both = Say(calls=[("grep_logs", {"pattern": "lr"}), ("diagnosis", GOOD)])
    report, server, _ = ask([both], tmp_path, max_calls=1)
    assert len(server.requests) == 1 and report.meta.planner == "llm"


def test_a_follow_up_knows_the_verdict_the_evidence_gave(tmp_path: Path) -> None:
    first, _, _ = ask([Say("prose only")], tmp_path)
    assert first.meta.planner == "offline"
    _, server, _ = ask(
        [conclude()], tmp_path, "tell me more about that failure, the log says out of memory", first.session
    )
    assert f"Earlier verdict: {first.root_cause.id} ({first.status})" in contents(server, 0)


def test_the_prompt_shown_is_what_is_sent_under_limits_too(tmp_path: Path) -> None:
    _, server, _ = ask([conclude()], tmp_path / "a", max_calls=1)
    model = ModelSettings("scripted", api_key="k", window=100_000, max_calls=1)
    shown = session.first_request(Workspace([RUN], question=QUESTION), QUESTION, model, state=tmp_path / "b")
    assert json.loads(shown) == server.requests[0].body


def test_a_question_in_a_broken_encoding_is_asked(tmp_path: Path) -> None:
    report, _, _ = ask([conclude()], tmp_path, "why \udcff out of memory?")
    assert report.root_cause.id == "memory.sequence_too_long"
