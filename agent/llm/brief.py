"""The first message of a question: what is known, chosen by what tells the hypotheses apart, within so many bytes.

Each part gets a share of the room; what one leaves, the next may use. What does not fit is counted, never just gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...index.search import Results, search
from ..core.playbook import Playbook, causes
from ..core.types import Evidence, Hypothesis
from ..safety.fences import fenced, harmless
from ..verdict import salience
from ..verdict.gate import ranking
from ..verdict.planner import View
from .framing import Page, Room, cut, encoded, fitting, page, shortened

# ----------
# Evidence and results as a model reads them: short, with ids to cite, inert, nothing dropped without a count.


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


# ----------

RIVALS = 6  # hypotheses shown
SLIGHT = 0.01  # a rival below it is not worth its line
NEAR, NEAREST = 8, 1.0  # causes near to the question that are explained in a line, from these log odds on
SECTIONS = 7  # passages of playbooks at most
SETTINGS = 3_000  # bytes
_DIGITS = re.compile(r"\d+")


def first_message(view: View, ranked: Sequence[Hypothesis], room: Room, most: int) -> str:
    """Question, overview, ranking, evidence and passages in at most `most` bytes as they are encoded.

    Args:
        most: from 1,500 on; with next to no room, the question and the ranking are what is left.
    """
    head = f"Question: {question(view, room, most // 3) or '(none: what is wrong with this run?)'}"
    left = most - encoded(head) - 400  # marks and titles
    leaders = [h for n, h in enumerate(ranked[:RIVALS]) if n < 2 or h.probability >= SLIGHT]
    near, found = _near(view, leaders)
    telling = [e for e in _telling(view, leaders) if e.kind != "asked"]
    parts: dict[str, str] = {}

    def add(name: str, text: str) -> None:
        nonlocal left
        parts[name] = text
        left -= encoded(text) + 4

    add("ranking", _ranking(view, ranked, leaders, near, int(left * 0.2)))
    files, whole = _files(view, int(left * (0.5 if room.small else 0.42)))
    add("files", files)
    add("overview", _overview(view, int(left * 0.36), bool(whole)))
    text, shown = _evidence(telling, whole, int(left * 0.5))
    add("evidence", text)
    more = [e for e in telling if e not in shown and e.file not in whole]
    add("passages", _passages(view, leaders, found, room, int(left * 0.5)))
    listed = _settings(view, whole if room.small else set())
    settings, more_settings = fitting(listed, min(int(left * 0.6), SETTINGS))
    if settings:
        settings += [f"({more_settings} more not shown)"] if more_settings else []
        add("settings", f"Settings:\n{fenced(chr(10).join(settings), 'settings')}")
    add("rest", _rest(view, more, shown, int(left * 0.6)))
    add("others", _files(view, left, skip=whole)[0])
    order = ("overview", "ranking", "evidence", "settings", "rest", "passages", "files", "others")
    return _whole(head, parts, order, most)


def question(view: View, room: Room, most: int = 1 << 40) -> str:
    """The question as it is sent: at most a quarter of the first request, with the count of what is cut."""
    return shortened(harmless(view.question), min(room.first // 4, most), "the rest of the question was too long")


def _whole(head: str, parts: Mapping[str, str], order: Sequence[str], most: int) -> str:
    """The parts in order, without those that can be had by a tool where all do not fit."""
    rank = ("ranking", "rest", "overview", "evidence", "files", "settings", "passages", "others")
    kept = [name for name in rank if parts.get(name)]
    while True:
        text = "\n\n".join([head, *(parts[name] for name in order if name in kept)])
        if encoded(text) <= most:
            return text
        if len(kept) <= 1:
            return shortened(text, most - 120, "show_evidence has the rest")
        kept.pop()


def _listed(title: str, lines: Iterable[str], most: int) -> str:
    kept, left = fitting(lines, most - encoded(title) - 40)
    more = f"\n({left} more not shown)" if left else ""
    return f"{title}:\n" + "\n".join(kept) + more if kept else ""


def _near(view: View, leaders: Sequence[Hypothesis]) -> tuple[list[Playbook], Results]:
    """Playbooks near to the question beside those that lead, and what the search for it finds."""
    by_slug = {p.slug: p for p in view.playbooks}
    title = leaders[0].title if leaders else ""
    found = search(f"{title}. {view.question}"[:800], k=2 * SECTIONS)
    best = sorted(
        (p for p in view.playbooks if view.sounds.of(p.cause) >= NEAREST), key=lambda p: -view.sounds.of(p.cause)
    )
    near = [*(by_slug[r.document] for r in found if r.document in by_slug), *best[:NEAR]]
    known, first = {h.cause for h in leaders}, dict[str, Playbook]()
    for p in near:
        first.setdefault(p.cause, p)
    return [p for cause, p in first.items() if cause not in known][:NEAR], found


def _ranking(
    view: View, ranked: Sequence[Hypothesis], leaders: Sequence[Hypothesis], near: Sequence[Playbook], most: int
) -> str:
    """What the predicates say, with what the leading causes and those near to the question mean."""
    found, meaning = ranking(list(ranked)), causes()
    lines = [f"verdict of the evidence alone: {found.id} ({found.status})"]
    for h in leaders:
        told = [f"{h.cause} {h.probability:.2f} ({meaning.get(h.cause, h.title)}; playbook {h.playbook})"]
        told += [f"for {' '.join(h.supported_by[:6])}"] if h.supported_by else []
        told += [f"against {' '.join(h.contradicted_by[:4])}"] if h.contradicted_by else []
        told += [f"unknown: {'; '.join(h.missing[:2])}"[:160]] if h.missing else []
        told += [f"explained by {h.explained_by}"] if h.explained_by else []
        lines.append("- " + "; ".join(told))
    lines += ["No predicate speaks for these, but their words are near to the question:"] if near else []
    lines += [f"- {p.cause} ({meaning.get(p.cause, p.title)})" for p in near]
    return _listed("Ranking by predicates", lines, most)


def _telling(view: View, ranked: Sequence[Hypothesis]) -> list[Evidence]:
    """Evidence in the order in which it separates the leaders: what only one of them has, then what they share."""
    by_id = {e.id: e for found in view.facts.by_key.values() for e in found}
    sides = [set(h.supported_by) | set(h.contradicted_by) for h in ranked[:RIVALS]]
    ids = [i for h in ranked[:RIVALS] for i in (*h.supported_by[:6], *h.contradicted_by[:4])]
    alone = [i for i in dict.fromkeys(ids) if sum(i in side for side in sides) == 1]
    wanted = named = [by_id[i] for i in dict.fromkeys([*alone[:24], *ids]) if i in by_id]
    wanted += salience.context(view.facts)
    for h in ranked[:2]:
        wanted += salience.beside(h.cause, view.facts)
    wanted += salience.telling(view.facts)
    wanted += [found[0] for key, found in view.facts.by_key.items() if not key.startswith("settings.")]
    alike: dict[object, Evidence] = {}
    for e in {**{e.id: e for e in named[:40]}, **{e.id: e for e in wanted}}.values():
        alike.setdefault((e.key, _DIGITS.sub("#", e.text)) if e.text and e.id not in alone else e.id, e)
    return [e for e in alike.values() if e.id]


def _by_place(telling: Sequence[Evidence]) -> list[list[Evidence]]:
    """Evidence of one line of a file together, in the order of the first of each."""
    places: dict[object, list[Evidence]] = {}
    for e in telling:
        places.setdefault((e.file, e.line) if e.line else e.id, []).append(e)
    return list(places.values())


def _settings(view: View, whole: Collection[str]) -> Iterator[str]:
    """The run's settings with the ids of what says so: asked for, used, and looked for in vain.

    Args:
        whole: files that show their settings themselves.
    """
    for key, found in view.facts.by_key.items():
        if key.startswith("settings.") and not all(e.file in whole for e in found):
            values: dict[str, str] = {}
            for e in found:
                said = "not set" if e.kind == "absent" else str(e.value)[:40]
                where = f" at {e.file}:{e.line}" if e.line else ""
                values.setdefault(f"{said} in {e.variant}" if e.variant else said, f"{e.id}{where}")
            told = ", ".join(f"{value} [{i}]" for value, i in list(values.items())[:4])
            more = f" and {len(values) - 4} more values" if len(values) > 4 else ""
            yield harmless(f"{key.removeprefix('settings.')} = {told}{more}")


def _files(view: View, most: int, skip: Collection[str] = ()) -> tuple[str, set[str]]:
    """Small files whole, with line numbers, while they fit; and their names."""
    text, names = "", set()
    for name, body in view.texts():
        if name in skip or len(body) > most:
            continue
        numbered = "\n".join(f"{n}: {line}" for n, line in enumerate(body.rstrip("\n").split("\n"), 1))
        piece = fenced(harmless(numbered), name)
        if encoded(text) + encoded(piece) <= most - 60:
            text += f"\n{piece}"
            names.add(name)
    return f"Small files, whole:{text}" if text else "", names


def _evidence(telling: list[Evidence], whole: set[str], most: int) -> tuple[str, list[Evidence]]:
    """Lines of evidence, and which; what stands in a file that is shown whole is not quoted again."""
    told = _by_place([e for e in telling if not (e.key == "log.telling" and e.file in whole)])
    kept, _ = fitting((evidence_line(*group, quoted=group[0].file not in whole) for group in told), most - 80)
    shown = [e for group in told[: len(kept)] for e in group]
    return (f"Evidence:\n{fenced(chr(10).join(kept), 'evidence')}" if kept else "", shown)


def _overview(view: View, most: int, brief: bool) -> str:
    """How the logs end and fail, what each tool found, what was clean and what could not be looked at."""
    lines = [harmless(line) for line in view.overview]
    by_outcome: dict[str, list[str]] = {}
    for r in view.results:
        name = r["call"]["tool"]
        if r["outcome"] in ("finding", "failed", "not_allowed"):
            lines.append(f"{name}: {harmless(' '.join(str(r['summary']).split())[:220])}")
        else:
            by_outcome.setdefault(r["outcome"], []).append(name)
    lines += [f"clean: {', '.join(by_outcome['clean'])}"] if "clean" in by_outcome else []
    lines += (
        [f"{len(by_outcome['not_applicable'])} other checks had nothing to read"]
        if "not_applicable" in by_outcome
        else []
    )
    kept, left = fitting(lines, most if brief else int(most * 0.6))
    text = fenced("\n".join([*kept, *([f"({left} lines more)"] if left else [])]), "overview")
    logs = next((str(r["text"]) for r in view.results if r["call"]["tool"] == "scan_logs"), "")
    room_left = most - encoded(text) - 120
    if logs and not brief and room_left > 300:
        number = next(n for n, r in enumerate(view.results, 1) if r["call"]["tool"] == "scan_logs")
        body = _beginning(harmless(logs), number, room_left)
        text += "\n" + fenced(body, "scan_logs")
    return f"Overview:\n{text}"


def _beginning(text: str, number: int, most: int) -> str:
    """The first lines of a result in so many bytes, and the call that shows the next."""
    lines, characters = text.split("\n"), most
    while True:
        shown = page(lines, 1, 0, characters)
        at = f"start={shown.line}, offset={shown.offset}" if shown.offset else f"start={shown.line}"
        told = f"{shown.line - 1} of {len(lines)} lines are shown"
        more = f'\n[cut: {told}; read_lines(file="result/{number}", {at}) reads on]' if shown.line else ""
        if encoded(shown.text + more) <= most or characters < 20:
            return shown.text + more
        characters = int(characters * 0.85) - 10


def _passages(view: View, leaders: Sequence[Hypothesis], near: Results, room: Room, most: int) -> str:
    """How to tell the leaders apart, from their playbooks, then what fits the question best."""
    by_slug = {p.slug: p for p in view.playbooks}
    books = [by_slug[h.playbook] for h in leaders[:4] if h.playbook in by_slug]
    found = {f"playbook {p.slug}": section(p.body, "tell it apart") for p in books}
    for r in near:
        name = f"playbook {r.document}" if r.kind != "document" else f"document {r.document.rsplit('/', 1)[-1]}"
        found.setdefault(name, r.text)
    text = ""
    for name, body in [(n, b) for n, b in found.items() if b][:SECTIONS]:
        piece = fenced(harmless(cut(body, room.section, "look_up shows more")), name)
        if encoded(text) + encoded(piece) > most - 60:
            break
        text += f"\n{piece}"
    return f"Playbooks:{text}" if text else ""


def section(body: str, heading: str) -> str:
    """The part of a playbook under the heading that contains these words; empty where there is none."""
    for part in body.split("\n## "):
        first, _, rest = part.partition("\n")
        if heading in first:
            return rest.strip()
    return ""


def _rest(view: View, more: list[Evidence], shown: list[Evidence], most: int) -> str:
    """More evidence while it fits, then how much there is that was not shown, by key."""
    keys: dict[str, int] = {}
    everything = [e for found in view.facts.by_key.values() for e in found if e.id]
    kept, _ = fitting(map(evidence_line, more), max(0, most - 1500))
    seen = {e.id for e in shown} | {e.id for e in more[: len(kept)]}
    for e in everything:
        if e.id not in seen and not e.key.startswith("settings."):
            name = e.key if not e.key.startswith(("sig.", "env.")) else e.key.split(".")[0] + ".*"
            keys[name] = keys.get(name, 0) + 1
    text = fenced("\n".join(kept), "more evidence") if kept else ""
    hidden = sum(keys.values())
    if hidden:
        names, left = fitting(
            (f"{k} {n}" for k, n in sorted(keys.items(), key=lambda kn: -kn[1])), min(1100, most - 250)
        )
        told = " and ".join(filter(None, [", ".join(names), f"{left} keys more" if left else ""]))
        text += f"\nNot shown: {hidden} of {len(everything)} pieces of evidence, many on lines that are ({told})."
        text += " show_evidence shows them."
    return text.strip()
