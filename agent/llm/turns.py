"""One answer of a model as it came over the wire, and what can go wrong on the way."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from ..safety.redact import Redactor


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model wrote it; `arguments` is its raw text, not yet parsed by anyone."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class Turn:
    """A whole answer.

    Attributes:
        finish: the server's reason for ending: `stop`, `tool_calls`, `length`, `content_filter`, or empty.
        reasoning: what the model thought aloud in a channel of its own.
        tokens_in: of the prompt, by the server's count; where it gave none, guessed from bytes (`guessed`).
    """

    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    finish: str = ""
    reasoning: str = ""
    refusal: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    guessed: bool = False
    seconds: float = 0.0


class ModelTrouble(Exception):
    """The model could not be had: one line that says what happened and, where the user can help, what to do.

    Attributes:
        kind: `key`, `model`, `overflow`, `tools`, `refused`, `busy`, `server`, `connection`, `timeout`, `cut`,
            `garbled`, `endless` or `stopped`.
        tokens_in: what the failed attempts cost as far as it is known; likewise `tokens_out`.
    """

    def __init__(self, kind: str, message: str, tokens_in: int = 0, tokens_out: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out


# ----------
# What a failed request means, in plain words: rows of wordings and statuses, tried in order.


class Setback(ModelTrouble):
    """A trouble of one attempt.

    Attributes:
        again: whether asking once more may help.
        wait: seconds the server asked to wait, None where it named none.
        field: a field of the request that the server does not take.
    """

    def __init__(self, kind: str, message: str, *, again: bool = False, wait: float | None = None, field: str = ""):
        super().__init__(kind, message)
        self.again = again
        self.wait = wait
        self.field = field


@dataclass(frozen=True, slots=True)
class Row:
    """What a wording or a status means. `{detail}` is what the server said, `{model}` and `{status}` are filled in."""

    kind: str
    message: str
    again: bool = False


# Servers agree on the status of a failure less than on its words, so words are looked at first.
WORDINGS: tuple[tuple[re.Pattern[str], Row], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), row)
    for pattern, row in (
        (
            r"context[ _]length|exceed_context_size|available context size|context window|prompt is too long"
            r"|input token count|too many tokens|reduce the length of the messages|request too large for model",
            Row("overflow", "the request is longer than the model takes ({status}): {detail}"),
        ),
        (
            r"enable-auto-tool-choice|tool-call-parser|--jinja",
            Row("tools", "the server was started without tool calls ({status}): {detail}"),
        ),
        (
            r"(?:not|n't) support (?:tool|function)|no endpoints found that support tool"
            r"|(?:tools?|function calling|tool use|tool calling) (?:is|are) not supported",
            Row("tools", "the model {model} cannot call tools ({status}): name a model that can"),
        ),
        (
            r"failed to parse (?:tool call|input)|could not parse tool|error parsing tool call",
            Row("garbled", "the server could not read the tool call that the model wrote ({status})"),
        ),
        (
            r"insufficient[ _](?:quota|balance|credit)|exceeded your current quota|credit balance|billing",
            Row("key", "the account of the key has no credit left ({status}): {detail}"),
        ),
        (
            r"content_filter|content management policy",
            Row("refused", "the server's filter refused the request ({status})"),
        ),
        (
            r"model_not_found|model\b.{0,200}(?:not found|does not exist|not exist)|unknown model|no such model",
            Row("model", "the server has no model {model} ({status}){others}"),
        ),
    )
)  # fmt: skip

STATUSES: Mapping[int, Row] = {
    401: Row("key", "the server {key}"),
    402: Row("key", "the account of the key has no credit left (402): {detail}"),
    403: Row("key", "the server {key}, or name a model that the key may use"),
    404: Row("model", "nothing answers at {url} (404): `base_url` usually ends in /v1"),
    405: Row("model", "{url} takes no chat completions (405): `base_url` usually ends in /v1"),
    408: Row("timeout", "the server gave up waiting (408)", again=True),
    409: Row("busy", "the server is in conflict with itself (409)", again=True),
    413: Row("overflow", "the request is larger than the server takes (413)"),
    422: Row("refused", "the server does not take the request (422): {detail}"),
    425: Row("busy", "the server asks to come back later (425)", again=True),
    429: Row("busy", "the server has too many requests (429): {detail}", again=True),
    500: Row("server", "the server failed (500): {detail}", again=True),
    502: Row("server", "the gateway reached no model (502)", again=True),
    503: Row("busy", "the server is overloaded or still loading the model (503)", again=True),
    504: Row("server", "the gateway waited in vain for the model (504)", again=True),
    529: Row("busy", "the server is overloaded (529)", again=True),
}
OTHERS = (
    (range(300, 400), Row("connection", "{url} sends elsewhere ({status}): set `base_url` to the final address")),
    (range(500, 600), Row("server", "the server failed ({status}): {detail}", again=True)),
)
REFUSED = Row("refused", "the server refused the request ({status}): {detail}")

# Fields that an answer does not depend on, by how servers name them: one that is not taken is left out.
DROPPABLE: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "stream_options": r"\bstream_options\b",
        "temperature": r"\btemperature\b",
        "parallel_tool_calls": r"\bparallel_tool_calls\b",
        "tool_choice": r"\btool_choice\b",
        "max_tokens": r"\bmax_tokens\b",
        "stream": r"\bstream(?:ing)?\b",
    }.items()
}
_UNTAKEN = re.compile(
    r"unsupported|not (?:supported|permitted|allowed)|does not support|unrecognized|unknown|unexpected|extra|invalid",
    re.IGNORECASE,
)
READ = 4096  # characters of an answer's error that are looked at
SHOWN = 240


@dataclass(frozen=True, slots=True)
class Asked:
    """What a message may name.

    Attributes:
        secrets: what no message may hold.
        fields: of the request.
        others: the models that the server has, as the end of a sentence.
        key: what the server thinks of the key and where that is from, with a place for the `{status}`.
    """

    model: str
    url: str
    secrets: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    others: str = ""
    key: str = "refused the key ({status}): set OPENAI_API_KEY or `api_key_file`"

    def plain(self, text: str, limit: int = SHOWN) -> str:
        """One line without control characters, secrets and the key; at most `limit` characters."""
        for secret in self.secrets:
            text = text.replace(secret, "<key>")
        text = "".join(c if c.isprintable() else " " for c in text)
        text = Redactor().redact(" ".join(text.split()))
        return text if len(text) <= limit else text[: limit - 3] + "..."


def refusal(status: int, headers: Mapping[str, str], body: str, asked: Asked) -> Setback:
    """What an answer with an error status means; also an error within a stream, by the status that it names."""
    said, parameter = _said(body[: 16 * READ])
    looked = said[:READ]
    row = None
    if status >= 400 and status not in (401, 403):
        row = next((r for pattern, r in WORDINGS if pattern.search(f"{looked} {parameter}")), None)
    settled = row is not None and row.kind in ("overflow", "tools")
    if status in (400, 422) and not settled and (field := _field(looked, parameter, asked.fields)):
        return Setback("refused", f"the server does not take `{field}` ({status})", field=field)
    row = row or STATUSES.get(status) or next((r for span, r in OTHERS if status in span), REFUSED)
    wait = pause(headers)
    text = row.message.format(
        status=status,
        detail=asked.plain(looked) or "it did not say why",
        model=asked.plain(asked.model, 80),
        url=asked.plain(asked.url, 120),
        others=asked.plain(asked.others, 400),
        key=asked.plain(asked.key.replace("{status}", str(status)), 160),
    )
    return Setback(row.kind, text, again=row.again, wait=wait)


def inner(error: Any, asked: Asked) -> Setback:
    """What an error object within a stream means."""
    code = error.get("code", error.get("status")) if isinstance(error, dict) else None
    if isinstance(code, str) and code.isdigit():
        code = int(code)
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return refusal(status, {}, json.dumps({"error": error}), asked)


def pause(headers: Mapping[str, str]) -> float | None:
    """Seconds that `Retry-After` asks for, given as a number or a date; None where it says nothing readable."""
    if (thousandths := _number(headers.get("retry-after-ms", ""))) is not None:
        return thousandths / 1000
    value = headers.get("retry-after", "").strip()
    if (seconds := _number(value)) is not None or not value:
        return seconds
    try:
        when = parsedate_to_datetime(value)
        now = parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (when - now).total_seconds())
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _number(value: str) -> float | None:
    return float(value) if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", value.strip()) else None


def _said(body: str) -> tuple[str, str]:
    """What the server said, and the field or the code it named."""
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return ("a web page" if body.lstrip()[:1] == "<" else body), ""
    error = read.get("error", read) if isinstance(read, dict) else read
    if not isinstance(error, dict):
        return str(error)[:READ], ""
    message = error.get("message", error.get("detail", ""))
    named = " ".join(str(error.get(k) or "")[:100] for k in ("param", "code", "type"))
    return message if isinstance(message, str) else json.dumps(message), named


def _field(said: str, parameter: str, fields: tuple[str, ...]) -> str:
    """The field of the request that the server does not take, if that is what it says."""
    named = parameter.split(" ")[0]
    if named in DROPPABLE and named in fields:
        return named
    found = (f for f, words in DROPPABLE.items() if f in fields and words.search(said))
    return next(found, "") if _UNTAKEN.search(said) else ""
