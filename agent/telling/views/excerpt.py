"""A file of a run by pieces: lines before and after any place, however large the file is.

    page = Excerpt(file, {offset: number}).opened()
    page.after(offset, number, 40)     # [Row, ...]
    page.before(offset, number, 40)

A plain file is read in place. A packed or UTF-16 one is unpacked once into a nameless file of the system's temporary
folder, within the bounds of `reading/run/files.py`; offsets count what it holds. All of it may block on a slow disk.
"""

from __future__ import annotations

import os
import threading
import weakref
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from ...core.errors import ParseError
from ...reading.run.files import RunFile, blocks, open_regular, packing_of, utf16

if TYPE_CHECKING:
    from ...core.report import CitedEvidence

SHOWN = 4_000  # characters of a line that are handed over
LONGEST = 64 << 20  # bytes in which the end of a line is looked for; what is longer goes on in a row of its own
_BLOCK, _KEPT = 1 << 18, 16  # bytes of a block, and how many stay in memory
_AT_ONCE = 16 << 20  # bytes after which no further row is added: huge lines come a few at a time
_STRIDE = 1 << 20  # bytes of one step when a whole file is gone through

Progress = Callable[[int, int], None]  # bytes gone through, and of how many


class Cancelled(Exception):
    """Whoever asked set the event that stops it."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line, or a part of one that is longer than `LONGEST`.

    Attributes:
        number: counted from 1; None where nobody has counted the lines before it.
        text: its start, decoded with replacement; `cut` where there is more.
        size: its bytes, without the newline.
        end: where the next row begins.
        ended: whether a newline ends it.
    """

    offset: int
    number: int | None
    text: str
    size: int
    end: int
    cut: bool = False
    ended: bool = True


@dataclass(slots=True)
class Watch:
    """How far a long reading has come, and the wish to end it. Written by one thread and read by another."""

    done: int = 0
    total: int = 0
    stop: threading.Event | None = None

    def passed(self, done: int, total: int) -> None:
        """Note how far it is; raises `Cancelled` where it is to end."""
        self.done, self.total = done, total
        if self.stop is not None and self.stop.is_set():
            raise Cancelled


