"""Whether the last lines of a log say that the end was reached."""

from __future__ import annotations

from collections.abc import Iterable

from ..reading.anchors import table
from ..reading.lines import segments, strip

_BAR_LEAST = 5  # steps; a shorter bar counts other things


def says_end(lines: Iterable[bytes]) -> str:
    """The last line that says so; empty where none does."""
    for data in reversed(list(lines)):
        body = strip(segments(data)[-1][1].decode(errors="replace")).body
        for pattern in table().finished:
            m = pattern.search(body)
            if m is None:
                continue
            counts = m.groups()
            if counts and counts[0] is not None and not (counts[0] == counts[1] and int(counts[0]) >= _BAR_LEAST):
                continue
            return body.strip()[:160]
    return ""
