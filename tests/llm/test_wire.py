"""The wire to a model against a real server: every way it fails ends in a turn or in a trouble with a name."""

from __future__ import annotations

import json
import threading
import time
import tracemalloc
from typing import Any

import pytest
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.agent.llm.turns import ModelTrouble, Turn
from traindoctor.agent.llm.wire import AGAIN, Wire
from traindoctor.evals.endpoint import Fault, Refuse, Say, ScriptedEndpoint
from traindoctor.evals.faults import FAULTS

KEY = "sk-test-0123456789abcdefghijklmnop"
TOOLS = [{"type": "function", "function": {"name": "grep_logs", "parameters": {"type": "object", "properties": {}}}}]
ASKED = [{"role": "user", "content": "why did the loss become NaN?"}]


def made(server: ScriptedEndpoint | str, **more: Any) -> Wire:
    url = server if isinstance(server, str) else server.url
    wire = Wire(ModelSettings(**{"model": "scripted", "base_url": url, "api_key": KEY, "timeout": 0.3, **more}))
    wire.backoff = 0.01
    return wire


def said(wire: Wire, seconds: float = 20.0, told: list[str] | None = None) -> Turn:
    body = wire.body(ASKED, TOOLS)
    return wire.send(body, until=time.monotonic() + seconds, token=(told if told is not None else []).append)


def trouble(wire: Wire, seconds: float = 20.0, told: list[str] | None = None) -> ModelTrouble:
    with pytest.raises(ModelTrouble) as caught:
        said(wire, seconds, told)
    return caught.value


def answered(kind: str) -> Turn:
    with ScriptedEndpoint([Fault(kind)]) as server:
        return said(made(server))


def test_the_table_holds_what_servers_do() -> None:
    assert len(FAULTS) >= 60
    assert {row.meets for row in FAULTS.values()} >= {
        "turn", "key", "model", "overflow", "tools", "refused", "busy", "server", "connection", "timeout", "cut",
        "garbled", "endless",
    }  # fmt: skip


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_ends_in_what_the_table_says(kind: str) -> None:
    row = FAULTS[kind]
    with ScriptedEndpoint([Fault(kind)]) as server:
        wire = made(server)
        seconds = 0.6 if row.play.startswith("drip") else 20.0
        if row.meets == "turn":
            assert isinstance(said(wire, seconds), Turn)
        else:
            told = trouble(wire, seconds)
            assert told.kind == row.meets, told.message
            assert told.message.isprintable() and 20 < len(told.message) < 600
            assert KEY not in told.message
        assert len(server.requests) == row.asked
        wire.close()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("unauthorized", "OPENAI_API_KEY"),
        ("no-model", "no model scripted (404): it has scripted"),
        ("no-path", "ends in /v1"),
        ("tools-flag", "--enable-auto-tool-choice"),
        ("overflow-openai", "8192 tokens"),
        ("busy-long", "wait 3600 s"),
        ("busy", "asked 3 times"),
        ("refused", "nothing listens at 127.0.0.1:"),
        ("unknown-host", "no-such-host.invalid"),
        ("tls", "http:// or https://"),
        ("hang", "said nothing for 0.3 s"),
        ("hang-within", "in the middle of its answer"),
        ("web-page", "web page"),
        ("moved", "sends elsewhere (301)"),
        ("quota", "no credit"),
    ],
)
def test_messages_say_what_happened_and_what_to_do(kind: str, words: str) -> None:
    with ScriptedEndpoint([Fault(kind)]) as server:
        assert words in trouble(made(server)).message


@pytest.mark.parametrize("kind", ["gzip-bomb", "endless", "endless-reasoning", "long-line"])
def test_what_does_not_end_takes_little_memory(kind: str) -> None:
    with ScriptedEndpoint([Fault(kind)]) as server:
        wire = made(server)
        wire._client._made()  # what the client's import takes is not counted
        tracemalloc.start()
        try:
            assert trouble(wire).kind == "endless"
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 48 << 20, f"{peak >> 20} MB"


def test_calls_are_what_came_and_differ_in_their_ids() -> None:
    nan, inf = '{"pattern": "nan"}', '{"pattern": "inf"}'
    for kind in ("same-index", "same-id"):
        calls = answered(kind).calls
        assert [c.arguments for c in calls] == [nan, inf], kind
        assert len({c.id for c in calls}) == 2
    assert answered("no-id").calls[0].id
    assert answered("unknown-tool").calls[0].name == "delete_everything"
    for kind, finish in (("cut-arguments", "length"), ("cut-arguments-hidden", "tool_calls")):
        turn = answered(kind)
        assert (turn.calls[0].arguments, turn.finish) == ('{"pattern": "na', finish)
    assert json.loads(answered("object-arguments").calls[0].arguments) == {"pattern": "nan"}
    assert answered("bad-arguments").calls[0].arguments == "{pattern: nan}"


def test_other_answers_are_what_came() -> None:
    assert answered("reasoning-only").reasoning == "I think it is the learning rate."
    assert answered("reasoning-only").content == ""
    assert answered("refusal").refusal == "I cannot help with that."
    assert answered("filtered").finish == "content_filter"
    assert answered("garbage-lines").content == "The loss diverged."
    assert answered("open-end").content == "The loss diverged."
    turn = answered("control-characters")
    assert turn.content.encode() and "\x00" in turn.content, "text can be encoded; making it harmless is done elsewhere"