class Excerpt:
    """Rows of one file. Open it once; then any thread may read.

    Attributes:
        size: bytes when it was last looked at.
        notes: what could not be unpacked.
    """

    def __init__(self, file: RunFile, known: Mapping[int, int] | None = None) -> None:
        self.file = file
        self.size = 0
        self.notes: list[str] = []
        self._fd = -1
        self._identity: tuple[int, int] = (0, 0)
        self._most = 0
        self._unpacked = False
        self._known: list[tuple[int, int]] = sorted({0: 1, **(known or {})}.items())
        self._cache: dict[int, bytes] = {}
        self._lock = threading.Lock()

    def opened(self, watch: Watch | None = None) -> Excerpt:
        """The same, ready to be read.

        Raises:
            ParseError: it cannot be opened, or is no regular file.
            Cancelled: while it was unpacked.
        """
        with open_regular(self.file.path) as raw:
            info = os.fstat(raw.fileno())
            self._identity, self._most = (info.st_dev, info.st_ino), max(info.st_size, self.file.size)
            head = os.pread(raw.fileno(), 4096, 0)
            self._unpacked = bool(packing_of(head) or utf16(head))
            self._fd = self._unpack(watch or Watch()) if self._unpacked else os.dup(raw.fileno())
        weakref.finalize(self, os.close, self._fd)
        if self._measure() < self._most and not self._unpacked:
            self._forget()
        return self

    def _unpack(self, watch: Watch) -> int:
        with TemporaryFile() as into:
            done = 0
            try:
                for block in blocks(self.file.path, self.notes.append):
                    into.write(block)
                    done += len(block)
                    watch.passed(done, 0)
                into.flush()
            except OSError as e:
                self.notes.append(f"only {done:,} bytes could be unpacked: {e.strerror or e}")
            return os.dup(into.fileno())

    def changed(self) -> str:
        """What happened to the file since it was opened, or since the run was read; empty: nothing."""
        try:
            now = self.file.path.stat()
        except OSError as e:
            return f"the file is gone ({e.strerror or e}); what could be read before is shown"
        if (now.st_dev, now.st_ino) != self._identity:
            return "another file has taken this name since; the old one is shown"
        if now.st_size < self._most:
            return f"the file has become shorter: {now.st_size:,} bytes of {self._most:,}"
        self._most = now.st_size
        return ""

    def says(self, e: CitedEvidence) -> bool:
        """Whether the line that was cited still stands at its place."""
        if e.offset is None:
            return True
        row = self.row(e.offset, e.line)
        begins = e.offset == 0 or self._byte(e.offset - 1) == b"\n"
        wanted = e.text.rstrip("\r\ufffd")[:SHOWN]
        return row is not None and begins and row.text.startswith(wanted[: len(row.text)] if row.cut else wanted)

    def row(self, offset: int, number: int | None, until: int | None = None) -> Row | None:
        """The row that begins at an offset and ends at `until` at the latest; None at the end of the file."""
        if offset >= self._measure():
            return None
        most = min(offset + LONGEST + 1, self.size)
        at = self._find(offset, most)
        ended, stop = at >= 0, at if at >= 0 else min(most, offset + LONGEST)
        if until is not None and stop + ended > until:
            ended, stop = False, until
        data = self._bytes(offset, min(stop, offset + 4 * SHOWN)).rstrip(b"\r")
        whole = data.decode(errors="replace")
        cut = len(whole) > SHOWN or stop - offset > 4 * SHOWN
        return Row(offset, number, whole[:SHOWN], stop - offset, stop + ended, cut, ended)

    def after(self, offset: int, number: int | None, count: int) -> list[Row]:
        """Rows from the one that begins at `offset`, which has this number, downwards."""
        rows: list[Row] = []
        begin = offset
        while len(rows) < count and offset - begin < _AT_ONCE and (row := self.row(offset, number)) is not None:
            rows.append(row)
            offset = row.end
            number = None if number is None else number + row.ended
        return rows

    def before(self, offset: int, number: int | None, count: int) -> list[Row]:
        """Rows before the one that begins at `offset`, in the order of the file."""
        rows: list[Row] = []
        begin = offset
        while len(rows) < count and offset > 0 and begin - offset < _AT_ONCE:
            ended = self._byte(offset - 1) == b"\n"
            number = None if number is None else number - ended
            start = self._start(offset - ended)
            row = self.row(start, number, offset)
            if row is None:
                break
            rows.append(row)
            offset = start
        return rows[::-1]

    def ending(self, count: int) -> list[Row]:
        """The last rows of the file, numbered where it is small or was counted."""
        size = self._measure()
        near = self._nearest(size)
        number = near[1] + self._counted(near[0], size, Watch()) if size - near[0] <= _STRIDE else None
        return self.before(size, number, count)

    def number_at(self, offset: int, watch: Watch) -> int:
        """The number of the line that begins at an offset, counted from the nearest line whose number is known."""
        at, number = self._nearest(offset)
        number += self._counted(at, offset, watch) if at <= offset else -self._counted(offset, at, watch)
        self._note(offset, number)
        return number

    def place_of(self, number: int, watch: Watch) -> tuple[int, int]:
        """Offset and number of a line; the last one's where the file has fewer."""
        offset, counted = self._known[max(bisect_right(self._known, number, key=lambda k: k[1]) - 1, 0)]
        size = self._measure()
        while counted < number and offset < size and (data := self._direct(offset, _STRIDE)):
            here, at = _newlines(data), -1
            if counted + here < number:
                counted, offset = counted + here, offset + len(data)
                watch.passed(offset, size)
                continue
            for _ in range(number - counted):
                at = data.index(b"\n", at + 1)
            counted, offset = number, offset + at + 1
        if offset >= size and size:
            rows = self.before(size, None, 1)
            offset = rows[0].offset if rows else 0
            counted = self.number_at(offset, watch)
        self._note(offset, counted)
        return offset, counted

    def find(self, text: str, offset: int, watch: Watch) -> int | None:
        """Where the first line from `offset` on that holds a text begins. Without capitals, capitals do not count."""
        wanted = text.encode()
        loose = text == text.lower()
        size, rest = self._measure(), b""
        while offset < size:
            data = self._direct(offset, _STRIDE)
            if not data:
                return None
            both = rest + (data.lower() if loose else data)
            if (at := both.find(wanted)) >= 0:
                return self._start(offset - len(rest) + at)
            offset += len(data)
            rest = both[-(len(wanted) - 1) :] if len(wanted) > 1 else b""
            watch.passed(offset, size)
        return None

    def lines_back(self, offset: int, most: int) -> Iterator[Row]:
        """Rows from the one that begins at `offset` upwards, until `most` bytes were passed."""
        row, low = self.row(offset, None), offset - most
        while row is not None:
            yield row
            if row.offset <= max(low, 0):
                return
            row = next(iter(self.before(row.offset, None, 1)), None)

    def lines_on(self, offset: int, most: int) -> Iterator[Row]:
        """The same downwards."""
        high = offset + most
        while offset < high and (row := self.row(offset, None)) is not None:
            yield row
            offset = row.end

    def line_start(self, offset: int) -> int:
        """Where the line that holds an offset begins."""
        return self._start(offset)

    def measured(self) -> int:
        """Its bytes now."""
        return self._measure()

    def _measure(self) -> int:
        if self._fd < 0:
            raise ParseError("not opened")
        before, self.size = self.size, os.fstat(self._fd).st_size
        if self.size < before:  # cut where it lies: what is in memory may be gone
            self._forget()
        return self.size

    def _forget(self) -> None:
        """It is not what it was: neither bytes nor the numbers of lines hold."""
        with self._lock:
            self._cache.clear()
        self._known = [(0, 1)]

    def _nearest(self, offset: int) -> tuple[int, int]:
        at = bisect_right(self._known, (offset, 1 << 62))
        near = self._known[max(at - 1, 0) : at + 1]
        return min(near, key=lambda k: abs(k[0] - offset))

    def _note(self, offset: int, number: int) -> None:
        if (offset, number) not in self._known:
            insort(self._known, (offset, number))

    def _counted(self, start: int, end: int, watch: Watch) -> int:
        total, at = 0, start
        while at < end and (data := self._direct(at, min(_STRIDE, end - at))):
            total += _newlines(data)
            at += len(data)
            watch.passed(at - start, end - start)
        return total

    def _direct(self, offset: int, count: int) -> bytes:
        return os.pread(self._fd, count, offset)

    def _block(self, index: int) -> bytes:
        with self._lock:
            if index in self._cache:
                return self._cache[index]
        data = self._direct(index * _BLOCK, _BLOCK)
        if len(data) == _BLOCK:  # the last one may grow
            with self._lock:
                self._cache[index] = data
                while len(self._cache) > _KEPT:
                    self._cache.pop(next(iter(self._cache)))
        return data

    def _bytes(self, start: int, end: int) -> bytes:
        data = bytearray()
        while start < end:
            part = self._block(start // _BLOCK)[start % _BLOCK : start % _BLOCK + end - start]
            if not part:
                break
            data += part
            start += len(part)
        return bytes(data)

    def _byte(self, offset: int) -> bytes:
        return self._bytes(offset, offset + 1)

    def _find(self, start: int, end: int) -> int:
        """The first newline of a stretch; -1: none."""
        while start < end:
            block, begin = self._block(start // _BLOCK), start // _BLOCK * _BLOCK
            if (at := block.find(b"\n", start - begin, end - begin)) >= 0:
                return begin + at
            start = begin + _BLOCK
        return -1

    def _start(self, end: int) -> int:
        """Where the line begins whose last byte is before `end`; at most `LONGEST` before."""
        low = max(0, end - LONGEST)
        while end > low:
            begin = (end - 1) // _BLOCK * _BLOCK
            at = self._block(begin // _BLOCK).rfind(b"\n", max(low - begin, 0), end - begin)
            if at >= 0:
                return begin + at + 1
            end = begin
        return low


def _newlines(data: bytes) -> int:
    """How many newlines there are; `bytes.count` takes four times as long."""
    import numpy as np

    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == 10))


# ----------
# A log line where there is little room for it.

_READ = 2_000  # characters that are looked at; a row shows fewer


def without_head(text: str) -> str:
    """A line without the time, rank and level that its logger put first; all of it where nothing else is left."""
    from ...reading.run.lines import strip

    text = text[:_READ].lstrip()
    body = strip(text).body
    at = text.find(body)
    return (text[at:] if at >= 0 else body).strip() or text
