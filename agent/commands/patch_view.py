"""Patches as they are shown before anyone agrees to them: who thought of them, why, the risk, and what is written."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from ..sanitize import one_line

if TYPE_CHECKING:
    from ..applying.plan import Change
    from ..applying.selection import Repair
    from ..report import Patch, Report

_COLOURS = {"+": "32", "-": "31", "@": "36"}
_CHANGED = ("+", "-", "\\")  # and the mark of an end without a newline
_LONG, _BEFORE = 400, 120  # characters: lines above it are shown around where they differ
BY_MODEL = "proposed by the model, not by a tested recipe"


def change(change: Change) -> Iterator[str]:
    """What is known of the patches of a file, and the difference that will be written."""
    for patch in change.patches:
        yield from words(patch)
    yield from diff(change.diff)


def words(patch: Patch) -> Iterator[str]:
    """A patch without its diff."""
    yield _coloured(one_line(f"{patch.id}  {patch.file}{': ' if patch.title else ''}{patch.title}"), "1")
    if patch.by == "model":
        yield _coloured(f"    {BY_MODEL}", "33")
    for name, text in (("why", patch.why), ("risk", patch.risk), ("verify", patch.verify)):
        if text:
            yield from _paragraph(f"{name}: {text}")
    for edit in patch.edits:
        yield from _paragraph(edit)


def listed(report: Report, repairs: list[Repair]) -> Iterator[str]:
    """The repairs of a report that have patches, numbered."""
    patches = {p.id: p for p in report.patches}
    for number, repair in enumerate(repairs, 1):
        yield one_line(f"{number}. {repair.title}")
        for name in repair.ids:
            patch = patches[name]
            by = f"  ({BY_MODEL})" if patch.by == "model" else ""
            yield one_line(f"   {name}  {patch.file}{': ' if patch.title else ''}{patch.title}{by}")


def diff(text: str) -> Iterator[str]:
    """A diff line by line, inert. Line ends of another system are told once; long lines are shown where they differ."""
    rows = text.removesuffix("\n").split("\n")
    body = [row for row in rows[2:] if row[:1] in "+- "]
    if body and all(row.endswith("\r") for row in body):
        yield "    (lines end in CRLF)"
        rows = [row.removesuffix("\r") for row in rows]
    for number, row in enumerate(rows):
        shown = _window(row, _counterpart(rows, number)) if number > 1 and len(row) > _LONG else row
        yield _coloured(f"    {one_line(shown)}", _COLOURS.get(row[:1], "") if number > 1 else "1")


def _counterpart(rows: list[str], number: int) -> str:
    """The line that a changed one takes the place of, or that takes its place."""
    sign = rows[number][0]
    start = end = number
    while rows[start - 1][:1] in _CHANGED and start > 2:
        start -= 1
    while end + 1 < len(rows) and rows[end + 1][:1] in _CHANGED:
        end += 1
    own = [i for i in range(start, end + 1) if rows[i][:1] == sign]
    others = [rows[i] for i in range(start, end + 1) if rows[i][:1] not in (sign, "\\")]
    place = own.index(number) if number in own else 0
    return others[place] if place < len(others) else ""


def _window(row: str, other: str) -> str:
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(row[1:], other[1:], strict=False)))
    start = max(same - _BEFORE, 0)
    piece = row[1 + start : 1 + start + _LONG]
    left = len(row) - 1 - start - len(piece)
    return f"{row[0]}{f'[{start} characters] ' if start else ''}{piece}{f' [{left} more characters]' if left else ''}"


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(one_line(text), 100, initial_indent="    ", subsequent_indent="      ")


def _coloured(text: str, code: str) -> str:
    if not code or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{code}m{text}\x1b[0m"
