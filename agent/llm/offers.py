"""The tools a model is offered, fixed for a session, and their schemas.

Offered are those that the leading hypotheses' checks name, the general ones, three that only models have (evidence
not shown, a cause weighed, all other tools), and `diagnosis`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..planner import View
from ..playbook import causes
from ..tool import Tool, all_tools
from ..types import Call, Hypothesis, Risk
from . import words
from .room import Room

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
    general = words.general()
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
    if tool.name in idle or {e.split(".")[0] for e in tool.emits} <= barren:
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
    return [*found, *(_function(n, words.tool(f"{n}_in_short" if terse else n), own[n]) for n in OWN)]


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
    edits = {"type": "array", "description": words.tool("edits"), "items": edit}
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
