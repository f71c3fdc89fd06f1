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
_LONG = 400  # characters of a line of context that are shown
_WHOLE, _BEFORE = 4_000, 120  # of a changed line: all up to it; above it what differs, and so much before and after
_WIDTH = 160  # characters of a row
BY_MODEL = "proposed by the model, not by a tested recipe"
FOREIGN = "from a report that was not made here"


def change(change: Change, foreign: bool = False) -> Iterator[str]:
    """What is known of the patches of a file, and the difference that will be written.

    Args:
        foreign: the report that they are from was not made here.
    """
    for patch in change.patches:
        yield from words(patch, foreign)
    yield from diff(change.diff)


def words(patch: Patch, foreign: bool = False) -> Iterator[str]:
    """A patch without its diff."""
    yield _coloured(one_line(f"{patch.id}  {patch.file}{': ' if patch.title else ''}{patch.title}"), "1")
    for mark in [FOREIGN] * foreign + [BY_MODEL] * (patch.by == "model"):
        yield _coloured(f"    {mark}", "33")
    for name, text in (("why", patch.why), ("risk", patch.risk), ("verify", patch.verify)):
        if text:
            yield from _paragraph(f"{name}: {text}")
    for edit in patch.edits:
        yield from _paragraph(edit)


def listed(report: Report, repairs: list[Repair], foreign: bool = False) -> Iterator[str]:
    """The repairs of a report that have patches, numbered."""
    if foreign:
        yield f"({FOREIGN})"
    patches = {p.id: p for p in report.patches}
    for number, repair in enumerate(repairs, 1):
        yield one_line(f"{number}. {repair.title}")
        for name in repair.ids:
            patch = patches[name]
            by = f"  ({BY_MODEL})" if patch.by == "model" else ""
            yield one_line(f"   {name}  {patch.file}{': ' if patch.title else ''}{patch.title}{by}")


def diff(text: str) -> Iterator[str]:
    """A diff line by line, inert. Line ends of another system are told once; a long line goes on behind a `>`."""
    rows = _rows(text)
    body = [row for row in rows[2:] if row[:1] in "+- "]
    if body and all(row.endswith("\r") for row in body):
        yield "    (lines end in CRLF)"
        rows = [row.removesuffix("\r") for row in rows]
    for number, row in enumerate(rows):
        colour = _COLOURS.get(row[:1], "") if number > 1 else "1"
        shown = one_line(_shown(rows, number)[0])
        for at in range(0, len(shown) or 1, _WIDTH):
            yield _coloured(f"    {'> ' if at else ''}{shown[at : at + _WIDTH]}", colour)


def hidden(text: str) -> int:
    """Characters that a diff takes out or puts in and that `diff` does not show."""
    rows = _rows(text)
    return sum(_shown(rows, number)[1] for number, row in enumerate(rows) if len(row) > _WHOLE)


def counts(text: str) -> str:
    """How many lines a diff puts in and takes out, in short."""
    signs = [row[:1] for row in _rows(text)[2:]]
    return f"+{signs.count('+')} -{signs.count('-')} lines"


def _rows(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _shown(rows: list[str], number: int) -> tuple[str, int]:
    """A row of a diff as it is shown, and how many characters of a change are left out of it."""
    row = rows[number]
    if number > 1 and row[:1] in ("+", "-"):
        return _window(row, _counterpart(rows, number)) if len(row) > _WHOLE else (row, 0)
    left = len(row) - 1 - _LONG
    return (f"{row[: 1 + _LONG]} [{left} more characters as before]", 0) if number > 1 and left > 0 else (row, 0)


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


def _window(row: str, other: str) -> tuple[str, int]:
    """What is new in a line against the one in whose place it stands; what both begin and end with may be left out."""
    sign, own, before = row[0], row[1:], other[1:]
    head = _alike(own, before)
    tail = _alike(own[head:][::-1], before[head:][::-1])
    left = max(len(own) - tail - head - _WHOLE, 0)
    start, end = max(head - _BEFORE, 0), len(own) - (tail if left else max(tail - _BEFORE, 0))
    piece = own[start : head + _WHOLE] + f" [{left} MORE CHARACTERS, NOT SHOWN] " if left else own[start:end]
    first = f"[{start} characters as before] " if start else ""
    last = f" [{len(own) - end} characters as before]" if end < len(own) else ""
    return f"{sign}{first}{piece}{last}", left


def _alike(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(one_line(text), 100, initial_indent="    ", subsequent_indent="      ")


def _coloured(text: str, code: str) -> str:
    if not code or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{code}m{text}\x1b[0m"
