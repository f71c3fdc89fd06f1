"""The ways in which a model's server fails, one row each; `evals.endpoint` plays them over a real connection.

Each row says how a client should come out of it: with the kind of trouble named, or with an answer after all (`turn`).
A client that makes the wrong kind of it tells its user the wrong remedy.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

OVERFLOW_OPENAI = (
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9154 tokens. "
    "Please reduce the length of the messages."
)
OVERFLOW_VLLM = (
    "This model's maximum context length is 4096 tokens. However, you requested 6021 tokens (5021 in the messages, "
    "1000 in the completion). Please reduce the length of the messages or completion."
)
OVERFLOW_LLAMA = (
    "the request exceeds the available context size. try increasing the context size or enable context shift"
)
VLLM_TOOLS = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
PAGE = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"

# How a row is played: an answer with a status, an answer that is a script of pieces, or something about the connection.
Play = Literal[
    "status", "body", "pieces", "message", "reset", "hang", "drip", "drip-head", "cut", "half", "endless", "line",
    "bomb", "no-http", "where",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One way to fail.

    Attributes:
        title: what happens, for tables.
        meets: the kind of trouble a client should tell, or `turn` where it should get an answer.
        play: how the endpoint plays it; the other fields are for that.
        asked: how often a client with two retries asks before it gives up; 0 where requests do not arrive.
        where: the address that fails, for what happens before a request arrives; `{port}` and `{closed}` are filled in.
    """

    title: str
    meets: str
    play: Play = "status"
    status: int = 200
    error: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    message: Mapping[str, Any] = field(default_factory=dict)
    finish: str = "stop"
    asked: int = 1
    where: str = ""


def _status(title: str, meets: str, status: int, message: str = "", asked: int = 1, **more: Any) -> FaultKind:
    headers = {k.replace("_", "-"): v for k, v in more.pop("headers", {}).items()}
    error = {"message": message or title, "type": "error", "param": None, "code": None, **more}
    return FaultKind(title, meets, "status", status, error, headers, asked=asked)


def _call(arguments: str, name: str = "grep_logs", **more: Any) -> dict[str, Any]:
    return {"id": "call_a", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def _message(title: str, meets: str = "turn", finish: str = "stop", **message: Any) -> FaultKind:
    return FaultKind(title, meets, "message", message=message, finish=finish)


def _calls(title: str, *calls: dict[str, Any], finish: str = "tool_calls", meets: str = "turn") -> FaultKind:
    return _message(title, meets, finish, tool_calls=[{"index": i, **c} for i, c in enumerate(calls)])


BEGUN = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "The loss "}, "finish_reason": None}]}

