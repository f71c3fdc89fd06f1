"""Several attempts in one log: where each begins, and which one a line belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .anchors import is_progress
from .files import Line
from .lines import strip
from .summaries import FileSummary


def restarts(summary: FileSummary) -> list[tuple[Line, int]]:
    """Where new attempts begin in one log: the line, and the number of the attempt it begins (from 1)."""
    if summary.restarts is not None:
        return summary.restarts
    lived = next(_progress_lines(summary), None) if summary.harvest.restarts else None
    found: list[tuple[Line, int]] = []
    attempt, last = 1, -100
    for f in summary.harvest.restarts:
        if f.number - last > 6 and lived is not None and f.number > lived:
            said = re.search(r"attempt (\d{1,4})", f.stripped.body)
            attempt = int(said[1]) if said else attempt + 1
            found.append((Line(f.number, f.offset, f.data, f.cut), attempt))
        last = f.number
    summary.restarts = found
    return found


def _progress_lines(summary: FileSummary) -> Iterator[int]:
    for number, data in enumerate(summary.harvest.head.split(b"\n")[:2000], 1):
        if is_progress(strip(data[:400].decode(errors="replace"), summary.labels).body):
            yield number
            return


def attempt_at(summary: FileSummary, number: int) -> int | None:
    """The attempt that a line belongs to; None where the log holds only one."""
    begun = restarts(summary)
    if not begun:
        return None
    return next((attempt for line, attempt in reversed(begun) if line.number <= number), 1)
