"""How causes and what they stand on are drawn, and what a status means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from textual.content import Content

from ..text import said
from .hypotheses_course import Course, Standing, bar, percent, sparkline
from .hypotheses_fitted import fitted

if TYPE_CHECKING:
    from ...agent.core.report import CitedEvidence, Report

MEANS = {
    "confirmed": "all it requires holds, nothing contradicts it, no rival is near",
    "likely": "the evidence points to it; not everything that would prove it is there",
    "hypothesis": "the best of the causes weighed, too little to rely on",
    "healthy": "nothing wrong was found where the checks looked",
    "insufficient_evidence": "no cause is carried by what there is; see what is missing",
    "answer": "an answer to a question; nothing was diagnosed",
}
_TRAIL = 10  # steps that are drawn at most
_QUOTE = 200


@dataclass(frozen=True, slots=True)
class Ground:
    """A line under the chosen cause. `ident` is the evidence that enter opens; empty for what is no evidence."""

    text: Content
    ident: str = ""


def row(s: Standing, course: Course, width: int) -> Content:
    """One line: mark, probability, bar, what moved, the cause, its trail where there is room."""
    wide = width >= 54
    root = course.report is not None and s.cause == course.report.root_cause.id and bool(s.cause)
    mark = ">" if root else "&" if s.beside is not None else " "
    fallen = s.moved == "fell out"
    number = "-" if fallen or not s.trail or s.trail[-1] is None else percent(s.now)
    moved = s.moved or ("found too" if s.beside is not None and wide else "")
    moved = moved if wide or not fallen else "out"
    style = "$text-muted" if s.now < 0.05 and s.beside is None and not root else "bold" if root else ""
    cells = [
        Content(f"{mark} "),
        fitted(Content(number), 4, right=True),
        Content(" "),
        Content.styled(bar(s.now, 10 if wide else 5), "$text-accent" if root else "$text-muted"),
        Content(" "),
        fitted(Content(moved), 9 if wide else 4),
        Content(" "),
    ]
    left = width - sum(c.cell_length for c in cells)
    trail = min(_TRAIL, course.steps) if wide and course.steps > 1 and left >= 24 + _TRAIL else 0
    cells.append(
        fitted(said((s.cause or s.title).replace("\t", " "), style, limit=200), left - trail - (1 if trail else 0))
    )
    if trail:
        cells += [Content(" "), fitted(Content.styled(sparkline(s.trail, trail), "$text-muted"), trail, right=True)]
    return Content("").join(cells)


def heading(course: Course) -> Content:
    """The status word and what it means; before a report, how far the weighing has come."""
    report = course.report
    if report is None:
        if not course.steps:
            return Content("Nothing has been weighed yet: ask a question, and the causes stand here by probability.")
        return Content.assemble(("weighing", "bold"), f", step {course.steps}: nothing is decided yet")
    word = report.status.replace("_", " ")
    style = {"confirmed": "bold $text-success", "likely": "bold $text-accent"}.get(report.status, "bold")
    lines = [Content.assemble((word, style), f": {MEANS[report.status]}"), *_beside(report)]
    return Content("\n").join(lines)


def _beside(report: Report) -> list[Content]:
    """Where a model and the evidence part, and what a team's history moved."""
    found = []
    alone = report.meta.ranking
    if alone is not None and alone.id != report.root_cause.id:
        number = f", {percent(alone.confidence)}" if alone.confidence else ""
        word = alone.status.replace("_", " ")
        found.append(said(f"! the model disagrees with the evidence alone, which says {alone.id} ({word}{number})"))
    elif alone is not None:
        found.append(Content("the evidence alone says the same as the model"))
    return found + [said(f"from this team's history: {text}", limit=300) for text in report.meta.history]


def grounds(s: Standing, course: Course) -> list[Ground]:
    """What is for it, against it and missing; what explains it and what it explains; its course in numbers."""
    if not s.cause:
        return [Ground(Content("the probability that the cause is none of those weighed")), _course(s)]
    lines = [Ground(said(s.title or s.cause, "bold", limit=300))] if s.title else []
    if s.playbook:
        lines.append(Ground(said(f"playbook {s.playbook}", "$text-muted", limit=200)))
    if s.beside is not None:
        lines.append(Ground(Content(f"& found too, independently of the first; confidence {percent(s.beside)}")))
    if s.explained_by:
        lines.append(Ground(said(f"explained by {s.explained_by}: it follows from that", limit=300)))
    if s.explains:
        lines.append(Ground(said(f"explains {', '.join(s.explains)}", limit=300)))
    for mark, word, idents in (("+", "supported by", s.supported_by), ("-", "contradicted by", s.contradicted_by)):
        lines.append(Ground(Content.styled(f"{word}{'' if idents else ' nothing'}", "$text-muted")))
        lines += _cited_once(mark, idents, course)
    if s.missing:
        lines.append(Ground(Content.styled("missing: would decide it, and no check has found it", "$text-muted")))
        lines += [Ground(Content.assemble("? ", said(text, limit=_QUOTE))) for text in s.missing]
    return [*lines, _course(s)]


def _cited_once(mark: str, idents: list[str], course: Course) -> list[Ground]:
    """A line that several checks cite is one, by the evidence that comes first."""
    lines: dict[object, list[str]] = {}
    for ident in idents:
        known = course.evidence.get(ident)
        at = (known.file, known.line) if known is not None and known.file and known.line else ident
        lines.setdefault(at, []).append(ident)
    return [_cited(mark, same[0], course, same[1:]) for same in lines.values()]


def _cited(mark: str, ident: str, course: Course, also: list[str]) -> Ground:
    known = course.evidence.get(ident)
    if known is None:
        return Ground(Content.assemble(f"{mark} ", said(ident)), ident)
    from ...agent.telling.outline import place

    # Evidence of a step has the same fields as evidence of a report
    where = said(place(cast("CitedEvidence", known)), limit=200)
    quote = said(known.text.strip() or f"{known.key} = {known.value}", "$text-muted", limit=_QUOTE)
    names = said(", ".join([ident, *also]), "bold", limit=80)
    return Ground(Content.assemble(f"{mark} ", names, " ", where, "  ", quote), ident)


def _course(s: Standing) -> Ground:
    numbers = [percent(v) if v is not None else "-" for v in s.trail]
    shown = " ".join(numbers[-12:])
    more = f" (the last 12 of {len(numbers)} steps)" if len(numbers) > 12 else ""
    return Ground(Content.styled(f"course, step by step: {shown}{more}" if numbers else "", "$text-muted"))