FAULTS: Mapping[str, FaultKind] = {
    # refused with a status
    "bad-request": _status("400", "refused", 400, "something about the request"),
    "overflow-openai": _status("400 context overflow (OpenAI)", "overflow", 400, OVERFLOW_OPENAI,
                               code="context_length_exceeded", param="messages"),
    "overflow-vllm": _status("400 context overflow (vLLM)", "overflow", 400, OVERFLOW_VLLM, code=400),
    "overflow-llama-cpp": _status("400 context overflow (llama.cpp)", "overflow", 400, OVERFLOW_LLAMA, code=400,
                                  type="exceed_context_size_error", n_prompt_tokens=14429, n_ctx=8192),
    "tools-unsupported": _status("400 the model has no tools", "tools", 400,
                                 "registry.ollama.ai/library/gemma:2b does not support tools"),
    "tools-flag": _status("400 tool calls need a flag (vLLM)", "tools", 400, VLLM_TOOLS, code=400),
    "stream-options-untaken": FaultKind("400 a field is not taken", "turn", "status", 400, asked=2, error={
        "message": "Unrecognized request argument supplied: stream_options", "param": None, "code": None}),
    "unauthorized": _status("401", "key", 401, "Incorrect API key provided"),
    "no-credit": _status("402", "key", 402, "Insufficient Balance"),
    "forbidden": _status("403", "key", 403, "not allowed to use this model"),
    "no-model": _status("404 model", "model", 404, "The model `other` does not exist.", code="model_not_found"),
    "no-path": FaultKind("404 path", "model", "status", 404, error="Not Found"),
    "request-timeout": _status("408", "timeout", 408, asked=3),
    "conflict": _status("409", "busy", 409, asked=3),
    "too-large": FaultKind("413", "overflow", "body", 413, body=PAGE),
    "unprocessable": FaultKind("422", "refused", "status", 422, error=[{"loc": ["body", "tools"], "msg": "no list"}]),
    "too-early": _status("425", "busy", 425, asked=3),
    "busy": _status("429", "busy", 429, "Rate limit reached", asked=3),
    "busy-soon": _status("429 come back soon", "busy", 429, "Rate limit reached", 3, headers={"retry_after": "0.05"}),
    "busy-long": _status("429 come back in an hour", "busy", 429, "Rate limit", headers={"retry_after": "3600"}),
    "quota": _status("429 no credit left", "key", 429, "You exceeded your current quota", code="insufficient_quota"),
    "server-error": _status("500", "server", 500, "Internal server error", asked=3),
    "unread-call": _status("500 llama.cpp cannot read the model's call", "garbled", 500,
                           "Failed to parse tool call arguments as JSON", code=500),
    "bad-gateway": FaultKind("502 with a web page", "server", "body", 502, body=PAGE, asked=3),
    "loading": _status("503", "busy", 503, "Loading model", asked=3, code=503, type="unavailable_error"),
    "gateway-timeout": FaultKind("504", "server", "body", 504, body=b"", asked=3),
    "overloaded": _status("529", "busy", 529, "Overloaded", asked=3),
    "moved": FaultKind("301 elsewhere", "connection", "body", 301, headers={"location": "http://other.invalid/v1"}),
    # the connection
    "reset": FaultKind("connection reset before an answer", "connection", "reset", asked=3),
    "no-http": FaultKind("something else than a web server listens", "connection", "no-http", asked=3),
    "refused": FaultKind("nothing listens", "connection", "where", where="http://127.0.0.1:{closed}/v1", asked=0),
    "unknown-host": FaultKind("no such host", "connection", "where", where="http://no-such-host.invalid/v1", asked=0),
    "tls": FaultKind("https to a plain port", "connection", "where", where="https://127.0.0.1:{port}/v1", asked=0),
    "hang": FaultKind("nothing comes", "timeout", "hang"),
    "hang-within": FaultKind("silence within the answer", "timeout", "pieces", body=b"hang"),
    "drip": FaultKind("a byte at a time for ever", "timeout", "drip"),
    "drip-head": FaultKind("a header that never ends", "timeout", "drip-head"),
    "open-end": FaultKind("the connection stays open after the end", "turn", "pieces", body=b"open"),
    "cut": FaultKind("the stream breaks off", "cut", "cut", asked=2),
    "half-character": FaultKind("the stream breaks off within a character", "cut", "half", asked=2),
    # no completion
    "empty-choices": FaultKind("no choices", "garbled", "pieces", error={"choices": []}),
    "empty-body": FaultKind("nothing with status 200", "garbled", "body"),
    "web-page": FaultKind("a web page with status 200", "garbled", "body", headers={"content-type": "text/html"},
                          body=PAGE),
    "deep-json": FaultKind("100,000 brackets", "garbled", "body", body=b'{"choices":' + b"[" * 100_000),
    "not-an-object": FaultKind("a JSON list", "garbled", "body", body=b'[{"error": "no"}]'),
    "gzip-bomb": FaultKind("a compressed gigabyte", "endless", "bomb"),
    "broken-gzip": FaultKind("compressed and damaged", "garbled", "body", headers={"content-encoding": "gzip"},
                             body=b"\x1f\x8b\x08\x00" + b"\x07" * 64),
    "endless": FaultKind("content without end", "endless", "endless", message={"content": "and so on " * 400}),
    "endless-reasoning": FaultKind("reasoning without end", "endless", "endless",
                                   message={"reasoning_content": "but wait, " * 400}),
    "long-line": FaultKind("one line of 32 MB", "endless", "line"),
    "error-within": FaultKind("an error within the stream", "server", "pieces", asked=3,
                              error={"error": {"message": "engine died", "type": "InternalServerError", "code": 500}}),
    "busy-within": FaultKind("an overload within the stream", "busy", "pieces", asked=3,
                             error={"error": {"message": "overloaded", "code": 529}}),
    "garbage-lines": FaultKind("lines that mean nothing between the events", "turn", "pieces", body=b"garbage"),
    "garbage-event": FaultKind("an event that is no JSON", "garbled", "pieces", body=b'data: {"choices": [}\n\n'),
    # completions that are not what they should be
    "null-content": _message("null content", content=None),
    "same-index": _message("two calls under one number", finish="tool_calls", tool_calls=[
        _call('{"pattern": "nan"}', index=0), _call('{"pattern": "inf"}', index=0, id="call_b")]),
    "same-id": _calls("two calls with one id", _call('{"pattern": "nan"}'), _call('{"pattern": "inf"}')),
    "no-id": _calls("a call without id", _call('{"pattern": "nan"}', id=None)),
    "unknown-tool": _calls("an unknown tool", _call("{}", "delete_everything")),
    "bad-arguments": _calls("arguments that are no JSON", _call("{pattern: nan}")),
    "cut-arguments": _calls("arguments cut by the length", _call('{"pattern": "na'), finish="length"),
    "cut-arguments-hidden": _calls("arguments cut, and said to be whole", _call('{"pattern": "na')),
    "list-arguments": _calls("arguments that are a list", _call('["nan"]')),
    "wrong-types": _calls("arguments of wrong types", _call('{"pattern": 7, "limit": "many"}')),
    "object-arguments": _calls("arguments that are no text", {**_call(""), "function": {
        "name": "grep_logs", "arguments": {"pattern": "nan"}}}),
    "call-in-text": _message("a call written as text (tags)", content=(
        '<tool_call>\n{"name": "grep_logs", "arguments": {"pattern": "nan"}}\n</tool_call>')),
    "call-in-fence": _message("a call written as text (fence)", content=(
        '```json\n{"name": "grep_logs", "arguments": {"pattern": "nan"}}\n```')),
    "reasoning-only": _message("reasoning and no answer", reasoning_content="I think it is the learning rate."),
    "refusal": _message("a refusal", refusal="I cannot help with that."),
    "filtered": _message("ended by a filter", finish="content_filter", content="The loss"),
    "length": _message("ended by the length", finish="length", content="The loss became NaN because"),
    "many-calls": _calls("500 calls", *[_call("{}", id=f"call_{n}") for n in range(500)], meets="endless"),
    "control-characters": _message("NUL, escapes and half a pair", content="nan\x00\x1b[2J\x9b31m \ud800 done"),
}  # fmt: skip


def error_body(row: FaultKind) -> bytes:
    """What the server says with an error status: an error object, or the bare word of a web framework."""
    if isinstance(row.error, dict):
        return json.dumps({"error": row.error}).encode()
    return json.dumps({"detail": row.error}).encode()


def bomb(megabytes: int = 1024) -> bytes:
    """A gzip stream a thousandth as large as what it unpacks to: one block, closed by a full flush, over and over."""
    pack = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = pack.compress(b'{"choices":"') + pack.flush(zlib.Z_FULL_FLUSH)
    block = pack.compress(b"a" * (1 << 20)) + pack.flush(zlib.Z_FULL_FLUSH)
    return head + block * megabytes
