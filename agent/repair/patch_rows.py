"""Patches as rows that each face colours in its own way: who thought of them, why, the risk, and what is written.

A person agrees to what these rows say. So nothing of a change is left out of them without being counted, and whatever
could steer a terminal or hide in it comes out inert.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from ..safety.fences import one_line

if TYPE_CHECKING:
    from ..core.report import Patch

# title: of a patch; mark: a warning; words: prose; file: header of a diff; hunk: its place; in, out: what is put in and
# taken out; same: lines around; note: a word of ours within a diff.
Kind = Literal["title", "mark", "words", "file", "hunk", "in", "out", "same", "note"]

_KINDS: dict[str, Kind] = {"+": "in", "-": "out", "@": "hunk"}
_CHANGED = ("+", "-", "\\")  # and the mark of an end without a newline
_LONG = 400  # characters of a line of context that are shown
_WHOLE, _BEFORE = 4_000, 120  # of a changed line: all up to it; above it what differs, and so much before and after
BY_MODEL = "proposed by the model, not by a tested recipe"
FOREIGN = "from a report that was not made here"


@dataclass(frozen=True, slots=True)
class Row:
    """One line, inert, of any length: a face folds it at its own width."""

    kind: Kind
    text: str


def words(patch: Patch, foreign: bool = False) -> Iterator[Row]:
    """A patch without its diff.

    Args:
        foreign: the report that it is from was not made here.
    """
    yield Row("title", one_line(f"{patch.id}  {patch.file}{': ' if patch.title else ''}{patch.title}"))
    for mark in [FOREIGN] * foreign + [BY_MODEL] * (patch.by == "model"):
        yield Row("mark", mark)
    for name, text in (("why", patch.why), ("risk", patch.risk), ("verify", patch.verify)):
        if text:
            yield Row("words", one_line(f"{name}: {text}"))
    for edit in patch.edits:
        yield Row("words", one_line(edit))


def diff(text: str) -> Iterator[Row]:
    """A diff line by line. Line ends of another system are told once; of very long lines what differs is shown."""
    rows = _rows(text)
    body = [row for row in rows[2:] if row[:1] in "+- "]
    if body and all(row.endswith("\r") for row in body):
        yield Row("note", "(lines end in CRLF)")
        rows = [row.removesuffix("\r") for row in rows]
    for number, row in enumerate(rows):
        kind = _KINDS.get(row[:1], "same") if number > 1 else "file"
        yield Row(kind, one_line(_shown(rows, number)[0]))


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
