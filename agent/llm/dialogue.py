"""What was said between planner and model, as plain data the session keeps, and the messages made of it.

Entries carry `is`: `setup` (tools and window, once), `user`, `model` (with its calls), `tool` (an answer in words),
`result` (the answer of a call by its identity), `pending` (a conclusion whose cited lines are being read), `concluded`
(they were), `plain` (a server without tools), `off`.
Results are rendered anew for each request, so that old ones can be shortened when the dialogue grows long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..planner import View
from ..types import Call
from . import words
from .fence import fenced
from .room import Room, encoded
from .shown import result_text

_LATEST = 2  # results that are never shortened
_EARLIER = 600  # characters kept of a question's first message once the dialogue is too long


def messages(view: View, entries: Sequence[Mapping[str, Any]], room: Room, most: int) -> list[dict[str, Any]]:
    """The request's messages, at most about `most` bytes: older results first make way for one line each."""
    found: list[dict[str, Any]] = [{"role": "system", "content": words.system()}]
    results: list[tuple[int, int]] = []
    openings: list[int] = []
    for entry in entries:
        kind = entry["is"]
        if kind == "user":
            openings += [len(found)] if entry.get("opens") else []
            found.append({"role": "user", "content": entry["text"]})
        elif kind == "model":
            found.append(_assistant(entry))
        elif kind == "tool":
            found.append({"role": "tool", "tool_call_id": entry["id"], "content": entry["text"]})
        elif kind == "result":
            number = number_of(view, entry["identity"])
            results += [(len(found), number)] if number else []
            text = result_text(view, number, room) if number else "not run: the session was interrupted"
            found.append({"role": "tool", "tool_call_id": entry["id"], "content": text})
    if _size(found) > room.dialogue or most < room.dialogue:
        _shorten(view, found, results, openings, min(most, room.shortened))
    return found


def _assistant(entry: Mapping[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": entry["text"] or None}
    if entry["calls"]:
        message["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in entry["calls"]
        ]
    elif not entry["text"]:
        message["content"] = "(empty)"
    return message


def _size(found: Sequence[Mapping[str, Any]]) -> int:
    return sum(encoded(str(m.get("content") or "")) + encoded(str(m.get("tool_calls", ""))) + 40 for m in found)


def _shorten(
    view: View, found: list[dict[str, Any]], results: list[tuple[int, int]], openings: list[int], most: int
) -> None:
    size = _size(found)
    old = results[:-_LATEST]
    for at, number in old:
        if size <= most:
            return
        summary = " ".join(str(view.results[number - 1]["summary"]).split())[:200]
        short = f'Shortened; read_lines(file="result/{number}", start=1) shows it again: {fenced(summary, "summary")}'
        size -= encoded(found[at]["content"]) - encoded(short)
        found[at]["content"] = short
    for at in openings[:-1]:
        if size <= most:
            return
        text = found[at]["content"]
        short = f"{text[:_EARLIER]}\n[shortened: the evidence of this earlier question can be had by show_evidence]"
        size -= encoded(text) - encoded(short)
        found[at]["content"] = short


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
