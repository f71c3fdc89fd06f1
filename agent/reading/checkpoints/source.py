"""Bytes of an open file by position. Never mapped: a mapped file that shrinks kills the process that reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import ParseError
from ..files import RunFile, open_regular
from .parts import Damaged


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes `start` to `start + size` of an open file; positions within it count from 0."""

    fd: int
    start: int
    size: int

    def read(self, at: int, count: int) -> bytes:
        """Exactly `count` bytes.

        Raises:
            Damaged: they lie outside the window, or the file shrank or failed.
        """
        if at < 0 or count < 0 or at + count > self.size:
            raise Damaged("truncated", f"bytes {at} to {at + count} are past the end ({self.size} bytes)")
        parts: list[bytes] = []
        place = self.start + at
        while count > 0:
            try:
                part = os.pread(self.fd, min(count, 1 << 26), place)
            except OSError as e:
                raise Damaged("unreadable", f"reading failed: {e.strerror}") from None
            if not part:
                raise Damaged("truncated", f"the file ends at {place}: it became shorter while it was read")
            parts.append(part)
            place += len(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def part(self, at: int, size: int) -> Window:
        """A window inside this one."""
        if at < 0 or size < 0 or at + size > self.size:
            raise Damaged("truncated", f"bytes {at} to {at + size} are past the end ({self.size} bytes)")
        return Window(self.fd, self.start + at, size)


@contextmanager
def opened(file: RunFile) -> Iterator[Window]:
    """The whole file, closed afterwards.

    Raises:
        Damaged: it cannot be opened.
    """
    try:
        handle = open_regular(file.path)
    except ParseError as e:
        raise Damaged("unreadable", str(e)) from None
    with handle:
        yield Window(handle.fileno(), 0, os.fstat(handle.fileno()).st_size)
