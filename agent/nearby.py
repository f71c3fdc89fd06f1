"""What stands around the lines that are to leave: a secret may be told by a line that is not shown.

A line in the middle of a key, or the value below `name: DB_PASSWORD`, is harmless to look at. A redactor that has read
the lines around it knows better, so these are read first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from .errors import ParseError
from .reading.files import open_regular
from .workspace import Workspace

BEFORE, AFTER = 6_000, 4_000  # bytes around a line; a key of 4,096 bits in armour is 3.3 kB
MOST = 8 << 20  # bytes in all


class Placed(Protocol):
    """What stands on a line of a file: evidence, also as a report cites it."""

    @property
    def kind(self) -> str: ...

    @property
    def file(self) -> str | None: ...

    @property
    def offset(self) -> int | None: ...


def nearby(ws: Workspace, evidence: Iterable[Placed]) -> Iterator[str]:
    """Texts around lines of evidence, overlapping ones joined.

    Packed files are passed: offsets count what they hold.
    """
    paths = {f.name: f.path for f in ws.files}
    places: dict[str, list[int]] = {}
    for e in evidence:
        if e.kind == "line" and e.offset is not None and e.file in paths:
            places.setdefault(e.file, []).append(e.offset)
    left = MOST
    for name, offsets in places.items():
        try:
            with open_regular(paths[name]) as stream:
                for start, end in _spans(sorted(offsets)):
                    stream.seek(start)
                    data = stream.read(min(end - start, left))
                    left -= len(data)
                    yield data.decode(errors="replace")
        except (ParseError, OSError):
            continue  # it is gone, and so is what it held


def _spans(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Stretches of bytes around sorted offsets, joined where they overlap."""
    start = end = -1
    for offset in offsets:
        low, high = max(0, offset - BEFORE), offset + AFTER
        if low > end:
            if end > 0:
                yield start, end
            start = low
        end = max(end, high)
    if end > 0:
        yield start, end
