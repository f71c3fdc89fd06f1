"""Who of the job's processes vanished before its end, when, and of what: told by the kernel at once.

A launcher notices a dead rank within a tenth of a second and ends the others. Looks a second apart would see all of
them gone together and could not tell who was first.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from datetime import UTC, datetime
from typing import Any

from .tree import Process, content

MOST = 512  # processes that are waited for: each costs a descriptor
KEPT = 64  # deaths that a record holds


class Deaths:
    """Waits for the end of processes that are not ours.

    Attributes:
        died: one entry a death in their order, as `record.json` holds them; `code` is known where `signal` could be.
    """

    def __init__(self, main: int) -> None:
        self.died: list[dict[str, Any]] = []
        self.left_out = 0
        self._main = main
        self._poll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._bell, select.EPOLLIN)
        self._kept: dict[int, tuple[int, Process]] = {}  # descriptor -> its process
        self._pids: dict[int, int] = {}

    def follow(self, processes: list[Process]) -> None:
        """Wait for the end of these too: the ranks and what they started; never of the job's main process."""
        for p in processes:
            if p.pid in self._pids or p.pid == self._main or p.state == "Z" or len(self._kept) >= MOST:
                continue
            try:
                fd = os.pidfd_open(p.pid)
            except (OSError, AttributeError):  # gone already, or a kernel that cannot (before 5.3)
                continue
            self._kept[fd] = (p.pid, p)
            self._pids[p.pid] = fd
            self._poll.register(fd, select.EPOLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait for a death, at most so long. True where one was seen that says something."""
        try:
            ready = self._poll.poll(seconds, 64)
        except (OSError, ValueError):
            return False
        ready = [(fd, event) for fd, event in ready if fd in self._kept]
        ends = [(self._kept[fd][1], _end(self._kept[fd][0])) for fd, _ in ready]
        for fd, _ in ready:
            self._forget(fd)
        # of several at once, the one that nobody asked to end was first
        ends.sort(key=lambda e: e[1] is None or e[1][1] in ("SIGTERM", "SIGINT"))
        told = [self._tell(p, end) for p, end in ends]
        return any(told)

    def ring(self) -> None:
        """Let a `wait` of another thread return at once, now and from now on."""
        with contextlib.suppress(OSError):
            os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """Wait for nobody any more."""
        with contextlib.suppress(OSError):
            os.close(self._bell)
        for fd in list(self._kept):
            self._forget(fd)
        self._poll.close()

    def _tell(self, p: Process, end: tuple[int, str | None] | None) -> bool:
        code, sign = end if end is not None else (None, None)
        violent = sign is not None and sign not in ("SIGTERM", "SIGINT", "SIGPIPE")
        if not p.main and not violent:  # commands and workers come and go
            return False
        if len(self.died) >= KEPT:
            self.left_out += 1
            return False
        self.died.append({
            "pid": p.pid, "rank": p.rank, "name": p.command, "at": datetime.now(UTC).isoformat(),
            "signal": sign, "code": code, "worker": not p.main,
        })  # fmt: skip
        return violent or bool(code)

    def _forget(self, fd: int) -> None:
        pid, _ = self._kept.pop(fd)
        self._pids.pop(pid, None)
        with contextlib.suppress(OSError, ValueError):
            self._poll.unregister(fd)
        with contextlib.suppress(OSError):
            os.close(fd)


def _end(pid: int) -> tuple[int, str | None] | None:
    """Code and signal of a process that its parent has not yet asked about; None where it is gone for good."""
    part = content(f"/proc/{pid}/stat", 1024).rpartition(b") ")[2].split()
    if len(part) < 50 or part[0] != b"Z":
        return None
    status = int(part[49])
    number = status & 0x7F
    if not number:
        return status >> 8, None
    try:
        return 128 + number, signal.Signals(number).name
    except ValueError:
        return 128 + number, f"SIG{number}"
