"""Several attempts in one log: where each begins, and which one a line belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..run.files import Line
from ..run.lines import segments, strip
from ..scan.anchors import is_progress, table
from ..scan.logpass import FileSummary

_LATE = 5  # lines
_START = 200  # lines within which workers that were started again say so


def restarts(summary: FileSummary) -> list[tuple[Line, int]]:
    """Where new attempts begin in one log: the line, and the number of the attempt it begins (from 1).

    A launcher that reports the failure of its group closes an attempt where it or its script starts another one:
    such a line counts if a later one follows, or progress of workers that it did not give up.
    """
    if summary.restarts is not None:
        return summary.restarts
    hits = summary.harvest.restarts
    lived = next(_progress_lines(summary), None) if hits else None
    failed = [f.number for f in hits if _group_failed(f.stripped.body)]
    found: list[tuple[Line, int]] = []
    attempt, last, closed = 1, -100, -_START
    for f in hits:
        closes = _group_failed(f.stripped.body)
        if closes:
            begun = f.number - closed > 6 and _is_followed(summary, f.number, failed)
            closed = f.number if begun else closed
        else:  # what workers say as they start again is of the attempt that the launcher's line began
            begun = lived is not None and f.number > lived and f.number - last > 6 and f.number - closed > _START
        if begun:
            said = None if closes else re.search(r"attempt (\d{1,4})", f.stripped.body)
            attempt = int(said[1]) if said else attempt + 1
            found.append((Line(f.number, f.offset, f.data, f.cut), attempt))
        last = f.number
    summary.restarts = found
    return found


def stillborn(summary: FileSummary) -> Line | None:
    """Where the attempts begin of which none came to progress, after one that did."""
    last, begun = summary.last_progress, restarts(summary)
    if last is None or not begun:
        return None
    # what was held in a buffer is printed a few lines late
    return next((line for line, _ in begun if line.number + _LATE >= last.number), None)


def _group_failed(body: str) -> bool:
    return table().group_failed.search(body) is not None


def _is_followed(summary: FileSummary, number: int, failed: list[int]) -> bool:
    if any(later > number + 6 for later in failed):
        return True
    progress = summary.last_progress
    return progress is not None and progress.number > number and not _gave_up(summary, number)


def _gave_up(summary: FileSummary, number: int) -> bool:
    h = summary.harvest
    after = h.tail.split(b"\n")[max(0, number - h.tail_line - 1) :]
    return any(b"Error" in x and table().gave_up.search(x[:400].decode(errors="replace")) for x in after)


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
    return next((attempt for line, attempt in reversed(begun) if _first_of(line) <= number), 1)


def _first_of(line: Line) -> int:
    """The first line of an attempt: what closes the one before is not of it."""
    return line.number + _group_failed(line.data[:400].decode(errors="replace"))


# ----------
# The line near the end of a log that says that the end was reached.


def finished_line(summary: FileSummary, after: int) -> Line | None:
    """A line near the end that says the end was reached, after the last failure."""
    h = summary.harvest
    end, number = len(h.tail), h.tail_line + h.tail.count(b"\n") + 1
    for _ in range(60):
        start = h.tail.rfind(b"\n", 0, end) + 1
        data = h.tail[start:end]
        if data.strip() and number > after and _says_end(body_of(data, summary)):
            return Line(number, h.tail_offset + start, data)
        number, end = number - 1, start - 1
        if end < 0:
            break
    return None


def body_of(data: bytes, summary: FileSummary) -> str:
    """The words of a line: of an overwritten one the last part, without label and colours."""
    return strip(segments(data[-4096:])[-1][1].decode(errors="replace"), summary.labels).body


def _says_end(body: str) -> bool:
    for p in table().finished:
        m = p.search(body)
        if m is None:
            continue
        counts = m.groups()
        if (
            counts
            and counts[0] is not None
            and not (counts[0] == counts[1] and int(counts[0]) >= 5 and _is_training_bar(body))
        ):
            continue
        return True
    return False


def _is_training_bar(body: str) -> bool:
    """A full bar ends a run only where it counts training: loading and tokenizing have bars too."""
    low = body.lower()
    return not any(
        w in low for w in ("shard", "map", "token", "download", "load", "generat", "files", "fetch", "eval", "warm")
    )
