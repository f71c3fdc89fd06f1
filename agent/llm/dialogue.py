"""What was said between planner and model, as plain data the session keeps, and the messages made of it.

Entries carry `is`: `setup` (tools and window, once), `user`, `model` (with its calls), `tool` (an answer in words),
`result` (the answer of a call by its identity), `pending` (a conclusion whose cited lines are being read), `concluded`
(they were), `plain` (a server without tools), `off`.
Results are rendered anew for each request, so that old ones can be shortened when the dialogue grows long.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.types import Call
from ..safety.fences import fenced, harmless
from ..verdict.planner import View
from . import framing
from .brief import call_text, result_text
from .framing import Room, encoded, fitting, shortened

_TEXT = 300  # characters from which an older answer in words is shortened
_KEPT = 160  # characters kept of it, and of what the model wrote
_EARLIER = 600  # characters kept of a question's first message once the dialogue is too long
_LEAST = 200  # characters of an answer of the latest exchange that stay, whatever the room
_TRIES = 6  # cuts of what must stay, each tighter than the one before
_FOLDED = 500  # bytes that name the calls of what is left out
_UNANSWERED = "not run: the session was interrupted"

Message = dict[str, Any]


@dataclass(slots=True)
class _Part:
    """A message of the user, or what the model said together with the answers to its calls: never taken apart.

    Attributes:
        results: number of the result that each message shows; 0 for any other text.
        waiting: ids of its calls that have no answer yet.
        opens: whether it puts a question; `stays`: whether it holds for all that follows.
    """

    messages: list[Message]
    results: list[int]
    waiting: set[str] = field(default_factory=set)
    opens: bool = False
    stays: bool = False

    @property
    def by_user(self) -> bool:
        return self.messages[0]["role"] == "user"


def messages(
    view: View, entries: Sequence[Mapping[str, Any]], room: Room, most: int, beside: int = 0
) -> list[Message]:  # fmt: skip
    """The messages of a request that has at most `room.dialogue` bytes, and at most `most`.

    What is oldest makes way first: results, other answers, the model's own words, earlier questions, then whole
    exchanges, which are counted. The question and the latest exchange stay, shortened where they alone are too long.

    Args:
        beside: bytes of the request without its messages: tools, settings, what is said behind them.
    """
    system: Message = {"role": "system", "content": framing.system()}
    parts = _parts(view, entries, room)
    beside += _size(system)
    bound = min(most, room.dialogue) - beside
    if sum(map(_weight, parts)) > bound:
        _Shortening(view, room, parts).to(min(bound, room.shortened - beside), bound)
    return [system, *(m for part in parts for m in part.messages)]


def _parts(view: View, entries: Sequence[Mapping[str, Any]], room: Room) -> list[_Part]:
    """The dialogue in parts; every call is answered, and nothing else is."""
    parts: list[_Part] = []
    plain = False
    for entry in entries:
        kind = entry["is"]
        if kind == "user":
            message = {"role": "user", "content": entry["text"]}
            opens = bool(entry.get("opens"))
            parts.append(_Part([message], [0], opens=opens, stays=plain and not opens))
            plain = False
        elif kind == "plain":  # how to answer without tools is said next, and must be known from then on
            plain = True
        elif kind == "model":
            parts.append(_Part([_assistant(entry)], [0], {c["id"] for c in entry["calls"]}))
        elif kind in ("tool", "result"):
            part = next((p for p in reversed(parts) if entry["id"] in p.waiting), None)
            if part is None:
                continue
            number = (number_of(view, entry["identity"]) or 0) if kind == "result" else 0
            text = entry["text"] if kind == "tool" else result_text(view, number, room) if number else _UNANSWERED
            _answer(part, entry["id"], text, number)
    for part in parts:
        for call in part.messages[0].get("tool_calls", ()):
            if call["id"] in part.waiting:
                _answer(part, call["id"], _UNANSWERED, 0)
    return parts


def _answer(part: _Part, to: str, text: str, number: int) -> None:
    part.waiting.discard(to)
    part.messages.append({"role": "tool", "tool_call_id": to, "content": text})
    part.results.append(number)


def _assistant(entry: Mapping[str, Any]) -> Message:
    message: Message = {"role": "assistant", "content": entry["text"] or None}
    if entry["calls"]:
        message["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in entry["calls"]
        ]
    elif not entry["text"]:
        message["content"] = "(empty)"
    return message


def _size(message: Message) -> int:
    """Bytes of a message as the client encodes it, with its comma."""
    return len(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")) + 1


def _weight(part: _Part) -> int:
    return sum(map(_size, part.messages))


class _Shortening:
    """Makes a dialogue shorter, step by step, until it fits."""

    def __init__(self, view: View, room: Room, parts: list[_Part]) -> None:
        self._view, self._room, self._parts = view, room, parts
        self._whole: dict[int, str] = {}
        self._size = sum(map(_weight, parts))
        spoken = [n for n, p in enumerate(parts) if not p.by_user]
        opened = [n for n, p in enumerate(parts) if p.opens] or [n for n, p in enumerate(parts) if p.by_user]
        self._latest: _Part | None = parts[spoken[-1]] if spoken else None
        self._question: _Part | None = parts[opened[-1]] if opened else None
        last = (spoken or opened or [0])[-1]
        self._older = [p for p in parts[:last] if p is not self._question and not p.stays]
        self._since = [p for p in parts[last:] if p is not self._question and not p.stays]

    def to(self, wanted: int, bound: int) -> None:
        """Shorten what is older until `wanted` is reached, then leave out and cut what it takes for `bound`.

        Args:
            wanted, bound: bytes of all parts together.
        """
        for message, change in self._shorter():
            if self._size <= wanted:
                return
            if _size({**message, **change}) < _size(message):
                self._change(message, change)
        self._fold(bound)
        self._cut_latest(bound, max(_LEAST, bound // 2 // max(1, sum(len(p.messages) for p in self._since))))
        tight = bound
        for _ in range(_TRIES):  # what a cut says of itself is known only once it is made
            self._cut_question(tight, bound // 3)
            self._cut_latest(tight, _LEAST)
            if self._size <= bound:
                return
            tight -= max(64, self._size - bound)
        self._drop_calls(bound)

    def _cut_question(self, bound: int, most: int) -> None:
        """Cut the question itself, where the rest leaves it too little room."""
        if self._question is None or self._size <= bound:
            return
        message = self._question.messages[0]
        room = max(2 * _LEAST, min(most, _weight(self._question) - (self._size - bound) - 40))
        self._change(message, {"content": shortened(self._said(message), room, "show_evidence has the rest")})

    def _said(self, message: Message) -> str:
        """What a message said before it was cut, so that a further cut counts from there."""
        return self._whole.setdefault(id(message), str(message["content"]))

    def _change(self, message: Message, change: Message) -> None:
        before = _size(message)
        message.update(change)
        self._size += _size(message) - before

    def _shorter(self) -> Iterator[tuple[Message, Message]]:
        """Older messages with what they may become, in the order in which they make way."""
        answers = [
            (m, n) for p in self._older for m, n in zip(p.messages, p.results, strict=True) if m["role"] == "tool"
        ]
        yield from ((m, {"content": self._pointer(n)}) for m, n in answers if n)
        for message, number in answers:
            if not number and len(message["content"]) > _TEXT:
                yield message, {"content": shortened(message["content"], _KEPT, "ask again for it")}
        for said in (p.messages[0] for p in self._older if not p.by_user):
            calls = [{**c, "function": {**c["function"], "arguments": "{}"}} for c in said.get("tool_calls", ())]
            text = said["content"] and shortened(said["content"], _KEPT, "")
            yield said, {"content": text, **({"tool_calls": calls} if calls else {})}
        for asked in (p.messages[0] for p in self._older if p.by_user):
            yield asked, {"content": shortened(asked["content"], _EARLIER, "show_evidence has what was shown here")}

    def _pointer(self, number: int) -> str:
        summary = " ".join(str(self._view.results[number - 1]["summary"]).split())[:200]
        ids = list(self._view.evidence_of[number - 1]) if number <= len(self._view.evidence_of) else []
        cited = f" ({ids[0]} to {ids[-1]})" if ids else ""
        again = f'read_lines(file="result/{number}", start=1) shows it again'
        return f"Shortened{cited}; {again}: {fenced(summary, 'summary')}"

    def _fold(self, bound: int) -> None:
        """Leave out the oldest parts, as many as it takes, and say in one message how many calls those were."""
        folded: list[_Part] = []
        for part in self._older:
            if self._size + (_FOLDED + 400 if folded else 0) <= bound:
                break
            folded.append(part)
            self._size -= _weight(part)
        if not folded:
            return
        told = _Part([{"role": "user", "content": self._left_out(folded)}], [0])
        self._size += _weight(told)
        # what was left out of this question's own exchanges stands behind it
        order = {id(p): n for n, p in enumerate(self._parts)}
        within = self._question is not None and order[id(self._question)] < order[id(folded[-1])]
        gone = set(map(id, folded))
        kept = [p for p in self._parts if id(p) not in gone]
        kept.insert(1 + [p is self._question for p in kept].index(True) if within else 0, told)
        self._parts[:] = kept

    def _left_out(self, folded: Sequence[_Part]) -> str:
        calls = [c["function"]["name"] for p in folded for c in p.messages[0].get("tool_calls", ())]
        numbers = sorted({n for p in folded for n in p.results if n})
        made = [self._view.results[n - 1]["call"] for n in reversed(numbers)]
        written = dict.fromkeys(harmless(call_text(c["tool"], c["args"]))[:120] for c in made)
        names, _ = fitting([*written, *(c for c in dict.fromkeys(calls) if not numbers)], _FOLDED)
        text = f"{len(calls)} earlier calls are left out"
        asked = sum(p.opens for p in folded)
        text += f", with {asked} earlier questions" if asked else ""
        if numbers:
            which = f"result/{numbers[0]}" + (f" to result/{numbers[-1]}" if len(numbers) > 1 else "")
            text += f"; their answers are {which} (read_lines)"
        return f"{text}: {fenced(', '.join(names), 'calls')}" if names else text

    def _cut_latest(self, bound: int, least: int) -> None:
        """Cut the longest texts of the latest exchange, and what was said since, to one length that fits."""
        if self._size <= bound:
            return
        found = [(m, n) for p in self._since for m, n in zip(p.messages, p.results, strict=True)]
        sizes = {id(m): encoded(str(m.get("content") or "")) for m, _ in found}
        allowed = sum(sizes.values()) - (self._size - bound)
        level = max(sizes.values(), default=0)
        while level > least and sum(min(s, level + 150) for s in sizes.values()) > allowed:
            level = max(least, int(level * 0.9))
        for message, number in found:
            if sizes[id(message)] > level + 150:
                small = replace(self._room, result=level * 2 // 3)
                text = result_text(self._view, number, small) if number else self._said(message)
                self._change(message, {"content": shortened(text, level, "read_lines has the rest" if number else "")})
        if least <= _LEAST and self._size > bound:
            for call in self._latest.messages[0].get("tool_calls", ()) if self._latest else ():
                if len(call["function"]["arguments"]) > _LEAST:
                    call["function"]["arguments"] = "{}"
        self._size = sum(map(_weight, self._parts))

    def _drop_calls(self, bound: int) -> None:
        """Leave out the last of very many calls at once, each with its answer."""
        part = self._latest
        while part is not None and self._size > bound and len(calls := part.messages[0].get("tool_calls", ())) > 1:
            gone = calls.pop()["id"]
            at = next(n for n, m in enumerate(part.messages) if m.get("tool_call_id") == gone)
            del part.messages[at], part.results[at]
            self._size = sum(map(_weight, self._parts))


def number_of(view: View, identity: str) -> int | None:
    """Which result (from 1) answers a call; a refused call is still that call."""
    for number, result in enumerate(view.results, 1):
        call = result["call"]
        args = {k: v for k, v in call["args"].items() if k != "__refused__"}
        if Call(call["tool"], args).identity == identity:
            return number
    return None


def next_id(entries: Sequence[Mapping[str, Any]]) -> int:
    """The first number that no call of the dialogue bears."""
    return sum(len(e["calls"]) for e in entries if e["is"] == "model")


def setup(entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Tools and window of this session, once they are settled."""
    return next((e for e in entries if e["is"] == "setup"), None)


def is_off(entries: Sequence[Mapping[str, Any]], turn: int) -> bool:
    """Whether the model was given up for this question."""
    return any(e["is"] == "off" and e["turn"] == turn for e in entries)


def is_open(entries: Sequence[Mapping[str, Any]], turn: int) -> bool:
    """Whether this question was put to the model already."""
    return any(e["is"] == "user" and e.get("opens") and e["turn"] == turn for e in entries)
