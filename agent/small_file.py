"""A small file read whole, where something else may stand in its place: a pipe that blocks, a device without end."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class OddFile(ValueError):
    """What stands there is no small file; the message goes on from its name."""


def small_file(path: Path, limit: int, *, follow: bool = True) -> tuple[bytes, int]:
    """Content and mode of a regular file of at most `limit` bytes; opening it never waits.

    Args:
        follow: whether the name itself may be a link.

    Raises:
        OddFile: not a regular file, or larger.
        OSError: it cannot be opened or read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise OddFile("is not a regular file")
        data = bytearray()
        while len(data) <= limit and (block := os.read(fd, limit + 1 - len(data))):
            data += block
    finally:
        os.close(fd)
    if len(data) > limit:
        raise OddFile(f"is larger than {limit} bytes")
    return bytes(data), mode
