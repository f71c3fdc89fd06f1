"""However the bytes of an answer are cut, and whatever they are, what comes of it is the same, or has a name."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.llm.stream import Assembly
from traindoctor.agent.llm.turns import Asked, ModelTrouble, Setback, Turn, pause, refusal

ASKED = Asked("m", "http://host/v1/chat/completions", ("topsecret",), ("temperature",))


def read(*pieces: bytes) -> Turn:
    assembly = Assembly(ASKED, lambda _: None)
    assembly.read(pieces)
    return assembly.turn()


def event(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], **more}, ensure_ascii=False).encode() + b"\n\n"


def call(index: int | None, arguments: Any, **more: Any) -> dict[str, Any]:
    name = more.pop("name", None)
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"tool_calls": [{**({} if index is None else {"index": index}), "function": function, **more}]}


STREAM = (
    b"\xef\xbb\xbf: comment\r\n\r\n"
    + event({"role": "assistant", "content": "Der Verlust wächst 🙂 "})
    + event({"content": "\u2028 {}\\n"}).replace(b"\n\n", b"\r\n\r\n")
    + event({"reasoning_content": "warum?"}).replace(b"\n\n", b"\r\r")
    + event(call(0, "", id="a", name="grep_logs"))
    + event(call(0, '{"pattern": '))
    + event(call(0, '"größer"}'))
    + event(call(1, '{"a": 1}', id="a", name="read_lines"))
    + event({}, "tool_calls")
    + b'event: x\ndata: {"choices": [],\r\ndata: "usage": {"prompt_tokens": 9, "completion_tokens": 4}}\n\ndata: [DONE]\n\n'
)
WHOLE = read(STREAM)


def test_the_stream_that_is_cut_below_is_read_whole() -> None:
    assert WHOLE.content == "Der Verlust wächst 🙂 \u2028 {}\\n"
    assert WHOLE.reasoning == "warum?"
    assert [(c.name, c.arguments) for c in WHOLE.calls] == [
        ("grep_logs", '{"pattern": "größer"}'),
        ("read_lines", '{"a": 1}'),
    ]
    assert (WHOLE.finish, WHOLE.tokens_in, WHOLE.tokens_out) == ("tool_calls", 9, 4)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=40))
def test_where_the_bytes_are_cut_changes_nothing(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in pairwise(places))) == WHOLE


def test_byte_by_byte() -> None:
    assert read(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == WHOLE


@settings(deadline=None)
@given(st.integers(0, len(STREAM) - 1))
def test_a_part_is_never_taken_for_the_whole(end: int) -> None:
    finished = STREAM.index(b'"finish_reason": "tool_calls"')
    try:
        turn = read(STREAM[:end])
    except Setback as e:
        assert e.kind in ("cut", "garbled")
    else:
        assert end > finished
        assert [c.arguments for c in turn.calls] == [c.arguments for c in WHOLE.calls]


_NAMES = st.sampled_from(
    ["choices", "delta", "message", "content", "tool_calls", "function", "name", "arguments", "id", "index", "usage",
     "finish_reason", "error", "code", "reasoning", "refusal", "text", "prompt_tokens", "object", "function_call"]
)  # fmt: skip
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(_NAMES, _JSON, max_size=5), max_size=5), st.booleans())
def test_any_json_ends_in_a_turn_or_a_trouble(pieces: list[Any], whole: bool) -> None:
    data = json.dumps(pieces[:1] and pieces[0]).encode() if whole else b"".join(
        b"data: " + json.dumps(p).encode() + b"\n\n" for p in pieces
    )  # fmt: skip
    try:
        turn = read(data)
    except ModelTrouble as e:
        assert e.message.isprintable()
    else:
        assert len({c.id for c in turn.calls}) == len(turn.calls)
        json.dumps([turn.content, turn.reasoning, turn.refusal, *(c.arguments for c in turn.calls)]).encode()
        (turn.content + turn.refusal + "".join(c.name + c.arguments for c in turn.calls)).encode()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_end_in_a_turn_or_a_trouble(pieces: list[bytes]) -> None:
    with pytest.raises(ModelTrouble):
        read(*pieces)


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        # one number for all calls
        ([call(0, '{"a":1}', id="x", name="f"), call(0, '{"b":2}', id="y", name="g")], [("f", '{"a":1}'), ("g", '{"b":2}')]),
        # the same without ids
        ([call(0, '{"a":1}', name="f"), call(0, '{"a":1}', name="f")], [("f", '{"a":1}')] * 2),
        # no numbers
        ([call(None, '{"a"', id="x", name="f"), call(None, ":1}"), call(None, "{}", id="y", name="g")],
         [("f", '{"a":1}'), ("g", "{}")]),
        # the name again with every piece
        ([call(0, '{"a"', id="x", name="f"), call(0, ":1}", id="x", name="f")], [("f", '{"a":1}')]),
        # a name in pieces
        ([call(0, "", id="x", name="grep"), call(0, "", name="_logs"), call(0, "{}")], [("grep_logs", "{}")]),
        # pieces of two calls that alternate
        ([call(0, '{"a"', id="x", name="f"), call(1, '{"b"', id="y", name="g"), call(0, ":1}"), call(1, ":2}")],
         [("f", '{"a":1}'), ("g", '{"b":2}')]),
        # the old spelling
        ([{"function_call": {"name": "f", "arguments": '{"a"'}}, {"function_call": {"arguments": ":1}"}}], [("f", '{"a":1}')]),
        # ids and names of wrong types
        ([{"tool_calls": [{"index": "0", "id": 7, "function": {"name": None, "arguments": None}}]}], [("", "")]),
        ([{"tool_calls": [{"index": 0, "id": "x", "name": "f", "arguments": {"a": 1}}, None, "call"]}], [("f", '{"a": 1}')]),
    ],
)  # fmt: skip
def test_calls_however_they_are_numbered(deltas: list[dict[str, Any]], calls: list[tuple[str, str]]) -> None:
    turn = read(*map(event, deltas), event({}, "tool_calls"))
    assert [(c.name, c.arguments) for c in turn.calls] == calls
    assert len({c.id for c in turn.calls}) == len(calls) and all(c.id for c in turn.calls)


def test_halves_of_a_character_are_joined() -> None:
    first = b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n'
    second = b'data: {"choices":[{"delta":{"content":"\\ude42"},"finish_reason":"stop"}]}\n\n'
    assert read(first, second).content == "🙂"


def test_events_without_a_blank_line_between_them() -> None:
    lines = (event({"content": "a"}) + event({"content": "b"}, "stop")).replace(b"\n\n", b"\n")
    assert read(lines + b"data: [DONE]\n").content == "ab"


def test_other_choices_and_impossible_counts_are_left_out() -> None:
    second = b'data: {"choices": [{"index": 1, "delta": {"content": "no"}}]}\n\n'
    turn = read(second, event({"content": "yes"}, "stop", usage={"prompt_tokens": -5, "completion_tokens": 10**30}))
    assert (turn.content, turn.guessed) == ("yes", True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 10.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1e400"}, None),
        ({}, None),
    ],
)
def test_the_time_a_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert pause(headers) == seconds


@settings(deadline=None)
@given(st.integers(100, 999), st.text(max_size=200) | _JSON.map(json.dumps))
def test_every_refusal_has_one_plain_line(status: int, body: str) -> None:
    told = refusal(status, {"retry-after": body[:20]}, body + "topsecret", ASKED)
    assert told.message.isprintable() and told.message and "topsecret" not in told.message
    assert len(told.message) < 600