def test_words_are_told_as_they_come() -> None:
    told: list[str] = []
    with ScriptedEndpoint([Fault("hang-within")]) as server:
        trouble(made(server), told=told)
    assert told == ["The loss "]


def test_what_was_busy_is_asked_again_and_told_once() -> None:
    told: list[str] = []
    with ScriptedEndpoint([Fault("busy"), Fault("reset"), Say("It diverged.", usage=(120, 7))]) as server:
        turn = said(made(server), told=told)
        assert len(server.requests) == 3
        assert len({r.raw for r in server.requests}) == 1, "the same request each time"
    assert (turn.content, turn.tokens_in, turn.tokens_out, turn.guessed) == ("It diverged.", 120, 7, False)
    assert "".join(told) == "It diverged."


def test_a_cut_answer_is_asked_for_once_more_and_its_cost_is_known() -> None:
    told: list[str] = []
    with ScriptedEndpoint([Fault("cut"), Say("It diverged.")]) as server:
        wire = made(server)
        assert said(wire, told=told).content == "It diverged."
    assert "".join(told) == f"The loss {AGAIN}It diverged."
    assert wire.lost[0] > 0
    with ScriptedEndpoint([Fault("cut")]) as server:
        e = trouble(made(server))
        assert e.tokens_in > 0 and e.tokens_out > 0
        assert len(server.requests) == 2


def test_no_wait_is_longer_than_the_time_left() -> None:
    with ScriptedEndpoint([Refuse(429, "later", 5), Say("never reached")]) as server:
        e = trouble(made(server), seconds=2)
        assert e.kind == "busy" and "wait 5 s" in e.message
        assert len(server.requests) == 1
        assert trouble(made(server), seconds=-1).kind == "timeout"
        assert len(server.requests) == 1, "nothing is asked when the time is over"


def test_the_deadline_ends_silence_that_the_timeout_would_bear() -> None:
    for kind in ("hang", "hang-within", "drip", "drip-head"):
        with ScriptedEndpoint([Fault(kind)]) as server:
            e = trouble(made(server, timeout=60), seconds=0.4)
            assert e.kind == "timeout" and "no whole answer within" in e.message, kind


@pytest.mark.parametrize("field", ["stream_options", "temperature", "parallel_tool_calls", "max_tokens", "stream"])
def test_a_field_that_is_not_taken_is_left_out_from_then_on(field: str) -> None:
    def script(body: dict[str, Any], number: int) -> Any:
        return Refuse(400, f"Unsupported parameter: '{field}' is not supported.") if field in body else Say("yes")

    with ScriptedEndpoint(script) as server:
        wire = made(server, temperature=0.2, extra_body={"parallel_tool_calls": True, "max_tokens": 90})
        assert said(wire).content == "yes"
        assert said(wire).content == "yes"
        assert [field in r.body for r in server.requests] == [True, False, False]


def test_a_field_that_was_not_sent_cannot_be_left_out() -> None:
    with ScriptedEndpoint([Refuse(400, "Unsupported parameter: 'temperature'")]) as server:
        assert trouble(made(server)).kind == "refused"
        assert len(server.requests) == 1


def test_a_server_that_does_not_stream_is_understood() -> None:
    say = Say("It diverged.", [("grep_logs", {"pattern": "nan"})], usage=(5, 6), reasoning="hm")
    told: list[str] = []
    with ScriptedEndpoint([say]) as server:
        turn = said(made(server, extra_body={"stream": False}), told=told)
        assert "stream_options" not in server.requests[0].body
    assert (turn.content, turn.reasoning, turn.finish, turn.tokens_in) == ("It diverged.", "hm", "tool_calls", 5)
    assert [(c.name, c.arguments) for c in turn.calls] == [("grep_logs", '{"pattern": "nan"}')]
    assert told == ["It diverged."]


def test_tokens_are_guessed_where_the_server_counts_none() -> None:
    with ScriptedEndpoint([Say("word " * 100, usage=(0, 0))]) as server:
        wire = made(server)
        turn = said(wire)
    assert turn.guessed and turn.tokens_out == 125
    assert turn.tokens_in == wire.size(wire.body(ASKED, TOOLS)) // 4


def test_whoever_listens_may_leave_in_the_middle() -> None:
    def leave(_: str) -> None:
        raise KeyboardInterrupt

    with ScriptedEndpoint([Fault("endless"), Say("still there")]) as server:
        wire = made(server)
        with pytest.raises(KeyboardInterrupt):
            wire.send(wire.body(ASKED, []), until=time.monotonic() + 20, token=leave)
        assert said(wire).content == "still there"


@pytest.mark.parametrize("kind", ["hang", "hang-within", "drip", "drip-head", "busy-5"])
def test_a_request_whose_answer_nobody_wants_ends_at_once(kind: str) -> None:
    left = threading.Event()
    script = Refuse(429, "later", 5) if kind == "busy-5" else Fault(kind)
    with ScriptedEndpoint([script]) as server:
        wire = made(server, timeout=60)
        wire.stop = left.is_set
        threading.Timer(0.3, left.set).start()
        e = trouble(wire, seconds=600)
        assert e.kind == "stopped", e.message
        assert len(server.requests) == 1
        assert trouble(wire).kind == "stopped"
        assert len(server.requests) == 1, "nothing is asked any more"
