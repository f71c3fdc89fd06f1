"""Records of a JSON array as a stream: found by brackets, so that any array needs the memory of one record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from ... import deadline
from ..files import Line, RunFile
from .rows import Fault, Row
from .text_rows import LINE, SHOWN, Tell, json_object

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
