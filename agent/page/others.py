"""Further questions of the conversation that a page is of, each with what was answered."""

from __future__ import annotations

from collections.abc import Collection

from ..outline import outline
from ..report import Report
from .markup import Html, clipped, joined, tag, within
from .story import words

QUESTIONS = 60
_BYTES = 1_000_000  # of all of them
_LEFT_OUT = {"Checked"}  # every answer of a session tells the checks before it again


def asked_beside(reports: list[Report], known: Collection[str]) -> Html | None:
    """A card for each report that the page is not about, in the order of the questions.

    Args:
        reports: with the secrets taken out.
        known: evidence that the page shows; the rest is named, not linked.
    """
    if not reports:
        return None
    cards, more = within([_card(r, known) for r in reports[:QUESTIONS]], _BYTES)
    left = more + max(0, len(reports) - QUESTIONS)
    note = "The page above is of the last diagnosis. This was asked in the same conversation, in this order."
    rest = tag("p", f"{left:,} further questions are in the JSON export.", class_="note") if left else None
    return joined(tag("p", note, class_="note"), *cards, rest)


def _card(report: Report, known: Collection[str]) -> Html:
    said = outline(report)
    asked = " ".join(report.question.split()) or "(no question)"
    status = tag("span", clipped(said.certainty, 80), class_=f"status {report.status.replace('_', '-')}")
    cause = [" ", tag("code", clipped(said.verdict, 120))] if said.title else []
    title = tag("p", tag("b", clipped(said.title, 300))) if said.title else None
    parts = [joined(tag("h4", s.title), words(s, known)) for s in said.sections if s.items and s.title not in _LEFT_OUT]
    return tag("article", tag("h3", clipped(asked, 600)), tag("p", status, *cause), title, *parts)
