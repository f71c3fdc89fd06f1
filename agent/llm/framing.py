"""How much is sent: bytes of the first request, of each result, of the whole dialogue, by the model's window."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..core.own_files import KNOWLEDGE, read_table
from ..core.playbook import causes
from ..core.types import Call, Hypothesis, Risk
from ..safety.fences import OPEN, SHUT
from ..tools.tool import Tool, all_tools
from ..verdict.planner import View

FIRST_BYTES = 31_500  # of the first request as it is encoded, tools and all; 32 kB is promised
BYTES_PER_TOKEN = 3.0  # of logs and JSON; prose has more
SMALL = 24_000  # tokens below which a model gets the small layout
SCANT = 12_000  # tokens below which the tools are told in a few words, and no list of causes is sent with them
UNKNOWN = 32_768  # tokens, where nobody says


@dataclass(frozen=True, slots=True)
class Room:
    """What fits.

    Attributes:
        first: bytes of the first request.
        result: characters of one tool's answer; `section`: of one playbook passage.
        checks: tools offered beside the general ones.
        dialogue: bytes that no request exceeds, tools and all; what is longer is shortened to `shortened`.
    """

    window: int
    first: int
    result: int
    section: int
    checks: int
    dialogue: int
    shortened: int

    @property
    def small(self) -> bool:
        """Whether the model reads so little that nothing may be shown twice."""
        return self.window < SMALL

    @property
    def scant(self) -> bool:
        """Whether even the schemas of the tools are too much."""
        return self.window < SCANT


def room(window: int) -> Room:
    """The layout for a context window in tokens; 0 where it is unknown."""
    window = window or UNKNOWN
    whole = int(window * BYTES_PER_TOKEN)
    if window < SMALL:
        first = max(9_000, min(18_000, int(whole * 0.4)))
        checks = 0 if window < SCANT else 3
        return Room(window, first, 2_400, 600, checks, max(first, int(whole * 0.7)), max(first, int(whole * 0.5)))
    most = min(whole, 600_000)
    return Room(window, FIRST_BYTES, 8_000, 1_500, 6, int(most * 0.75), int(most * 0.5))


def encoded(text: str) -> int:
    """Bytes of a text within a request."""
    return len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) - 2


def fitting(lines: Iterable[str], most: int) -> tuple[list[str], int]:
    """As many of the first lines as fit into so many bytes, and how many do not."""
    kept: list[str] = []
    left = 0
    for line in lines:
        size = encoded(line) + 2
        if left or size > most:
            left += 1
            continue
        kept.append(line)
        most -= size
    return kept, left


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a text: its lines, and where the next page begins (`line` from 1; 0 where nothing is left)."""

    text: str
    line: int
    offset: int


def page(lines: Sequence[str], start: int, offset: int, most: int) -> Page:
    """At most so many characters from a line on; a line that is longer than that goes on at an offset.

    Args:
        start: the first line, from 1.
        offset: characters of that line that were shown before.
    """
    shown: list[str] = []
    left = most
    for number in range(start, len(lines) + 1):
        line = lines[number - 1][offset:] if number == start else lines[number - 1]
        if len(line) > left and shown:
            return Page("\n".join(shown), number, 0)
        if len(line) > left:
            return Page(line[:left], number, offset + left)
        shown.append(line)
        left -= len(line) + 1
    return Page("\n".join(shown), 0, 0)


def cut(text: str, most: int, read_on: str) -> str:
    """A text at most so long, cut at a line, with exact counts of what is not shown and how to read it."""
    if len(text) <= most:
        return text
    head = text[:most]
    if "\n" in head:
        head = head[: head.rindex("\n")]
    lines, shown = text.count("\n") + 1, head.count("\n") + 1
    told = f"[cut: {shown} of {lines} lines and {len(head)} of {len(text)} characters are shown; {read_on}]"
    return f"{head}\n{told}"


def shortened(text: str, most: int, read_on: str) -> str:
    """The beginning of a text in about so many bytes, with the count of what is left out; fences stay closed."""
    if encoded(text) <= most + 80:
        return text
    head = text[:most]
    while encoded(head) > most:
        head = head[: int(len(head) * min(0.95, most / encoded(head)))]
    if head.rfind("\n") > len(head) // 2:
        head = head[: head.rindex("\n")]
    if head.rfind(OPEN) > head.rfind(SHUT):  # within a mark
        head = head[: head.rindex(OPEN)]
    closing = f"\n{OPEN}/data{SHUT}" if head.count(f"{OPEN}data ") > head.count(f"{OPEN}/data") else ""
    told = "; ".join(filter(None, [f"[shortened: {len(head)} of {len(text)} characters are shown", read_on]))
    return f"{head}{closing}\n{told}]"


# ----------
# What a model is told, from `knowledge/prompt.yaml`.


@cache
def _table() -> dict[str, Any]:
    return read_table(KNOWLEDGE / "prompt.yaml")


def system() -> str:
    """The opening of every request, the same throughout a session."""
    from ..safety.fences import fenced

    opening, _, closing = fenced("\n", "FILE").partition("\n\n")
    shown = _table()["fence"].format(open=opening.strip(), close=closing.strip())
    return f"{_table()['system'].strip()}\n\n{shown}"


def again(said: str, /, **values: object) -> str:
    """What is answered to words of a model that cannot be used as they are."""
    return _table()["again"][said].format(**values)


def tool(name: str) -> str:
    """The description of a tool that only models have."""
    return _table()["tools"][name]


def general_words() -> list[str]:
    """Tools that are offered whatever the hypotheses."""
    return list(_table()["general"])


# ----------
# The tools a model is offered, fixed for a session, and their schemas.
#
# Offered are those that the leading hypotheses' checks name, the general ones, three that only models have (evidence
# not shown, a cause weighed, all other tools), and `diagnosis`.

