"""A model's answer read: calls to run, a conclusion, or what cannot be used. Nothing malformed is repaired and run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from ..core.types import Call, Risk
from ..safety.fences import fenced, harmless
from ..tools.tool import Tool, all_tools
from ..verdict.planner import View
from ..verdict.weighing import weigh
from . import conclusion, dialogue, framing
from .brief import asked_evidence, result_text
from .framing import Room, cut
from .turns import ToolCall, Turn

MOST = 12  # calls of one answer that are run
LONGEST, DEEPEST = 64_000, 24  # characters and nesting of a call's arguments
_NO_NAME = re.compile(r"[^\w-]")
_RESULT = re.compile(r"^result/(\d{1,6})$")
_TEXTUAL = re.compile(
    r"<\|?(?:tool_call|function_call|tool_calls|python_tag)|\[TOOL_CALLS\]|<function[=\s]|<invoke\b|"
    r'"(?:name|tool|function|action)"\s*:\s*"[\w.-]+"\s*,\s*"(?:arguments|parameters|input|args|action_input)"'
)


@dataclass(slots=True)
class Heard:
    """What an answer comes to.

    Attributes:
        entries: for the dialogue: the answer itself, and what its calls were answered at once.
        unusable: name of what is said back (`framing.again`) where nothing of it can be used.
    """

    entries: list[dict[str, Any]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    conclusion: conclusion.Conclusion | None = None
    unusable: str = ""
    values: dict[str, Any] = field(default_factory=dict)


def heard(
    turn: Turn, view: View, entries: Sequence[Mapping[str, Any]], room: Room, *, last: bool = False
) -> Heard:  # fmt: skip
    """Read one answer. Call ids are given anew, so that none appears twice in a dialogue.

    Args:
        last: it is the last that may be given, so that a conclusion counts also where calls stand beside it.
    """
    text = harmless(turn.content.strip()[:20_000])
    said: dict[str, Any] = {"is": "model", "text": text, "calls": [], "turn": view.turn}
    found = Heard([said])
    if turn.finish == "length":
        found.unusable = "length"
        said["text"] = text[:2_000]
    elif turn.calls:
        calls = turn.calls
        if last and any(c.name == framing.DIAGNOSIS for c in calls):
            calls = [c for c in calls if c.name == framing.DIAGNOSIS]
        _Calls(view, entries, room, found, said).take(calls)
    elif (whole := conclusion.in_prose(turn.content)) is not None:
        found.conclusion = whole
    else:
        found.unusable = "textual_call" if _TEXTUAL.search(turn.content) else "prose" if text else "silent"
        said["text"] = text[:2_000] or harmless(turn.refusal[:2_000])
    return found


class _Calls:
    """The calls of one answer, each run, answered at once, or refused with the reason."""

    def __init__(
        self, view: View, entries: Sequence[Mapping[str, Any]], room: Room, found: Heard, said: dict[str, Any]
    ) -> None:
        self._view, self._entries, self._room, self._found, self._said = view, entries, room, found, said
        self._number = dialogue.next_id(entries)
        self._shown = {e["identity"] for e in entries if e["is"] == "result"}
        self._offered = set((dialogue.setup(entries) or {"tools": []})["tools"])
        self._refused: tuple[str, dict[str, Any]] | None = None
        self._used = 0

    def take(self, calls: Sequence[ToolCall]) -> None:
        """Read them all, in their order."""
        alone = all(c.name == framing.DIAGNOSIS for c in calls)
        for call in calls:
            self._number += 1
            entry = {"id": f"c{self._number}", "name": _NO_NAME.sub("_", call.name[:64]) or "none", "arguments": "{}"}
            self._said["calls"].append(entry)
            if self._used >= MOST:
                self._answer(entry, f"more than {MOST} calls at once: this one was not run")
                continue
            self._used += 1
            self._one(call, entry, alone)
        nothing = not self._found.calls and self._found.conclusion is None
        if nothing and self._refused and all(e["is"] == "tool" and e.get("refused") for e in self._found.entries[1:]):
            self._found.unusable, self._found.values = self._refused

    def _one(self, call: ToolCall, entry: dict[str, Any], alone: bool) -> None:
        arguments = _object(call.arguments)
        if arguments is None:
            return self._refuse(entry, "arguments", why="not a JSON object")
        entry["arguments"] = json.dumps(_inert(arguments), ensure_ascii=False)
        if call.name == framing.DIAGNOSIS:
            return self._diagnosis(call, entry, alone)
        name, inner = call.name, arguments.get("arguments")
        if name == framing.MORE and isinstance(arguments.get("name"), str) and isinstance(inner, dict):
            name, arguments = arguments["name"], inner
        read = name == "read_lines" and _RESULT.match(str(arguments.get("file", "")))
        if name in framing.OWN or (read and arguments["file"] not in self._view.names):
            return self._own(name, arguments, entry)
        return self._tool(name, arguments, entry)

    def _diagnosis(self, call: ToolCall, entry: dict[str, Any], alone: bool) -> None:
        if not alone:
            return self._answer(entry, framing.again("alone"))
        read = conclusion.parsed(call.arguments)
        if read.conclusion is None:
            return self._refuse(entry, "arguments", why=read.why)
        if self._found.conclusion is None:
            self._found.conclusion = read.conclusion
        return self._answer(entry, "received")

    def _own(self, name: str, arguments: dict[str, Any], entry: dict[str, Any]) -> None:
        view, room = self._view, self._room
        if name == framing.SHOW:
            given = arguments.get("ids")
            ids = [str(i) for i in given] if isinstance(given, list) else [str(given)] if given else []
            return self._answer(entry, asked_evidence(view, ids, str(arguments.get("key") or ""), room))
        if name == framing.WEIGH:
            told = weigh(str(arguments.get("cause", ""))[:300], view.facts, view.playbooks, view.sounds)
            text = cut(harmless(told.text), room.result, "ask for one playbook alone")
            return self._answer(entry, fenced(text, "weighed"))
        if name == framing.MORE:
            return self._answer(entry, self._described(str(arguments.get("name") or "")))
        if name == "read_lines":
            m = _RESULT.match(str(arguments["file"]))
            number, start = int(m[1]) if m else 0, arguments.get("start", 1)
            if not 0 < number <= len(view.results):
                return self._refuse(entry, "arguments", why=f"there are results 1 to {len(view.results)}")
            if not isinstance(start, int) or start < 1:
                return self._refuse(entry, "arguments", why="start is the number of a line, from 1")
            offset = arguments.get("offset", 0)
            if not isinstance(offset, int) or offset < 0:
                return self._refuse(entry, "arguments", why="offset is a number of characters, from 0")
            return self._answer(entry, result_text(view, number, room, start, offset))
        return self._refuse(entry, "unknown", name=name[:80])

    def _described(self, name: str) -> str:
        if not name:
            return framing.others([*self._offered, *framing.OWN], self._room)
        tool = all_tools().get(name)
        if tool is None:
            return harmless(framing.again("unknown", name=name[:80]))
        told = f"{tool.description}\narguments: {json.dumps(framing.parameters(tool))}"
        return cut(told, self._room.result, "ask for another tool")

    def _tool(self, name: str, arguments: dict[str, Any], entry: dict[str, Any]) -> None:
        tool = all_tools().get(name)
        if tool is None or tool.risk is Risk.WRITE:
            return self._refuse(entry, "unknown", name=name[:80])
        try:
            valid = tool.arguments(**arguments)
        except (ValidationError, TypeError) as e:
            first = e.errors()[0] if isinstance(e, ValidationError) else {"loc": (), "msg": str(e)}
            where = ".".join(str(p) for p in first["loc"])
            return self._refuse(entry, "arguments", why=f"{where}: {first['msg']}"[:300])
        call = Call(name, valid.model_dump(mode="json", exclude_defaults=True), why="")
        number = dialogue.number_of(self._view, call.identity)
        made = self._view.results[number - 1] if number else None
        if made is not None and made["outcome"] == "not_allowed" and _may(tool, self._view.allowed):
            made = None  # refused before, and allowed now
        planned = call.identity in {c.identity for c in self._found.calls}
        if planned or (call.identity in self._shown and made is not None):
            told = fenced(str(made["summary"])[:300], "summary") if made else "see the other one"
            return self._answer(entry, framing.again("repeated", summary=told))
        self._shown.add(call.identity)
        self._found.entries.append({"is": "result", "id": entry["id"], "identity": call.identity})
        if made is None:
            self._found.calls.append(call)
        return None

    def _answer(self, entry: dict[str, Any], text: str) -> None:
        self._found.entries.append({"is": "tool", "id": entry["id"], "text": text})

    def _refuse(self, entry: dict[str, Any], why_not: str, **values: Any) -> None:
        text = harmless(framing.again(why_not, **values))
        self._found.entries.append({"is": "tool", "id": entry["id"], "text": text, "refused": True})
        self._refused = (why_not, values)


def _may(tool: Tool, allowed: Risk) -> bool:
    order = list(Risk)
    return order.index(tool.risk) <= order.index(allowed)


def _inert(value: Any) -> Any:
    """What a model wrote as it may come back to it: without control tokens, also in the names of its arguments."""
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, dict):
        return {harmless(str(k)): _inert(v) for k, v in value.items()}
    return [_inert(v) for v in value] if isinstance(value, list) else value


def _object(arguments: str) -> dict[str, Any] | None:
    """The arguments as a mapping, parsed strictly; nothing at all counts as no arguments.

    What is nested or large beyond all use is none: the session could not keep it.
    """
    if not arguments.strip():
        return {}
    if len(arguments) > LONGEST or _depth(arguments) > DEEPEST:
        return None
    try:
        data = json.loads(arguments, parse_int=_int)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _depth(text: str) -> int:
    """Brackets open at once, at most; those within strings count too, which refuses nothing that is meant."""
    open_now = most = 0
    for bracket in re.findall(r"[\[{}\]]", text):
        open_now += 1 if bracket in "[{" else -1
        most = max(most, open_now)
    return most


def _int(digits: str) -> int:
    if len(digits) > 18:
        raise ValueError("a number beyond 64 bits")
    return int(digits)
