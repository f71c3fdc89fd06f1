"""The copy of what a job writes: bounded on disk, and never in the way of the output itself.

The beginning stays in NAME.0.log, the newest in NAME.log and, before it, NAME.1.log; what stood between is left out and
the first line of NAME.log says how much.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

PART = 512 << 20  # bytes of each of at most three parts


class CopyOfOutput:
    """Appends to one file until it cannot; then says once why and stops."""

    def __init__(self, path: Path, part: int = 0) -> None:
        self._path = path
        self._part = part or int(os.environ.get("DOCTOR_RUN_LOG_PART", "0") or 0) or PART
        self._lock = threading.Lock()
        self._fd = -1
        self._size = self._left_out = 0
        self._head_full = False
        with contextlib.suppress(OSError):
            self._open()

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._fd).st_size

    def add(self, data: bytes) -> str:
        """Append; "" or, once, why there will be no more."""
        with self._lock:
            if self._fd < 0:
                return ""
            try:
                view = memoryview(data)
                while view:
                    written = os.write(self._fd, view)
                    self._size += written
                    view = view[written:]
                if self._size >= self._part:
                    self._next_part()
            except OSError as e:
                self._close()
                return f"{self._path.name} stopped at {self._size} bytes: {e.strerror}"
        return ""

    def stop(self) -> None:
        """Write no more."""
        with self._lock:
            self._close()

    def _next_part(self) -> None:
        stem = self._path.stem
        older = self._path.with_name(f"{stem}.1.log")
        if self._head_full:
            with contextlib.suppress(FileNotFoundError):
                self._left_out += older.stat().st_size
        self._path.rename(older if self._head_full else self._path.with_name(f"{stem}.0.log"))
        self._head_full = True
        self._close()
        self._open()
        if self._left_out:
            line = f"[doctor: {self._left_out} bytes of the output before {older.name} were left out]\n"
            self._size += os.write(self._fd, os.fsencode(line))

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
