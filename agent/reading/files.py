"""Bytes of a run's files: opened safely, decompressed within bounds, cut into lines."""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..errors import ParseError

BLOCK = 1 << 20
LINE_LIMIT = 1 << 16  # bytes of one line that are looked at; the rest is passed over and counted


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file of the run.

    `name` is relative to the run (with `r2/` in front when there are several); `role` is one of log, config,
    metrics, checkpoint, data, code, environment, capture, other.
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


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file: number from 1 by counting newlines, byte offset, bytes without the newline."""

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
    except OSError as e:
        raise ParseError(f"cannot open: {e.strerror}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ParseError("not a regular file")
    return os.fdopen(fd, "rb", buffering=0)


def blocks(path: Path) -> Iterator[bytes]:
    """Decompressed content in blocks of about 1 MiB."""
    with open_regular(path) as raw:
        stream = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        while block := stream.read(BLOCK):
            yield block


def lines(path: Path) -> Iterator[Line]:
    """Every line of a file in order; a line over `LINE_LIMIT` is cut."""
    number, offset, rest = 0, 0, b""
    for block in blocks(path):
        parts = (rest + block).split(b"\n")
        rest = parts.pop()
        for part in parts:
            number += 1
            yield Line(number, offset, part[:LINE_LIMIT], len(part) > LINE_LIMIT)
            offset += len(part) + 1
    if rest:
        yield Line(number + 1, offset, rest[:LINE_LIMIT], len(rest) > LINE_LIMIT)
