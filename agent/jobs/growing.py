"""What grows while a job runs: a file that is appended to, and the pace of what is counted in it.

Whoever follows a live job does it with these: `doctor run`, `doctor watch` and the chat. Standard library alone.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import BinaryIO, Protocol

from ..core.own_files import regular

# ----------
# One file, known by its inode: what was appended, in order, through rotation, truncation and rewriting.

Identity = tuple[int, int]

MOST = 1 << 20  # bytes of a file taken at once
_MARK, _START = 64, 256  # bytes by which a file is known to be the same


class Reader(Protocol):
    """What makes something of the bytes. Keeps nothing of what it does not take."""

    whole: bool  # no byte may be passed over: the file is made of records

    def take(self, data: bytes, line: int | None, last: bool) -> int:
        """Read from the start of `data`, of which the first line has `line` lines before it; how many bytes."""
        ...

    def begin(self, rewritten: bool) -> None:
        """The file starts anew: cut short, written again with what it held, or another one under its name."""
        ...


@dataclass(slots=True)
class Tail:
    """Where the reading of one file stands.

    Attributes:
        identity: the file that is followed under whatever name; None: the one that bears the name, whichever it is.
        backlog: bytes that are read back; what lies before them is passed over,
        counted: with its lines counted if it is so many bytes at most.
        line: lines before `offset`; None where they were too many to count.
        until: where the file ended when it was first seen: what lies before is old.
    """

    name: str
    path: Path
    identity: Identity | None
    reader: Reader
    backlog: int = 32 << 20
    counted: int = 1 << 30
    offset: int = 0
    line: int | None = 0
    until: int = 0
    size: int = 0  # when it was last read to its end
    written: float = 0.0
    mark: bytes = b""
    start: bytes = b""
    was: tuple[bytes, int] = (b"", 0)  # how it began before it was cut, and how much of that was read
    _bearer: Identity | None = None  # of the name, where that is what is followed

    @property
    def old(self) -> bool:
        """Whether what is read next was there when the file was first seen."""
        return self.offset < self.until

    def is_at(self, path: Path) -> bool:
        """Whether a file of our inode holds what we read: the inode of one that was removed is given to another."""
        try:
            with os.fdopen(regular(path), "rb", buffering=0) as stream:
                stream.seek(max(0, self.offset - len(self.mark)))
                return (stream.read(len(self.mark)) or b"") == self.mark
        except (OSError, ValueError):
            return False

    def read(self, last: bool = False) -> int:
        """Read on, `MOST` bytes at most; how many are left.

        Raises:
            OSError, ValueError: it cannot be read.
        """
        with os.fdopen(regular(self.path), "rb", buffering=0) as stream:
            info = os.fstat(stream.fileno())
            found = (info.st_dev, info.st_ino)
            if self.identity not in (None, found):
                raise OSError(errno.ESTALE, "another file bears its name")
            if self._bearer not in (None, found):
                self._anew(False)
            self._bearer = found
            self._same(stream, info.st_size)
            self._pass_over(stream, info.st_size)
            stream.seek(self.offset)
            data = stream.read(min(MOST, info.st_size - self.offset)) or b""
            taken = self.reader.take(data, self.line, last and self.offset + len(data) >= info.st_size)
            self._move(data[:taken])
            self.size, self.written = info.st_size, info.st_mtime
            return info.st_size - self.offset if taken else 0

    def _move(self, taken: bytes) -> None:
        if len(self.start) < _START and self.offset < _START:
            self.start = (self.start[: self.offset] + taken[:_START])[:_START]
        self.offset += len(taken)
        if self.line is not None:
            self.line += taken.count(b"\n")
        self.mark = (self.mark + taken[-_MARK:])[-_MARK:]

    def _same(self, stream: BinaryIO, size: int) -> None:
        """Start anew where the bytes before our place are not those that we read."""
        cut = size < self.offset
        if not cut and self.mark:
            stream.seek(self.offset - len(self.mark))
            cut = stream.read(len(self.mark)) != self.mark
        if cut:
            stream.seek(0)
            self._anew(stream.read(len(self.start)) == self.start and size >= self.size)

    def _anew(self, again: bool) -> None:
        if not again:
            self.was, self.start = (self.start, self.offset), b""
        self.offset, self.line, self.mark, self.until = 0, 0, b"", 0
        self.reader.begin(again)

    def _pass_over(self, stream: BinaryIO, size: int) -> None:
        """What is too much to be read: its lines are counted at most."""
        end = size - self.backlog
        if self.reader.whole or end <= self.offset:
            return
        stream.seek(self.offset)
        left = end - self.offset
        counted = left <= self.counted and self.line is not None
        lines = self.line or 0
        while counted and left > 0 and (block := stream.read(min(left, 4 << 20))):
            lines += block.count(b"\n")
            left -= len(block)
        mark = min(end, _MARK)
        stream.seek(end - mark)
        self.mark = stream.read(mark) or b""
        self.offset, self.line = end, lines if counted else None


def line_end(data: bytes, longest: int) -> int:
    """Where the last whole line ends; a bar that is drawn over ends its lines with `\\r`, one without end counts too
    once it is as long as `longest`."""
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    return len(data) if not end and len(data) >= longest else end


# ----------
# How fast what is counted goes on, by the clock of whoever looks.


class Pace:
    """One thing that comes again and again: a counter that has another value, or lines where only that counts.

    Attributes:
        value: the newest; -1 before the first, which came `at` a time of the caller's clock.
        gaps: seconds between the last arrivals; `units`: the same for each one that was counted.
    """

    __slots__ = ("at", "gaps", "units", "value")

    def __init__(self, kept: int = 31) -> None:
        self.at: float | None = None
        self.value = -1.0
        self.gaps: deque[float] = deque(maxlen=kept)
        self.units: deque[float] = deque(maxlen=kept)

    def came(self, value: float, now: float, old: bool = False) -> None:
        """It came; `old`: before anybody looked, so that the time since then says nothing."""
        if self.at is not None and now > self.at and not old:
            gap, count = now - self.at, value - self.value
            self.gaps.append(gap)
            self.units.append(gap / count if count > 0 else gap)
        self.at, self.value = now, value

    @property
    def gap(self) -> float:
        """Median seconds between two arrivals; 0 where nobody knows yet."""
        return median(self.gaps) if self.gaps else 0.0

    @property
    def seconds(self) -> float | None:
        """Median seconds for each one."""
        return median(self.units) if self.units else None


def patience(least: float, *usual: tuple[float, float | None]) -> float:
    """Seconds without anything new that are nothing special: the most of `least` and so many times what is usual."""
    return max(least, *(times * (seconds or 0.0) for times, seconds in usual))


def span(seconds: float) -> str:
    """A length of time as people say it."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
