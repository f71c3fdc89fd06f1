"""Lines around given places of a file, with exact numbers, without reading all of a plain file again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from ...core.errors import ParseError
from ..run.files import LINE_LIMIT, Line, RunFile, blocks, open_regular, packing_of, utf16
from ..run.workspace import Workspace

if TYPE_CHECKING:
    from .logpass import FileSummary

WHOLE = 1 << 20  # bytes up to which a file with trouble in it is parsed from end to end
BEFORE, BEHIND = 1 << 11, 1 << 14  # bytes around a place of trouble that are parsed in larger files


def close_lines(ws: Workspace, summary: FileSummary, budget: int) -> Iterator[Line]:
    """The lines around trouble; all lines of a small file."""
    if summary.harvest.bytes <= min(WHOLE, budget):
        yield from ws.lines(summary.file)
        return
    spans = _spans(summary.anchors, budget)
    at = 0
    for line in lines_around(ws, summary.file, spans, dict(summary.anchors), BEFORE):
        while at < len(spans) and line.offset > spans[at][1]:
            at += 1
        if at >= len(spans):
            return
        if line.offset >= spans[at][0] - BEFORE:
            yield line


def _spans(anchors: list[tuple[int, int]], budget: int) -> list[tuple[int, int]]:
    """Stretches of bytes around anchors, merged; of too much the first and the last."""
    spans: list[tuple[int, int]] = []
    for offset, _ in sorted(set(anchors)):
        if spans and offset <= spans[-1][1] + BEFORE:
            spans[-1] = (spans[-1][0], offset + BEHIND)
        else:
            spans.append((offset, offset + BEHIND))
    total = sum(b - a for a, b in spans)
    if total <= budget:
        return spans
    return _ends(spans, budget // 2)


def _ends(spans: list[tuple[int, int]], half: int) -> list[tuple[int, int]]:
    head, left = [], half
    for a, b in spans:
        head.append((a, min(b, a + left)))
        left -= b - a
        if left <= 0:
            break
    tail, left = [], half
    for a, b in reversed(spans):
        tail.append((max(a, b - left), b))
        left -= b - a
        if left <= 0:
            break
    return sorted(set(head + tail))


def lines_around(
    ws: Workspace, file: RunFile, spans: list[tuple[int, int]], known: dict[int, int], before: int
) -> Iterator[Line]:
    """Lines of the spans and of `before` bytes ahead of each.

    Args:
        spans: `(start, end)` byte offsets, sorted.
        known: offset -> number of the line that starts there; holds the start of every span.
    """
    try:
        with open_regular(file.path) as raw:
            head = raw.read(4096) or b""
            if not packing_of(head) and not utf16(head):
                for start, end in spans:
                    yield from _seek(raw, start, end, known, before)
                return
        yield from _through(file, spans, before)
    except ParseError as e:
        ws.tell(file.name, str(e))


def _seek(raw, start: int, end: int, known: dict[int, int], before: int) -> Iterator[Line]:
    """One span of a plain file, numbered from the known line in it."""
    begin = max(start - before, 0)
    raw.seek(begin)
    data = raw.read(end - begin + LINE_LIMIT) or b""
    if begin:
        cut = data.find(b"\n", 0, start - begin) + 1
        begin, data = begin + cut, data[cut:]
    at, number = start, known.get(start)
    if number is None:  # a span that was shortened starts within the lines of a known one
        offsets = sorted(known)
        at = offsets[max(bisect_right(offsets, start) - 1, 0)]
        number = known[at] + _between(raw, at, start)
        at = start
    number -= data.count(b"\n", 0, max(at - begin, 0))
    offset = begin
    for part in data.split(b"\n"):
        if offset > end:
            return
        yield Line(number, offset, part[:LINE_LIMIT], len(part) > LINE_LIMIT)
        number += 1
        offset += len(part) + 1


def _between(raw, start: int, end: int) -> int:
    raw.seek(start)
    return (raw.read(max(end - start, 0)) or b"").count(b"\n")


def _through(file: RunFile, spans: list[tuple[int, int]], before: int) -> Iterator[Line]:
    """The same out of a packed file, which can only be read from its start."""
    from ..run.files import pieces

    at = 0
    for piece in pieces(blocks(file.path)):
        stop = piece.offset + len(piece.data)
        while at < len(spans) and spans[at][1] < piece.offset:
            at += 1
        if at >= len(spans):
            return
        if stop < spans[at][0] - before:
            continue
        number, offset = piece.lines + 1, piece.offset
        for part in piece.data.split(b"\n")[: None if not piece.data.endswith(b"\n") else -1]:
            yield Line(number, offset, part[:LINE_LIMIT], len(part) > LINE_LIMIT)
            number, offset = number + 1, offset + len(part) + 1


# ----------
# What stands around the lines that are to leave: a secret may be told by a line that is not shown.
#
# A line in the middle of a key, or the value below `name: DB_PASSWORD`, is harmless to look at. A redactor that has
# read the lines around it knows better, so these are read first.

NEARBY_BEFORE, AFTER = 6_000, 4_000  # bytes around a line; a key of 4,096 bits in armour is 3.3 kB
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
                for start, end in _spans_around(sorted(offsets)):
                    stream.seek(start)
                    data = stream.read(min(end - start, left))
                    left -= len(data)
                    yield data.decode(errors="replace")
        except (ParseError, OSError):
            continue  # it is gone, and so is what it held


def _spans_around(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Stretches of bytes around sorted offsets, joined where they overlap."""
    start = end = -1
    for offset in offsets:
        low, high = max(0, offset - NEARBY_BEFORE), offset + AFTER
        if low > end:
            if end > 0:
                yield start, end
            start = low
        end = max(end, high)
    if end > 0:
        yield start, end
