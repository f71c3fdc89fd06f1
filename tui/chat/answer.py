"""A report in the conversation: the verdict, what happened, what to do. All the rest stands in the views beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Grid, Vertical
from textual.content import Content
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Static

from ...agent.telling.outline import Item, Outline, Section, outline
from ..messages import OpenEvidence
from ..text import said

if TYPE_CHECKING:
    from ...agent.core.report import Report

STYLES = {"confirmed": "bold $error", "likely": "bold $warning", "healthy": "bold $success"}
# Sections that the conversation shows in short; the whole report has them all (`/report`).
_BESIDE = frozenset(("Evidence", "Also considered", "How it went", "Checked"))
_MARK = 12  # columns of marks beside their text; longer ones, as of three citations, stand after it
_REMARKS = re.compile(r"; (?=by hand: |then check: )")  # a line each: what is to be done is not lost in a paragraph
_CITED = re.compile(r"\bE\d{1,7}\b")
_CHANGES = {"+": "$success", "-": "$error"}


class Answer(Vertical):
    """A report, in short or whole. Each entry is text of its own, so that it can be selected and copied."""

    DEFAULT_CSS = """
    Answer { height: auto; padding: 0 1; margin: 1 0 0 0; border-left: outer $primary; }
    Answer .section { text-style: bold; padding: 1 0 0 0; }
    Answer .section.-untitled { padding: 0; }
    Answer .prose { padding: 0 0 0 2; }
    Answer Grid { grid-size: 2; grid-columns: 7 1fr; grid-rows: auto; height: auto; padding: 0 0 0 2; }
    Answer Grid Static { height: auto; }
    Answer .mark { color: $text-muted; }
    Answer .foot { color: $text-muted; padding: 1 0 0 0; }
    """

    def __init__(self, report: Report, whole: bool = False) -> None:
        super().__init__()
        self.report = report
        self._whole = whole

    def compose(self) -> ComposeResult:
        o = outline(self.report)
        yield Static(verdict(self.report, o))
        for section in o.sections:
            if self._whole or self._is_told(section):
                alone = self.report.status == "answer" and section.title == "Answer"  # its title would say nothing
                yield Static(said("" if alone else section.title), classes="section" + " -untitled" * alone)
                yield from _shown(section)
        if foot := list(self._foot(o)):
            yield Static(Content("\n").join(foot), classes="foot")

    def _is_told(self, section: Section) -> bool:
        return section.title not in _BESIDE

    def _foot(self, o: Outline) -> Iterator[Content]:
        """What stands elsewhere, then how the report was made."""
        r = self.report
        beside = [
            f"{len(r.evidence)} pieces of evidence (f2; /evidence {_cited(r)} opens one)" if r.evidence else "",
            f"{len(r.differential)} hypotheses (f3)" if r.differential else "",
            f"{len(r.patches)} patch{'es' * (len(r.patches) != 1)} (f6)" if r.patches else "",
        ]
        if not self._whole and r.status != "answer" and any(beside):
            yield said(f"{', '.join(filter(None, beside))}; /report shows all of it here")
        for line in o.footer if self._whole else [f"! {d}" for d in r.meta.degraded[:6]]:
            yield said(line)


class Cited(Static):
    """Text whose citations open the line that they stand for when they are clicked; `/evidence E3` does it by keys."""

    def __init__(self, content: Content, classes: str = "") -> None:
        for found in _CITED.finditer(content.plain):
            click = Style.from_meta({"@click": f"open_evidence('{found[0]}')"})
            content = content.stylize(click, *found.span())
        super().__init__(content, classes=classes)

    def action_open_evidence(self, ident: str) -> None:
        self.post_message(OpenEvidence(ident))


def _cited(report: Report) -> str:
    """The evidence that is cited first."""
    return next((i for sentence in report.summary for i in sentence.cites), report.evidence[0].id)


def verdict(report: Report, o: Outline) -> Content:
    """Cause and certainty, what it means, where it broke first."""
    certainty = f"  ({o.certainty})" if report.status != "answer" else ""
    lines = [said(f"{o.verdict}{certainty}", STYLES.get(report.status, "bold"))]
    if o.title:
        lines.append(said(o.title))
    if o.first_failure:
        lines.append(said(f"First failure: {o.first_failure}"))
    return Content("\n").join(lines)


def _shown(section: Section) -> Iterator[Widget]:
    if section.prose:
        yield Cited(said(" ".join(i.text for i in section.items)), classes="prose")
        return
    if not any(i.mark for i in section.items):
        for item in section.items:
            yield Cited(_entry(item), classes="prose")
        return
    items = section.items
    if max(len(i.mark) for i in items) > _MARK:
        items = tuple(replace(i, mark="-", text=f"{i.text} [{i.mark}]" if i.mark else i.text) for i in items)
    cells: list[Widget] = []
    for item in items:
        cells += [Cited(said(item.mark), classes="mark"), Cited(_entry(item))]
    grid = Grid(*cells)
    grid.styles.grid_columns = (max(len(i.mark) for i in items) + 1, "1fr")
    yield grid


def _entry(item: Item) -> Content:
    """An item's lines, each with its style; marks tell them apart without colour."""
    lines = [said(item.text)]
    if item.quote:
        lines.append(said(item.quote, "$text-accent"))
    lines += [said(row, _CHANGES.get(row[:1], "")) for row in item.changes]
    lines += [said(f"$ {command}", "bold") for command in item.commands]
    if item.remark not in item.text:
        lines += [said(remark, "$text-muted") for remark in _REMARKS.split(item.remark)]
    return Content("\n").join(lines)
