"""Evidence and results as a model reads them: short, with ids to cite, inert, nothing dropped without a count."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..planner import View
from ..types import Evidence
from .fence import fenced, harmless
from .room import Page, Room, fitting, page

TEXT, VALUE = 240, 160  # characters of a line, and of a value, that a piece of evidence shows
_PER_RESULT = 24  # pieces of evidence listed with a result
_CALL = 300  # characters of a call as it is written about


def evidence_line(e: Evidence, *more: Evidence, quoted: bool = True) -> str:
    """`E12 key=value, E13 key file:line rank 3 | the line`, without the line where it stands elsewhere.

    Args:
        more: further evidence of the same line of the same file.
    """
    text = " ".join(e.text.split())
    if e.kind == "absent":
        looked = f" (in {', '.join(e.searched[:3])})" if e.searched else ""
        return harmless(f"{e.id} {e.key}: looked for, not there{looked}; default {e.value}")
    names = ", ".join(_named(one, text) for one in (e, *more))
    where = [f"{e.file}:{e.line}" if e.line else e.file or " ".join(e.argv or ()) or e.tool, e.member or ""]
    told = (("rank", e.rank), ("attempt", e.attempt), ("variant", e.variant), ("step", e.step))
    who = [f"{name} {v}" for name, v in told if v is not None and not (name == "attempt" and v == 1)]
    line = f" | {text[:TEXT]}{'...' if len(text) > TEXT else ''}" if text and (quoted or not e.line) else ""
    return harmless(f"{names} {' '.join(filter(None, [*where, *who]))}{line}")


def _named(e: Evidence, text: str) -> str:
    """Id, key and, where the line does not hold it, the value."""
    value = e.value if isinstance(e.value, str) else json.dumps(e.value, default=str)
    said = "" if e.value is True or value in text else f"={' '.join(value.split())[:VALUE]}"
    return f"{e.id} {e.key}{said}"


def result_text(view: View, number: int, room: Room, start: int = 1, offset: int = 0) -> str:
    """The answer of call `number` (from 1) from a line on, with the ids of its evidence, and how to read on.

    Args:
        start: the first line shown, from 1; `offset`: characters of that line that were shown before.
    """
    result = view.results[number - 1]
    lines = harmless(str(result["text"] or result["summary"])).split("\n")
    shown = page(lines, start, offset, room.result)
    text = "\n".join(filter(None, [shown.text, _read_on(result, number, lines, start, shown)]))
    if start > 1 or offset:
        at = f" from line {start} of {len(lines)}" + (f", character {offset}" if offset else "")
        return fenced(text, f"result/{number}{at}")
    summary = str(result["summary"])
    if not lines[0].startswith(harmless(summary)):
        text = f"{harmless(' '.join(summary.split())[:300])}\n{text}"
    return "\n".join([result["outcome"], fenced(text, f"result/{number}"), *_ids(view, number, room)])


def _read_on(result: Mapping[str, Any], number: int, lines: Sequence[str], start: int, shown: Page) -> str:
    """What of a result is not shown, and the call that shows the next of it; empty where this is its end."""
    lost = f"{result['cut']} characters behind the last line were not kept" if result.get("cut") else ""
    if start > len(lines):
        return "; ".join(filter(None, [f"[there are {len(lines)} lines", lost])) + "]"
    if not shown.line:
        return f"[this is the end; {lost}]" if lost else ""
    told = f"{shown.line - start} of {len(lines)} lines and {len(shown.text)} characters are shown"
    at = f", offset={shown.offset}" if shown.offset else ""
    read_on = f'read_lines(file="result/{number}", start={shown.line}{at}) reads on'
    return "; ".join(filter(None, [f"[cut: {told}", read_on, lost])) + "]"


def _ids(view: View, number: int, room: Room) -> list[str]:
    """Which evidence a result became; lines that its text shows are named by their ids alone."""
    ids = list(view.evidence_of[number - 1])
    if not ids:
        return []
    found = evidence_by_id(view)
    plain = all(found[i].key in ("log.match", "log.line") for i in ids if i in found)
    if plain:
        return [f"Evidence: {ids[0]} to {ids[-1]}, one for each line shown, in that order"]
    if all(found[i].kind == "document" for i in ids if i in found):
        return [f"Knowledge, {ids[0]} to {ids[-1]}: to be cited in an answer; a diagnosis cites lines of the run"]
    lines, _ = fitting((evidence_line(found[i]) for i in ids[:_PER_RESULT] if i in found), room.result * 3 // 4)
    rest = len(ids) - len(lines)
    more = [f"and {rest} more, {ids[-rest]} to {ids[-1]}: show_evidence"] if rest > 0 else []
    return ["Evidence:", fenced("\n".join(lines), "evidence"), *more]


def fresh_results(view: View, numbers: Sequence[int], room: Room) -> str:
    """Calls and their answers, the first ones while they fit into twice the room of one; the others are counted."""
    shown: list[str] = []
    left = 2 * room.result
    for at, number in enumerate(numbers):
        call = view.results[number - 1]["call"]
        text = f"{harmless(call_text(call['tool'], call['args'])[:_CALL])}\n{result_text(view, number, room)}"
        if shown and len(text) > left:
            rest = numbers[at:]
            which = f"result/{rest[0]}" + (f" to result/{rest[-1]}" if len(rest) > 1 else "")
            shown.append(f"{len(rest)} more: {which}; read_lines shows them")
            break
        shown.append(text)
        left -= len(text)
    return "\n".join(shown)


def evidence_by_id(view: View) -> dict[str, Evidence]:
    """All evidence of the session by id."""
    return {e.id: e for found in view.facts.by_key.values() for e in found if e.id}


def asked_evidence(view: View, ids: Sequence[str], key: str, room: Room) -> str:
    """What `show_evidence` answers."""
    found = [e for e in evidence_by_id(view).values() if e.kind != "asked"]
    wanted = [e for e in found if e.id in set(ids)] if ids else []
    if key:
        prefix = key.removesuffix("*")
        wanted += [e for e in found if e.key == key or (key.endswith("*") and e.key.startswith(prefix))]
    if not wanted:
        keys = sorted({e.key for e in found if key.split(".")[0] == e.key.split(".")[0]})[:40]
        near = f"; there are {', '.join(keys)}" if keys and key else ""
        return f"no such evidence{near}"
    lines = [evidence_line(e) for e in wanted]
    kept, _ = fitting(lines, room.result)
    kept = kept or [lines[0][: room.result]]
    rest = [e.id for e in wanted[len(kept) :]]
    more = f"\n{len(rest)} more are not shown, {rest[0]} to {rest[-1]}: ask for them by their ids" if rest else ""
    return fenced("\n".join(kept), f"evidence {key}".strip()) + more


def call_text(name: str, args: Mapping[str, Any]) -> str:
    """A call as it is written about: `grep_logs(pattern='NaN')`."""
    return f"{name}({', '.join(f'{k}={v!r}' for k, v in args.items())})"
