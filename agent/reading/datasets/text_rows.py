"""Rows of text formats as a stream: JSON lines, JSON arrays, CSV and plain lines, each with the line it starts on."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ... import deadline
from ..files import Line, RunFile
from .rows import Fault, Row

if TYPE_CHECKING:
    from ...workspace import Workspace

LINE = 8 << 20  # bytes of one line that are parsed
SHOWN = 4097  # bytes of it that are kept
COLUMNS = 4000
FAULTS = 50  # of one file

Tell = Callable[[Fault], None]


def long_lines(ws: Workspace, file: RunFile) -> Iterator[Line]:
    """Every line of a file; of one over `LINE` bytes only the start is kept (`cut`)."""
    number, offset, parts, held, lost = 0, 0, [], 0, 0
    for block in ws.blocks(file):
        deadline.check()
        pieces = block.split(b"\n")
        for piece in pieces[:-1]:
            number += 1
            data = b"".join((*parts, piece)) if parts else piece
            size = len(data) + lost
            yield Line(number, offset, data[:LINE], size > LINE)
            offset += size + 1
            parts, held, lost = [], 0, 0
        rest = pieces[-1]
        room = max(0, LINE - held)
        parts.append(rest[:room])
        held += min(room, len(rest))
        lost += max(0, len(rest) - room)
    if held or lost:
        yield Line(number + 1, offset, b"".join(parts), lost > 0)


def json_rows(lines: Iterator[Line], file: RunFile, tell: Tell, wanted: Callable[[int], bool]) -> Iterator[Row]:
    """Objects of a JSON-lines file. A line that is no object is told and passed over.

    Args:
        wanted: by the number of a record, whether it is to be parsed; others are only looked at from outside.
    """
    count = 0
    for line in lines:
        data = line.data.strip(b" \t\r\xef\xbb\xbf" if line.number == 1 else b" \t\r")
        if not data:
            continue
        number, count = count, count + 1
        whole = data[:1] == b"{" and data[-1:] == b"}" and not line.cut
        if whole and not wanted(number):
            continue
        fields = json_object(data) if whole else None
        if fields is None:
            tell(Fault(file, "torn_records", _why_not(line, data), line=_kept(line)))
            continue
        yield Row(_kept(line), fields, file, number, "", len(line.data))


def _why_not(line: Line, data: bytes) -> str:
    if line.cut:
        return f"a line over {LINE >> 20} MiB"
    if b"\0" in data:
        return "NUL bytes in the line"
    return "not a JSON object" if data[:1] != b"{" else "the JSON object does not parse"


def json_object(data: bytes) -> dict[str, Any] | None:
    """The object that the bytes are; None where they are none."""
    try:
        value = json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _kept(line: Line) -> Line:
    return Line(line.number, line.offset, line.data[:SHOWN], line.cut or len(line.data) > SHOWN)


def table_rows(
    lines: Iterator[Line], file: RunFile, tell: Tell, wanted: Callable[[int], bool], sep: str
) -> Iterator[Row]:
    """Rows of a CSV under its header, each with the line it starts on. A row of another width is told."""
    feed = _Feed(lines)
    names: list[str] | None = None
    number = 0
    while True:
        reader = csv.reader(feed, delimiter=sep)
        try:
            for cells in reader:
                start = feed.starts[0] if feed.starts else None
                size = feed.take()
                if start is None or not cells:
                    continue
                if names is None:
                    names = [c.strip().lstrip("\ufeff") for c in cells[:COLUMNS]]
                    if len(cells) > COLUMNS:
                        tell(Fault(file, "torn_records", f"{len(cells)} columns, {COLUMNS} are read", line=start))
                    continue
                number += 1
                if len(cells) != len(names) and len(names) < COLUMNS:
                    tell(Fault(file, "torn_records", f"{len(cells)} cells under {len(names)} columns", line=start))
                elif wanted(number - 1):
                    yield Row(start, dict(zip(names, cells, strict=False)), file, number - 1, "", size)
            return
        except csv.Error as e:
            tell(Fault(file, "torn_records", f"no CSV row: {e}"[:200], line=feed.starts[0] if feed.starts else None))
            feed.take()


class _Feed:
    """Lines for a CSV reader, which remembers those that the row under way began with."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self.starts: list[Line] = []
        self._size = 0

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        if len(self.starts) < 1:
            self.starts.append(_kept(line))
        self._size += len(line.data)
        return line.data.decode(errors="replace").replace("\0", "\ufffd") + "\n"

    def take(self) -> int:
        """Forget the row; its bytes."""
        size, self._size = self._size, 0
        self.starts.clear()
        return size


def plain_rows(lines: Iterator[Line], file: RunFile, wanted: Callable[[int], bool]) -> Iterator[Row]:
    """Lines of plain text as records with one field `text`; blank lines are passed over."""
    number = 0
    for line in lines:
        if not line.data.strip():
            continue
        number += 1
        if wanted(number - 1):
            yield Row(_kept(line), {"text": line.text}, file, number - 1, "", len(line.data))
