"""Rows of patches on a terminal that scrolls: indented, folded, coloured where it takes colours."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .. import patch_rows
from ..patch_rows import BY_MODEL, FOREIGN, Row
from ..sanitize import one_line

if TYPE_CHECKING:
    from ..applying.plan import Change
    from ..applying.selection import Repair
    from ..report import Report

_COLOURS = {"title": "1", "file": "1", "mark": "33", "in": "32", "out": "31", "hunk": "36"}
_WIDTH = 160  # characters of a row


def change(change: Change, foreign: bool = False) -> Iterator[str]:
    """What is known of the patches of a file, and the difference that will be written.

    Args:
        foreign: the report that they are from was not made here.
    """
    for patch in change.patches:
        yield from drawn(patch_rows.words(patch, foreign))
    yield from diff(change.diff)


def diff(text: str) -> Iterator[str]:
    """A diff; a long line goes on behind a `>`."""
    return drawn(patch_rows.diff(text))


def drawn(rows: Iterable[Row]) -> Iterator[str]:
    """Rows as lines of the terminal."""
    for row in rows:
        colour = _COLOURS.get(row.kind, "")
        if row.kind in ("title", "mark"):
            yield _coloured(f"{'    ' * (row.kind == 'mark')}{row.text}", colour)
        elif row.kind == "words":
            yield from textwrap.wrap(row.text, 100, initial_indent="    ", subsequent_indent="      ")
        else:
            for at in range(0, len(row.text) or 1, _WIDTH):
                yield _coloured(f"    {'> ' if at else ''}{row.text[at : at + _WIDTH]}", colour)


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


def _coloured(text: str, code: str) -> str:
    if not code or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{code}m{text}\x1b[0m"
