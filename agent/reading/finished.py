"""The line near the end of a log that says that the end was reached."""

from __future__ import annotations

from .anchors import table
from .files import Line
from .lines import segments, strip
from .summaries import FileSummary


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
