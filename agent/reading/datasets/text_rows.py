"""Rows of text formats as a stream: JSON lines, JSON arrays, CSV and plain lines, each with the line it starts on."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...core import deadline
from ..run.files import Line, RunFile
from .dataset_files import Fault, Row

if TYPE_CHECKING:
    from ..run.workspace import Workspace

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


# ----------
# Records of a JSON array as a stream: found by brackets, so that any array needs the memory of one record.

DEPTH = 200  # of brackets within each other

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|"|[{}\[\]]', re.DOTALL)
_CLOSES = {0x7D: 0x7B, 0x5D: 0x5B}  # } closes {, ] closes [
_OPEN, _LIST = 0x7B, 0x5B


def array_rows(blocks: Iterable[bytes], file: RunFile, tell: Tell, wanted: Callable[[int], bool]) -> Iterator[Row]:
    """Objects of the first array of objects, also one on a single line or under a key of an object."""
    scan = _Scan()
    number = 0
    for block in blocks:
        deadline.check()
        scan.feed(block)
        for start, end in scan.records():
            if wanted(number):
                fields = json_object(scan.held[start:end])
                line = scan.line(start)
                if fields is None:
                    tell(Fault(file, "torn_records", "the JSON object does not parse", line=line))
                else:
                    yield Row(line, fields, file, number, "", end - start)
            number += 1
        if scan.broken:
            break
        scan.drop()
    if scan.broken or scan.stack or not number:
        said = scan.broken or ("the array ends in the middle" if scan.stack else "no array of records")
        tell(Fault(file, "torn_records", f"{said}, after {number} records", line=scan.line(len(scan.held))))


class _Scan:
    """Brackets of the bytes seen so far, and the bytes of the record under way."""

    def __init__(self) -> None:
        self.held = b""
        self.stack: list[int] = []
        self.broken = ""
        self._at = 0  # scanned up to here
        self._start = -1  # of the record under way
        self._level = 0  # brackets around a record, once the first is seen
        self._offset = 0  # of held[0] in the file
        self._number = 1  # line of held[0]
        self._head = b""  # what of that line stands before held[0]
        self._head_at = 0  # where that line begins
        self._begin, self._end = 0, -1  # in `held`, of the line that was asked for last; -1 where not known
        self._asked = 1  # its number

    def feed(self, block: bytes) -> None:
        """More bytes of the file."""
        self.held += block
        self._end = -1

    def records(self) -> Iterator[tuple[int, int]]:
        """Start and end in `held` of every record that is complete by now."""
        for m in _TOKEN.finditer(self.held, self._at):
            mark = self.held[m.start()]
            if mark == 0x22:
                if m.end() == m.start() + 1:
                    self._at = m.start()  # the string goes on in the next block
                    break
            elif mark in (_OPEN, _LIST):
                self._open(mark, m.start())
            elif not self.stack or self.stack.pop() != _CLOSES[mark]:
                self.broken = "brackets that do not match"
                return
            elif self._start >= 0 and len(self.stack) == self._level:
                start, self._start = self._start, -1
                yield start, m.end()
            self._at = m.end()
            if len(self.stack) > DEPTH:
                self.broken = f"more than {DEPTH} brackets within each other"
                return
        held = len(self.held) - (self._start if self._start >= 0 else self._at)
        if held > LINE:
            self.broken = f"a record over {LINE >> 20} MiB"

    def _open(self, mark: int, at: int) -> None:
        if mark == _OPEN and self.stack and self.stack[-1] == _LIST and self._level in (0, len(self.stack)):
            self._level = len(self.stack)
            self._start = at
        self.stack.append(mark)

    def line(self, at: int) -> Line:
        """The line that holds the byte at `at`, as far as it has been read."""
        if not self._begin <= at <= self._end:
            self._seek(at)
        begin, end = self._begin, self._end
        rest = self.held[begin : min(end, begin + SHOWN + 1)]
        data = rest if begin else self._head + rest[:SHOWN]
        offset = self._offset + begin if begin else self._head_at
        return Line(self._asked, offset, data[:SHOWN], end == len(self.held) or len(data) > SHOWN)

    def _seek(self, at: int) -> None:
        """Go on to the line of a byte; records come in their order, so that no byte is counted twice."""
        since = self._begin if at >= self._begin else 0
        passed = self.held.count(b"\n", since, at)
        self._asked = (self._asked if since else self._number) + passed
        self._begin = self.held.rfind(b"\n", since, at) + 1 if passed else since
        end = self.held.find(b"\n", at)
        self._end = end if end >= 0 else len(self.held)

    def drop(self) -> None:
        """Forget what is no longer needed."""
        keep = self._start if self._start >= 0 else min(self._at, len(self.held))
        gone = self.held[:keep]
        if b"\n" in gone:
            begin = gone.rfind(b"\n") + 1
            self._head, self._head_at = gone[begin:][:SHOWN], self._offset + begin
            self._number += gone.count(b"\n")
        else:
            self._head = (self._head + gone)[:SHOWN]
        self.held = self.held[keep:]
        self._offset += keep
        self._at -= keep
        self._begin, self._end, self._asked = 0, -1, self._number
        if self._start >= 0:
            self._start = 0
