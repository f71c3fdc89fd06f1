"""Where in the run's files to look: around what the report cites and around what broke."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pieces import Span

if TYPE_CHECKING:
    from ..reading.failures import Failures
    from ..report import Report

BEFORE, AFTER = 64 << 10, 64 << 10  # bytes around the first failure
CITED = 8 << 10  # around a line that the report cites
EACH = 4 << 20  # bytes in focus of one file
FAILURES = 40  # of which a window is kept

Focus = dict[str, list[Span]]


def focus(report: Report | None, found: Failures | None) -> Focus:
    """Stretches of bytes by file, the most telling first and bounded for each file."""
    places: Focus = {}
    left: dict[str, int] = {}

    def add(name: str, start: int, end: int) -> None:
        room = left.setdefault(name, EACH)
        if room >= end - start:
            left[name] = room - (end - start)
            places.setdefault(name, []).append((max(0, start), end))

    if found is not None and found.first is not None:
        first = found.first
        begin = (first.start or first.line).offset
        add(first.file.name, begin - BEFORE, max(begin, first.line.offset) + AFTER)
    for e in report.evidence if report else ():
        if e.kind == "line" and e.file and e.offset is not None:
            add(e.file, e.offset - CITED, e.offset + len(e.text.encode()) + CITED)
    for group in found.groups[:FAILURES] if found else ():
        lead = group.lead
        begin = (lead.start or lead.line).offset
        add(lead.file.name, begin - CITED, max(begin, lead.line.offset) + CITED)
    return places
