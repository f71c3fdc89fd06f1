"""Bytes of an answer -> a turn: server-sent events or one JSON document, however the bytes are cut.

The `openai` package takes events out of bytes; here are the bounds and the tolerance that it has not. Servers number,
name and repeat tool calls in their own ways, answer in one document, leave out blank lines or break off. What is put
together is what came: nothing is completed, repaired or understood here.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from .turns import Asked, Setback, ToolCall, Turn, inner

LINE_BYTES = 8 << 20  # one event, or a whole document: a megabyte of text, escaped in the longest way
TOTAL_BYTES = 64 << 20
TEXT_CAP = 1_000_000  # characters of text, reasoning and arguments together
CALLS_CAP = 64
_BLANKS = "\ufeff \t\r\n"  # a byte order mark may come first
_ID_CHARACTERS = 64  # longer ones are refused by some servers when they come back
_REASONING = ("reasoning_content", "reasoning", "thinking")


def parsed(text: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        Setback: `garbled`: it is none.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Setback("garbled", "the server sent a piece of its answer that is no JSON") from None
    if not isinstance(found, dict):
        raise Setback("garbled", "the server answered with JSON that is no completion")
    return found


@dataclass(slots=True)
class _Call:
    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""

    def complete(self) -> bool:
        """Whether the arguments are a whole JSON object, so that no more of them can come."""
        try:
            return isinstance(json.loads(self.arguments), dict)
        except (ValueError, RecursionError):
            return False


class Assembly:
    """Puts one answer together.

    Attributes:
        begun: characters of the answer that came, of whatever kind: it may have cost something.
        heard: whether anything came at all.
    """

    def __init__(self, asked: Asked, token: Callable[[str], None]) -> None:
        self.begun = 0
        self.heard = False
        self._asked, self._token = asked, token
        self._document = self._done = self._ended = False
        self._held = 0
        self._texts: dict[str, list[str]] = {"content": [], "reasoning": [], "refusal": []}
        self._calls: list[_Call] = []
        self._finish = ""
        self._usage: tuple[int, int] | None = None
        self._choices = 0

    def read(self, pieces: Iterable[bytes]) -> None:
        """Take an answer as its bytes come, to its end or to where the server says that it is at its end.

        Raises:
            Setback: `endless`, `garbled`, or what an error within the answer means.
        """
        answer, start = self._bounded(pieces), ""
        while not start and (piece := next(answer, "")):
            start = piece.lstrip(_BLANKS)
        if not start:
            raise Setback("garbled", "the server answered with nothing")
        if start[0] == "<":
            raise Setback("garbled", "the server answered with a web page: `base_url` usually ends in /v1")
        answer = chain((start,), answer)
        self._document = start[0] in "{["
        for piece in (parsed("".join(answer)),) if self._document else self._events(answer):
            self._take(piece)

    @property
    def complete(self) -> bool:
        """Whether the server said that this is all."""
        return self._done or bool(self._finish)

    def turn(self) -> Turn:
        """The whole answer, when no more bytes come; without the counts of tokens, where the server gave none.

        Raises:
            Setback: `cut`: it broke off; `garbled`: it is no answer.
        """
        if not self._document and not self.complete:
            raise Setback("cut", "the server's answer broke off", again=True)
        if not self._choices:
            raise Setback("garbled", "the server's answer holds no choice: the model said nothing at all")
        tokens_in, tokens_out = self._usage or (0, self.begun // 4)
        return Turn(
            content=_whole("".join(self._texts["content"])),
            calls=self._named(),
            finish=self._finish,
            reasoning=_whole("".join(self._texts["reasoning"])),
            refusal=_whole("".join(self._texts["refusal"])),
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            guessed=self._usage is None,
        )

    def _bounded(self, pieces: Iterable[bytes]) -> Iterator[str]:
        """The text of the bytes, with an end of a line and of an event behind it."""
        total, sound = 0, codecs.getincrementaldecoder("utf-8")("replace")
        for piece in pieces:
            total, self._held, self.heard = total + len(piece), self._held + len(piece), True
            if total > TOTAL_BYTES:
                raise Setback("endless", f"the server's answer does not end: stopped after {TOTAL_BYTES >> 20} MB")
            if self._held > LINE_BYTES:
                raise Setback("endless", f"the server sent a piece of more than {LINE_BYTES >> 20} MB: stopped reading")
            if text := sound.decode(piece):
                yield text
        self._ended = True
        yield sound.decode(b"", final=True) + "\n\n"

    def _events(self, answer: Iterator[str]) -> Iterator[dict[str, Any]]:
        from openai._streaming import SSEDecoder

        events = 0
        for event in SSEDecoder().iter_bytes(text.encode() for text in answer):
            self._held = 0
            # Data over several lines is one text, unless every line is one of its own: some leave out the blank line.
            lines = [line.strip() for line in event.data.split("\n")]
            for data in lines if all(map(_alone, lines)) else [event.data.strip()]:
                if data == "[DONE]":
                    self._done = True
                    return
                if not data.startswith("{"):
                    continue
                try:
                    piece = parsed(data)
                except Setback:
                    if self._ended:
                        continue  # cut within this event: what misses its end is told by whoever waits for it
                    raise
                events += 1
                yield piece
        if not events:
            raise Setback("garbled", "the server answered with something that is no completion")

    def _take(self, piece: dict[str, Any]) -> None:
        if piece.get("error") or piece.get("object") == "error":
            raise inner(piece.get("error") or piece, self._asked)
        self._usage = _usage(piece.get("usage")) or self._usage
        choices = piece.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or choice.get("index") not in (None, 0):
                continue
            self._choices += 1
            said = choice.get("delta") or choice.get("message")
            if isinstance(said, dict):
                self._said(said)
            if isinstance(reason := choice.get("finish_reason"), str):
                self._finish = reason[:40]

    def _said(self, said: dict[str, Any]) -> None:
        if text := _text(said.get("content")):
            self._add("content", text)
            self._token(_whole(text))
        if text := next((t for k in _REASONING if (t := _text(said.get(k)))), ""):
            self._add("reasoning", text)
        if text := _text(said.get("refusal")):
            self._add("refusal", text)
        calls = said.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._called(call)
        if isinstance(call := said.get("function_call"), dict):  # how calls were spelled once; there is but one
            self._called({"index": 0, "function": call})

    def _add(self, kind: str, text: str) -> None:
        self._texts[kind].append(text)
        self._count(len(text))

    def _count(self, characters: int) -> None:
        self.begun += characters
        if self.begun > TEXT_CAP:
            raise Setback("endless", f"the model does not stop: ended after {TEXT_CAP:,} characters")

    def _called(self, piece: dict[str, Any]) -> None:
        stated = piece.get("function")
        function = stated if isinstance(stated, dict) else piece
        index = piece.get("index") if isinstance(piece.get("index"), int) else None
        raw_id, raw_name = piece.get("id"), function.get("name")
        identity = str(raw_id) if isinstance(raw_id, str | int) else ""
        name = raw_name if isinstance(raw_name, str) else ""
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
        self._count(len(arguments) + len(name) + len(identity))
        call = self._same(index, identity, name)
        if call is None:
            if len(self._calls) >= CALLS_CAP:
                raise Setback("endless", f"the model asks for more than {CALLS_CAP} tools at once: none was called")
            self._calls.append(_Call(index, identity, name, arguments))
            return
        call.id = call.id or identity
        if name != call.name and not call.arguments:
            call.name += name  # a name may come in pieces, too
        call.arguments += arguments

    def _same(self, index: int | None, identity: str, name: str) -> _Call | None:
        """The call that a piece goes on with, None if it begins another.

        Servers number calls (`index`), but some give all of them one number, and some give none: then a new id begins
        a call, and so does a name after arguments that are complete.
        """
        same = [c for c in self._calls if c.index == index]
        if not same:
            return None
        call = same[-1]
        if identity and call.id and identity != call.id:
            return next((c for c in same if c.id == identity), None)
        if name and (call.complete() or (name != call.name and call.arguments)):
            return None
        if index is None and name and not identity:
            return None
        return call

    def _named(self) -> list[ToolCall]:
        """The calls in order, with ids that are there and differ."""
        used: set[str] = set()
        calls = []
        for number, call in enumerate(self._calls, 1):
            wanted = call.id if call.id.isprintable() and len(call.id) <= _ID_CHARACTERS else ""
            identity, more = wanted or f"call_{number}", number
            while identity in used:
                identity, more = f"call_{number}_{more}", more + 1
            used.add(identity)
            calls.append(ToolCall(identity, _whole(call.name), _whole(call.arguments)))
        return calls


def _alone(data: str) -> bool:
    return data == "[DONE]" or (data[:1] == "{" and data[-1:] == "}")


def _text(value: Any) -> str:
    """Text as servers give it: a string, or a list of parts that hold strings."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(t for part in value if isinstance(part, dict) and isinstance(t := part.get("text"), str))
    return ""


def _whole(text: str) -> str:
    """Text that can be encoded: halves of a character that belong together are joined, others replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _usage(stated: Any) -> tuple[int, int] | None:
    """Tokens in and out where the server counted them and the counts are possible."""
    if not isinstance(stated, dict):
        return None
    counts = [stated.get("prompt_tokens"), stated.get("completion_tokens")]
    known = [c for c in counts if isinstance(c, int) and not isinstance(c, bool) and 0 <= c < 100_000_000]
    return (known[0], known[1]) if len(known) == 2 else None