DIAGNOSIS, MORE, SHOW, WEIGH = "diagnosis", "more_tools", "show_evidence", "weigh_cause"
OWN = (SHOW, WEIGH, MORE, DIAGNOSIS)  # answered by the planner itself
ANSWER = "answer"  # the cause of a question that asks for no diagnosis
LEADING = 4  # hypotheses whose checks are offered
_DESCRIBED = 280  # characters of a tool's description
_UNTOLD = ("title", "additionalProperties")  # of an argument schema: what a model does not need
_DISPENSABLE = ("description", "default", "maxLength", "minLength", "minimum")  # and what it can do without


def chosen(view: View, ranked: Sequence[Hypothesis], room: Room) -> list[str]:
    """Names of the tools to offer, the checks of the leading hypotheses first."""
    tools, by_slug = all_tools(), {p.slug: p for p in view.playbooks}
    wanted = [name for h in ranked[:LEADING] for name in by_slug[h.playbook].checks if h.playbook in by_slug]
    idle = {r["call"]["tool"] for r in view.results if r["outcome"] == "not_applicable"}
    looked = {r["call"]["tool"] for r in view.results} - idle
    kinds = {name: {e.split(".")[0] for e in tools[name].emits} for name in idle | looked if name in tools}
    barren = set().union(*(kinds[n] for n in idle if n in kinds)) - set().union(
        *(kinds[n] for n in looked if n in kinds)
    )
    checks = [n for n in dict.fromkeys(wanted) if n in tools and _tells_more(tools[n], view, idle, barren)]
    general = general_words()
    return [*general, *[c for c in checks if c not in general][: room.checks]]


def _kinds(names: Iterable[str]) -> set[str]:
    """First words of the keys that tools emit."""
    tools = all_tools()
    return {key.split(".")[0] for name in names if name in tools for key in tools[name].emits}


def _tells_more(tool: Tool, view: View, idle: set[str], barren: set[str]) -> bool:
    """Not what was run and takes no arguments, what found nothing to read, nor what may not be run unasked.

    Args:
        idle: tools that found nothing to read; `barren`: kinds of evidence that only such tools emit.
    """
    order = list(Risk)
    if order.index(tool.risk) > order.index(view.allowed):
        return False  # it may still be asked for by more_tools, and then a person is asked
    if tool.name in idle or (tool.emits and {e.split(".")[0] for e in tool.emits} <= barren):
        return False
    return bool(tool.arguments.model_fields) or Call(tool.name).identity not in view.done


def schemas(names: Sequence[str], room: Room | None = None) -> list[dict[str, Any]]:
    """What the request's `tools` holds for these names, with the planner's own tools behind them.

    Args:
        room: where it is scant, titles stand for descriptions, and the causes are not listed.
    """
    known, terse = all_tools(), room is not None and room.scant
    own = {DIAGNOSIS: _diagnosis(listed=not terse), MORE: _more(), SHOW: _show(), WEIGH: _weigh()}
    found = [_told(known[n], terse) for n in names if n in known]
    return [*found, *(_function(n, tool(f"{n}_in_short" if terse else n), own[n]) for n in OWN)]


def _told(tool: Tool, terse: bool) -> dict[str, Any]:
    schema = parameters(tool)
    if terse:
        return _function(tool.name, tool.title, _bare(schema, _DISPENSABLE))
    return _function(tool.name, _brief(tool.description), schema)


def _function(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def parameters(tool: Tool) -> dict[str, Any]:
    """The argument schema of a tool without what a model does not need."""
    return _bare(tool.arguments.model_json_schema(), _UNTOLD)


def _bare(schema: Any, without: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_bare(s, without) for s in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        k: {name: _bare(p, without) for name, p in v.items()} if k == "properties" else _bare(v, without)
        for k, v in schema.items()
        if k not in without
    }


def _brief(description: str) -> str:
    text = " ".join(description.split())
    if len(text) <= _DESCRIBED:
        return text
    end = text.rfind(". ", 0, _DESCRIBED)
    return text[: end + 1] if end > 60 else text[:_DESCRIBED]


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _texts() -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}}


def _diagnosis(*, listed: bool) -> dict[str, Any]:
    text, cites = {"type": "string"}, _texts()
    edit = _object(["file", "find", "replace", "why"], file=text, find=text, replace=text, why=text)
    edits = {"type": "array", "description": tool("edits"), "items": edit}
    return _object(
        ["cause", "sentences"],
        cause={"type": "string", "enum": [*causes(), ANSWER]} if listed else text,
        sentences={"type": "array", "items": _object(["text", "cites"], text=text, cites=cites)},
        ruled_out={"type": "array", "items": _object(["cause", "why", "cites"], cause=text, why=text, cites=cites)},
        **({"edits": edits} if listed else {}),
    )


def _more() -> dict[str, Any]:
    return _object([], name={"type": "string"}, arguments={"type": "object"})


def _show() -> dict[str, Any]:
    return _object([], ids=_texts(), key={"type": "string"})


def _weigh() -> dict[str, Any]:
    return _object(["cause"], cause={"type": "string", "description": "a cause id, a playbook or words"})


def others(offered: Sequence[str], room: Room) -> str:
    """One line for each tool that is not offered; names alone where a line each is too much."""
    rest = [t for t in all_tools().values() if t.name not in offered and t.risk is not Risk.WRITE]
    risky = {t.name: f" ({t.risk})" if t.risk is not Risk.READ else "" for t in rest}
    lines = "\n".join(f"{t.name}{risky[t.name]}: {t.title.rstrip('.')}" for t in rest)
    return lines if len(lines) <= room.result else ", ".join(f"{t.name}{risky[t.name]}" for t in rest)
