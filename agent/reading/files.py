"""Bytes of a run's files: opened safely, decompressed within bounds, cut into lines."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..errors import ParseError
from .inflate import decoded

BLOCK = 1 << 20
LINE_LIMIT = 1 << 16  # bytes of one line that are looked at; the rest is passed over and counted
SIZELESS_LIMIT = 64 << 20  # of files that claim no size (as in /proc)

Tell = Callable[[str], None]


def _quiet(_why: str) -> None:
    """Nobody listens to what could not be read."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file of the run.

    `name` is relative to the run (with `r2/` in front when there are several); `role` is one of log, config,
    metrics, checkpoint, data, code, environment, capture, trace, note, record, other. `rank`, `host`, `attempt` and
    `variant` are what the file's name and folders tell.
    """

    name: str
    path: Path
    role: str
    size: int
    run: str = "r1"
    rank: int | None = None
    attempt: int | None = None
    variant: str | None = None
    good: bool = False
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file: number from 1 by counting newlines, byte offset, bytes without the newline.

    In a compressed or UTF-16 file offsets count decoded bytes.
    """

    number: int
    offset: int
    data: bytes
    cut: bool = False

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


def open_regular(path: Path) -> BinaryIO:
    """Open for reading, refusing anything that is not a regular file.

    Raises:
        ParseError: not a regular file, or not readable.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as e:
        raise ParseError(f"cannot open: {getattr(e, 'strerror', None) or e}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ParseError("not a regular file")
    return os.fdopen(fd, "rb", buffering=0)


def raw_blocks(path: Path, start: int = 0, tell: Tell = _quiet, size: int = BLOCK) -> Iterator[bytes]:
    """Bytes as they lie on disk from `start`, up to the size the file has when it is opened.

    A file that grows meanwhile is read as it was, one that shrinks or fails ends early and says so.

    Args:
        size: of a block.
    """
    with open_regular(path) as raw:
        left = (os.fstat(raw.fileno()).st_size or SIZELESS_LIMIT) - start
        try:
            if start:
                raw.seek(start)
            while left > 0 and (block := raw.read(min(size, left))):
                left -= len(block)
                yield block
        except OSError as e:
            tell(f"reading stopped: {e.strerror}")
            return
    if left > 0 and left < SIZELESS_LIMIT - start:
        tell("shrank while it was read")


def blocks(path: Path, tell: Tell = _quiet) -> Iterator[bytes]:
    """Content in blocks of about 1 MiB: gz, zst, bz2 and xz decompressed within bounds, UTF-16 as UTF-8.

    Args:
        tell: hears one line about what could not be read (a truncated archive, a bomb); what was read stands.
    """
    return decoded(raw_blocks(path, tell=tell), tell)


def head(path: Path, size: int) -> bytes:
    """The first decompressed bytes, for which no more of the file is read than they take."""
    data = bytearray()
    for block in decoded(raw_blocks(path, size=max(size, 1024)), _quiet):
        data += block
        if len(data) >= size:
            break
    return bytes(data[:size])


def holds(path: Path, literals: tuple[bytes, ...]) -> bool:
    """Whether any of these short texts is in a file; far cheaper than to read its lines."""
    overlap, rest = max(map(len, literals)) - 1, b""
    for block in blocks(path):
        data = rest + block
        if any(text in data for text in literals):
            return True
        rest = data[-overlap:] if overlap else b""
    return False


def lines(path: Path, tell: Tell = _quiet) -> Iterator[Line]:
    """Every line of a file in order; of a line over `LINE_LIMIT` only the start is kept, in bounded memory."""
    number, offset, rest, lost = 0, 0, b"", 0
    for block in blocks(path, tell):
        parts = block.split(b"\n")
        for part in parts[:-1]:
            number += 1
            data = rest + part
            size = len(data) + lost
            yield Line(number, offset, data[:LINE_LIMIT], size > LINE_LIMIT)
            offset += size + 1
            rest, lost = b"", 0
        rest += parts[-1]
        if len(rest) > LINE_LIMIT:
            lost += len(rest) - LINE_LIMIT
            rest = rest[:LINE_LIMIT]
    if rest:
        yield Line(number + 1, offset, rest, lost > 0)
