"""The model planner over a real server: calls, conclusions, the gate, limits, and what happens when it gives up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.core.events import CallStarted, Event, ReportReady, Token
from traindoctor.agent.core.report import Report
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session import session
from traindoctor.evals.endpoint import Say, ScriptedEndpoint

RUN = Path(__file__).parents[2] / "evals/incidents/memory-gemma2-9b-squad-step10/files"
QUESTION = "Fine-tuning runs out of memory at step 10. Why?"
GOOD = {
    "cause": "memory.sequence_too_long",
    "sentences": [
        {"text": "All cards ran out of memory in backward.", "cites": ["train.log:13"]},
        {"text": 'Attention is eager: "attn_implementation: eager".', "cites": ["gemma_2_9b_it_squad.yaml:9"]},
    ],
    "ruled_out": [{"cause": "memory.fragmentation", "why": "no allocator numbers are printed", "cites": []}],
}


def conclude(**changes: Any) -> Say:
    return Say(calls=[("diagnosis", {**GOOD, **changes})])


def ask(
    script: Any, tmp_path: Path, question: str = QUESTION, name: str | None = None, run: Path = RUN, **settings: Any
) -> tuple[Report, ScriptedEndpoint, list[Event]]:
    with ScriptedEndpoint(script) as server:
        given = {"base_url": server.url, "api_key": "k", "window": 100_000, "timeout": 5.0, **settings}
        model = ModelSettings("scripted", **given)
        events = list(
            session.diagnose(Workspace([run], question=question), question, state=tmp_path, model=model, session=name)
        )
    last = events[-1]
    assert isinstance(last, ReportReady)
    return last.report, server, events


def contents(server: ScriptedEndpoint, number: int = -1) -> str:
    return "\n".join(str(m.get("content")) for m in server.requests[number].body["messages"])


def test_a_model_calls_tools_and_concludes(tmp_path: Path) -> None:
    look = Say(
        "I look.",
        calls=[("read_lines", {"file": "train.log", "start": 6, "count": 3}), ("grep_logs", {"pattern": "eager"})],
    )
    report, server, events = ask([look, conclude()], tmp_path)
    assert (report.root_cause.id, report.status, report.meta.planner) == ("memory.sequence_too_long", "likely", "llm")
    assert report.meta.model == "scripted" and report.meta.model_calls == 2 and report.meta.tokens.in_ > 0
    assert {"read_lines", "grep_logs"} <= {e.call.tool for e in events if isinstance(e, CallStarted)}
    assert "I look." in "".join(e.text for e in events if isinstance(e, Token))
    roles = [m["role"] for m in server.requests[1].body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool"]
    assert "_forward_backward_step" in contents(server, 1)
    shown = {(e.file, e.line) for e in report.evidence}
    assert ("gemma_2_9b_it_squad.yaml", 9) in shown
    assert report.meta.ranking and report.meta.ranking.id == "memory.sequence_too_long"


def test_the_first_messages_stay_as_they_were(tmp_path: Path) -> None:
    look = Say(calls=[("grep_logs", {"pattern": "lr"})])
    _, server, _ = ask([look, conclude()], tmp_path)
    one, other = (r.body for r in server.requests)
    assert other["messages"][: len(one["messages"])] == one["messages"]
    assert one["tools"] == other["tools"]


def test_a_cited_line_that_no_tool_showed_is_read(tmp_path: Path) -> None:
    said = conclude(sentences=[{"text": 'The data are "rajpurkar/squad".', "cites": ["gemma_2_9b_it_squad.yaml:21"]}])
    report, _, _events = ask([said], tmp_path)
    cited = next(e for e in report.evidence if e.line == 21)
    assert "rajpurkar/squad" in cited.text
    assert report.summary[0].cites == [cited.id]


def test_what_does_not_stand_goes_back_once_then_is_dropped_and_told(tmp_path: Path) -> None:
    wrong = [{"text": "The card has 999 GB.", "cites": ["train.log:13"]}, {"text": 'It said "all is well".', "cites": ["E13"]},
             {"text": "Rank 3 broke first.", "cites": ["E99999"]}]  # fmt: skip
    said = conclude(sentences=[*GOOD["sentences"], *wrong])
    report, server, _ = ask([said, said], tmp_path)
    assert len(server.requests) == 2
    assert "999" in contents(server, 1) and "E99999" in contents(server, 1)
    told = " ".join(s.text for s in report.summary)
    assert "999" not in told and "all is well" not in told
    assert sum("does not stand" in d for d in report.meta.degraded) == 3


def test_an_unknown_cause_goes_back_then_the_evidence_decides(tmp_path: Path) -> None:
    report, server, _ = ask([conclude(cause="memory.gremlins")], tmp_path)
    assert "memory.gremlins" in contents(server, 1)
    assert (report.root_cause.id, report.meta.planner) == ("memory.sequence_too_long", "offline")
    assert any("memory.gremlins" in d for d in report.meta.degraded)


def test_a_cause_the_evidence_does_not_carry_stays_a_hypothesis_and_the_ranking_is_shown(tmp_path: Path) -> None:
    said = conclude(cause="loss.fp16_overflow", sentences=[{"text": "It is an overflow.", "cites": ["run_a.log:5"]}])
    run = RUN.parents[1] / "dist-second-finetune-fails/files"
    report, server, _ = ask([said], tmp_path, "The second fine-tune on this node fails at once. Why?", run=run)
    assert "dist.port_in_use is confirmed" in contents(server, 1)
    assert (report.root_cause.id, report.status) == ("loss.fp16_overflow", "hypothesis")
    assert report.meta.ranking and report.meta.ranking.id == "dist.port_in_use"
    from traindoctor.agent.telling.render import as_plain

    assert "The model disagrees" in as_plain(report)
    assert sum(d.confidence for d in report.differential) <= 1


def test_the_same_call_is_answered_from_memory(tmp_path: Path) -> None:
    look = Say(calls=[("grep_logs", {"pattern": "lr", "limit": 50})])
    _report, server, events = ask([look, look, conclude()], tmp_path)
    assert sum(isinstance(e, CallStarted) and e.call.tool == "grep_logs" for e in events) == 1
    assert "made before" in contents(server, 2)


def test_a_call_that_recall_made_is_shown_without_running_again(tmp_path: Path) -> None:
    _report, server, events = ask([Say(calls=[("read_settings", {})]), conclude()], tmp_path)
    assert sum(isinstance(e, CallStarted) and e.call.tool == "read_settings" for e in events) == 1
    assert "attention_implementation" in server.requests[1].body["messages"][-1]["content"]


def test_a_loop_ends_in_an_answer(tmp_path: Path) -> None:
    report, server, _ = ask([Say(calls=[("grep_logs", {"pattern": "lr"})])], tmp_path, max_calls=5)
    assert len(server.requests) == 5
    assert server.requests[-1].body["tool_choice"]["function"]["name"] == "diagnosis"
    assert report.root_cause.id == "memory.sequence_too_long" and report.meta.planner == "offline"
    assert any("limit of 5 requests" in d for d in report.meta.degraded)


@pytest.mark.parametrize("bound", [{"max_tokens": 9_000}, {"max_cost": 0.01, "price_in": 1.0, "price_out": 1.0}])
def test_bounds_are_overspent_by_one_answer_at_most(tmp_path: Path, bound: dict[str, float]) -> None:
    calls = ({"pattern": f"lr {n}"} for n in range(99))
    report, server, _ = ask(
        lambda body, n: Say(calls=[("grep_logs", next(calls))], usage=(5_000, 500)), tmp_path, **bound
    )
    assert len(server.requests) == 2
    assert report.meta.planner == "offline" and report.root_cause.id == "memory.sequence_too_long"
    assert report.meta.tokens.in_ == 10_000


@pytest.mark.parametrize(
    "said",
    [
        Say("The cause is the weather."),
        Say('<tool_call>{"name": "grep_logs", "arguments": {"pattern": "x"}}</tool_call>'),
        Say(None, reasoning="hmm, let me think"),
        Say(calls=[("grep_logs", '{"pattern": "x"')]),
        Say(calls=[("grep_logs", '{"pattern": "x"')], finish="length"),
        Say(calls=[("format_disk", {})]),
        Say(calls=[("diagnosis", {"cause": "memory.sequence_too_long"})]),
    ],
)
def test_answers_that_cannot_be_used_are_told_twice_then_the_evidence_concludes(tmp_path: Path, said: Say) -> None:
    report, server, events = ask([said], tmp_path)
    assert len(server.requests) == 3
    assert report.meta.planner == "offline" and report.root_cause.id == "memory.sequence_too_long"
    assert any("no usable answer" in d for d in report.meta.degraded)
    assert not any(isinstance(e, CallStarted) and e.call.tool == "grep_logs" for e in events)
    # bad arguments of the past must not make the next request invalid
    for m in server.requests[-1].body["messages"]:
        for call in m.get("tool_calls", ()):
            json.loads(call["function"]["arguments"])


def test_a_conclusion_as_plain_json_counts(tmp_path: Path) -> None:
    report, server, _ = ask([Say("```json\n" + json.dumps(GOOD) + "\n```")], tmp_path)
    assert report.meta.planner == "llm" and len(server.requests) == 1


def test_more_tools_lists_describes_and_calls(tmp_path: Path) -> None:
    script = [
        Say(calls=[("more_tools", {})]),
        Say(calls=[("more_tools", {"name": "package_conflicts"})]),
        Say(calls=[("more_tools", {"name": "list_files", "arguments": {}})]),
        conclude(),
    ]
    _report, server, events = ask(script, tmp_path)
    assert "verify_checkpoint" in contents(server, 1) and "arguments:" in contents(server, 2)
    assert any(isinstance(e, CallStarted) and e.call.tool == "list_files" for e in events)


def test_risky_calls_are_refused_and_the_model_is_told(tmp_path: Path) -> None:
    script = [Say(calls=[("more_tools", {"name": "storage_speed", "arguments": {"path": "/tmp"}})]), conclude()]
    report, server, _ = ask(script, tmp_path)
    assert "not_allowed" in contents(server, 1)
    assert next(c for c in report.checked if c.tool == "storage_speed").outcome == "not_allowed"


def test_a_follow_up_keeps_evidence_and_calls(tmp_path: Path) -> None:
    first, _, _ = ask([conclude()], tmp_path)
    said = Say(calls=[("diagnosis", {"cause": "answer", "sentences": [{"text": "Nothing shows fragments.", "cites": []},
                                                                    {"text": "Cards ran out in backward.", "cites": ["train.log:13"]}]})])  # fmt: skip
    weigh = Say(calls=[("weigh_cause", {"cause": "memory.fragmentation"})])
    report, server, events = ask([weigh, said], tmp_path, "and why would fragmentation be wrong then", first.session)
    assert report.status == "answer" and report.root_cause.id is None
    assert not any(isinstance(e, CallStarted) for e in events)
    before = contents(server, 0)
    assert QUESTION in before and "Next question: and why would fragmentation" in before
    same = {e.id: e.text for e in first.evidence}
    assert all(same.get(e.id, e.text) == e.text for e in report.evidence)


def test_show_prompt_is_what_is_sent(tmp_path: Path) -> None:
    _, server, _ = ask([conclude()], tmp_path / "a")
    model = ModelSettings("scripted", api_key="k", window=100_000)
    shown = json.loads(
        session.first_request(Workspace([RUN], question=QUESTION), QUESTION, model, state=tmp_path / "b")
    )
    assert shown == server.requests[0].body
    assert not (tmp_path / "b" / "reports").exists() or not list((tmp_path / "b" / "reports").iterdir())
