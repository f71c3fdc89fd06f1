"""One file that grows, known by its inode: what was appended, in order, through rotation, truncation and rewriting."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from ..errors import ParseError
from ..reading.files import open_regular

Identity = tuple[int, int]

MOST = 1 << 20  # bytes of a file taken at once
BACKLOG = 32 << 20  # bytes that are read back; what lies before them is passed over
_COUNTED = 1 << 30  # bytes that are passed over with their lines counted
_MARK, _START = 64, 256  # bytes by which a file is known to be the same


class Reader(Protocol):
    """What makes points and lines of bytes. Keeps nothing of what it does not take."""

    whole: bool  # no byte may be passed over: the file is made of records

    def take(self, data: bytes, line: int | None, last: bool) -> int:
        """Read from the start of `data`, of which the first line has `line` lines before it; how many bytes."""
        ...

    def begin(self, rewritten: bool) -> None:
        """The file starts anew: cut short, or written again with what it held."""
        ...


@dataclass(slots=True)
class Tail:
    """Where the reading of one file stands.

    Attributes:
        line: lines before `offset`; None where they were too many to count.
        until: where the file ended when it was first seen: what lies before is old.
    """

    name: str
    path: Path
    identity: Identity
    reader: Reader
    offset: int = 0
    line: int | None = 0
    until: int = 0
    size: int = 0  # when it was last read to its end
    written: float = 0.0
    mark: bytes = b""
    start: bytes = b""
    was: tuple[bytes, int] = (b"", 0)  # how it began before it was cut, and how much of that was read

    @property
    def old(self) -> bool:
        """Whether what is read next was there when the file was first seen."""
        return self.offset < self.until

    def is_at(self, path: Path) -> bool:
        """Whether a file of our inode holds what we read: the inode of one that was removed is given to another."""
        try:
            with open_regular(path) as stream:
                stream.seek(max(0, self.offset - len(self.mark)))
                return (stream.read(len(self.mark)) or b"") == self.mark
        except (ParseError, OSError):
            return False

    def read(self, last: bool = False) -> int:
        """Read on, `MOST` bytes at most; how many are left.

        Raises:
            ParseError, OSError: it cannot be read.
        """
        with open_regular(self.path) as stream:
            info = os.fstat(stream.fileno())
            if (info.st_dev, info.st_ino) != self.identity:
                raise ParseError("another file bears its name")
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
        if not cut:
            return
        stream.seek(0)
        again = stream.read(len(self.start)) == self.start and size >= self.size
        if not again:
            self.was, self.start = (self.start, self.offset), b""
        self.offset, self.line, self.mark, self.until = 0, 0, b"", 0
        self.reader.begin(again)

    def _pass_over(self, stream: BinaryIO, size: int) -> None:
        """What is too much to be read: its lines are counted at most."""
        end = size - BACKLOG
        if self.reader.whole or end <= self.offset:
            return
        stream.seek(self.offset)
        left = end - self.offset
        counted = left <= _COUNTED and self.line is not None
        lines = self.line or 0
        while counted and left > 0 and (block := stream.read(min(left, 4 << 20))):
            lines += block.count(b"\n")
            left -= len(block)
        stream.seek(end - _MARK)
        self.mark = stream.read(_MARK) or b""
        self.offset, self.line = end, lines if counted else None


def copied(tails: list[Tail], name: str, start: bytes) -> int | None:
    """How much of a new file was read under another name: `x.log.1`, copied from `x.log` before that was cut."""
    for tail in tails:
        if not name.startswith((f"{tail.name}.", f"{tail.name}-")):
            continue
        for known, read in ((tail.start, tail.offset), tail.was):
            if len(known) >= 16 and start.startswith(known):
                return read
    return None
