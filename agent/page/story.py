"""The words of the page: the verdict on top, sections that terminal and markdown have too, the chain, the rivals."""

from __future__ import annotations

from collections.abc import Collection

from ..outline import NEGLIGIBLE, Outline, Section, place
from ..report import CitedEvidence, Differential, Report
from ..sanitize import one_line
from .evidence import RIVALS, SIGNS
from .markup import Html, clipped, joined, tag, within
from .refs import idents, linked

ITEMS, LINKS = 40, 40  # shown of a section, of the chain
_TEXT, _SIGN = 1_200, 200  # characters of an item, of a sign
_BYTES = 100_000  # of a section
_AGAIN = {
    "restart": "Start it again as it is.",
    "restart_excluding": "Start it again on other machines.",
    "fix_first": "Repair it before you start it again.",
    "stop": "Do not go on with it.",
}


def verdict(report: Report, outline: Outline) -> Html:
    """What everybody reads: the cause, how sure it is, where it broke first, and what to do."""
    title = clipped(outline.title or outline.verdict, 300)
    rows: list[tuple[str, Html | str]] = []
    if outline.first_failure:
        rows.append(("First failure", clipped(outline.first_failure, 300)))
    if report.fixes:
        rows.append(("First to do", tag("a", clipped(one_line(report.fixes[0].named), 200), href="#fixes")))
    if report.restart:
        rows.append(("Start again?", tag("a", _AGAIN[report.restart.advice], href="#again")))
    if report.question:
        rows.append(("Asked", clipped(" ".join(report.question.split()), 600)))
    for run in report.runs[:8]:
        kind = "Healthy run" if run.good else "Run"
        rows.append((kind, clipped(one_line(f"{run.root} ({run.state})"), 300)))
    listed = [joined(tag("dt", name), tag("dd", value)) for name, value in rows]
    status = tag("span", clipped(outline.certainty, 80), class_=f"status {report.status.replace('_', '-')}")
    cause = tag("code", clipped(outline.verdict, 120)) if outline.title else None
    return tag("header", tag("p", status, " ", cause), tag("h1", title), tag("dl", *listed))


def words(section: Section, known: Collection[str]) -> Html:
    """A section as terminal and markdown have it."""
    if section.prose:
        told, more = within([joined(linked(clipped(i.text, _TEXT), known), " ") for i in section.items], _BYTES)
        return joined(tag("p", *told), left_out(more, "are"))
    items = []
    for item in section.items[:ITEMS]:
        mark = tag("b", idents(clipped(item.mark, 120), known), " ") if item.mark not in ("", "-") else None
        remark = tag("small", clipped(item.remark, _TEXT)) if item.remark else None
        said = tag("q", clipped(item.quote, _TEXT)) if item.quote else None
        orders = [command(c) for c in item.commands[:ITEMS]]
        items.append(tag("li", mark, linked(clipped(item.text, _TEXT), known), said, remark, *orders))
    kept, more = within(items, _BYTES)
    return joined(tag("ul", *kept, class_="plain"), left_out(more + max(len(section.items) - ITEMS, 0), "are"))


def left_out(more: int, verb: str = "is") -> Html | None:
    """That further items stand in the JSON report alone."""
    return tag("p", f"{more:,} more {verb} in the JSON report.", class_="note") if more > 0 else None


def command(text: str) -> Html:
    """A command on a line of its own; one click takes all of it."""
    return tag("pre", tag("code", clipped(one_line(text), 4_000)), class_="cmd")


def chain(report: Report, known: Collection[str]) -> Html | None:
    """The steps from cause to cascade, in the order of events; with their time, step and rank."""
    by_id = {e.id: e for e in report.evidence}
    steps = []
    for link in report.chain[:LINKS]:
        cited = by_id.get(link.evidence)
        told = cited is not None and bool(cited.line) and link.text.startswith(f"{cited.file}:{cited.line}")
        text = cited.text.strip() if told and cited and cited.text.strip() else link.text
        when = clipped(_when(cited), 160) if cited else ""
        head = joined(tag("b", link.role), " ", idents(link.evidence, known), f" {when}" if when else None)
        steps.append(tag("li", tag("div", head), tag("div", clipped(one_line(text), 400), class_="said"),
                         class_=link.role))  # fmt: skip
    if not steps:
        return None
    return joined(tag("ol", *steps, class_="chain"), left_out(len(report.chain) - LINKS, "are"))


def _when(e: CitedEvidence) -> str:
    known = (e.time, f"step {e.step}" if e.step is not None else "", f"rank {e.rank}" if e.rank is not None else "",
             f"attempt {e.attempt}" if e.attempt is not None else "", e.host, place(e))  # fmt: skip
    return one_line(", ".join(str(k) for k in known if k))


def rivals(report: Report, known: Collection[str]) -> Html | None:
    """The other causes that were weighed, and what rules each of them out."""
    others = [d for d in report.differential if d.id != report.root_cause.id]
    near = [d for d in others if d.confidence >= NEGLIGIBLE or d.contradicted_by]
    shown = sorted(near or others[:1], key=lambda d: -d.confidence)[:RIVALS]
    by_id = {e.id: e for e in report.evidence}
    if not shown:
        return None
    rest = len(others) - len(shown)
    note = f"{rest:,} more causes were weighed and are in the JSON report." if rest else None
    cards = [_rival(d, by_id, known) for d in shown]
    return joined(*cards, tag("p", note, class_="note") if note else None)


def _rival(d: Differential, by_id: dict[str, CitedEvidence], known: Collection[str]) -> Html:
    share = "under 1%" if d.confidence < NEGLIGIBLE else f"{d.confidence:.0%}"
    head = tag("h3", clipped(one_line(d.title or d.id), 200), " ", tag("code", clipped(one_line(d.id), 120)),
               f" {share}")  # fmt: skip
    rows = [("Against it", _signs(d.contradicted_by, by_id, known)), ("For it", _signs(d.supported_by, by_id, known))]
    missing = [clipped(one_line(m.removesuffix(" seen").removesuffix(" matching .")), _SIGN) for m in d.missing[:SIGNS]]
    rows.append(("Would show it, not seen", tag("ul", *(tag("li", m) for m in missing)) if missing else None))
    said = [joined(tag("dt", name), tag("dd", what)) for name, what in rows if what]
    nothing = None if said else tag("p", "Nothing speaks for it.")
    return tag("article", head, tag("dl", *said) if said else None, nothing)


def _signs(ids: list[str], by_id: dict[str, CitedEvidence], known: Collection[str]) -> Html | None:
    if not ids:
        return None
    rows = []
    for ident in ids[:SIGNS]:
        e = by_id.get(ident)
        if e is None:
            rows.append(tag("li", idents(ident, known)))
            continue
        text = "looked for, not there" if e.kind == "absent" else e.text.strip() or f"{e.value}"
        code = tag("code", clipped(one_line(e.key), 80))
        said = tag("span", clipped(one_line(text), _SIGN), class_="said")
        rows.append(tag("li", idents(ident, known), " ", code, " ", said))
    more = len(ids) - SIGNS
    return tag("ul", *rows, tag("li", f"and {more:,} more") if more > 0 else None)
