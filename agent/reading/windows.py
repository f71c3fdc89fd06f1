"""Lines around given places of a file, with exact numbers, without reading all of a plain file again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import ParseError
from .files import LINE_LIMIT, Line, RunFile, blocks, open_regular
from .inflate import packing_of, utf16

if TYPE_CHECKING:
    from ..workspace import Workspace


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
    from .pieces import pieces

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
