"""Pieces of a file about a line: what stands before a failure, what follows the head of a dump."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ParseError
from .anchor_lines import Hit, anchored
from .files import LINE_LIMIT, Line, RunFile, open_regular

if TYPE_CHECKING:
    from ..workspace import Workspace

WHOLE = 1 << 20  # files up to this size are read whole
WINDOWS = 48  # places looked at in a larger one


def around(ws: Workspace, hit: Hit, before: int = 24 << 10, after: int = 2 << 10) -> list[Line]:
    """The lines about a hit, itself included, within so many bytes before and after it.

    A plain file is read at the place; one whose offsets count decoded bytes (packed, UTF-16) from its start.
    """
    base = max(0, hit.line.offset - before)
    end = hit.line.offset + len(hit.line.data) + after
    data = _at(hit.file, base, end)
    here = hit.line.offset - base
    if data[here : here + len(hit.line.data)] != hit.line.data:
        data = _decoded(ws, hit.file, base, end)
    return _cut(data, base, hit.line)


def excerpt(ws: Workspace, file: RunFile, topic: str, after: int = 32 << 10) -> list[Line]:
    """A small file whole; of a larger one the pieces from each hit of the topic on, without overlaps."""
    if file.size <= WHOLE:
        return list(ws.lines(file))
    lines: list[Line] = []
    for hit in [h for h in anchored(ws).of(topic, good=True) if h.file.name == file.name][:WINDOWS]:
        if not lines or hit.line.number > lines[-1].number:
            last = lines[-1].number if lines else 0
            lines += [x for x in around(ws, hit, 512, after) if x.number > last]
    return lines


def _at(file: RunFile, base: int, end: int) -> bytes:
    try:
        with open_regular(file.path) as raw:
            raw.seek(base)
            return raw.read(end - base) or b""
    except (OSError, ParseError):  # the file went away since the pass
        return b""


def _decoded(ws: Workspace, file: RunFile, base: int, end: int) -> bytes:
    at, kept = 0, bytearray()
    for block in ws.blocks(file):
        kept += block[max(0, base - at) : max(0, end - at)]
        at += len(block)
        if at >= end:
            break
    return bytes(kept)


def _cut(data: bytes, base: int, at: Line) -> list[Line]:
    parts, offset = data.split(b"\n"), base
    if base:  # the first piece is the end of a line
        offset += len(parts[0]) + 1
        parts = parts[1:]
    lines: list[Line] = []
    for part in parts:
        lines.append(Line(0, offset, part[:LINE_LIMIT], len(part) > LINE_LIMIT))
        offset += len(part) + 1
    index = next((i for i, line in enumerate(lines) if line.offset == at.offset), None)
    if index is None:
        return [at]
    if lines and not lines[-1].data:
        lines.pop()
    return [Line(at.number + i - index, x.offset, x.data, x.cut) for i, x in enumerate(lines)]
