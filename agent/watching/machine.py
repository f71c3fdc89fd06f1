"""This machine while the run lives: room on its disks, the kernel's log, a process of the job."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..reading.kernel_log import xid_of
from .kinds import LIMITS, Found, Told
from .other_curves import MemoryCurve, amount
from .trouble import xid_text

_SAMPLES = 120
_RECORDS = 1000  # of the kernel log at one look


class Disk:
    """Room on the file system of one folder."""

    def __init__(self, path: Path) -> None:
        self.path, self.free, self.total = path, 0, 0
        self._told = Told()
        self._next = 0.0
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)

    def look(self, now: float) -> Iterator[Found]:
        """Ask now and then; `now` is of the monotonic clock."""
        if now < self._next:
            return
        self._next = now + LIMITS.disk_every
        try:
            info = os.statvfs(self.path)
        except OSError:
            return
        self.free, self.total = info.f_bavail * info.f_frsize, info.f_blocks * info.f_frsize
        self._samples.append((now, self.free))
        if not self.total:
            return
        share = self.free / self.total
        hours = self._hours()
        inodes = info.f_favail / info.f_files if info.f_files else 1.0
        full = share < LIMITS.disk_share or inodes < LIMITS.disk_share
        if not full and (hours is None or hours > 2 * LIMITS.disk_hours) and share > 1.2 * LIMITS.disk_share:
            self._told.over("disk_filling")
        soon = hours is not None and hours < LIMITS.disk_hours
        if (full or soon) and self._told.first("disk_filling"):
            again = self._told.again("disk_filling")
            rate = f", full in {hours * 60:.0f} min at the rate of now" if soon and hours is not None else ""
            left = f"{inodes:.1%} of the inodes are" if inodes < LIMITS.disk_share <= share else (
                f"{amount(self.free)} of {amount(self.total)} ({share:.1%})"
            )  # fmt: skip
            yield Found("disk_filling", f"{left} free{rate}", float(self.free), again=again, file=str(self.path))

    def _hours(self) -> float | None:
        """Hours until it is full; None where it does not fill, or nobody knows yet."""
        (first, before), (last, now) = self._samples[0], self._samples[-1]
        used = before - now
        if last - first < LIMITS.disk_span or used < 0.001 * self.total:
            return None
        middle = self._samples[len(self._samples) // 2][1]
        if not before > middle > now:
            return None  # one large write is no rate
        return now / (used / (last - first)) / 3600


class KernelLog:
    """New records of this machine's kernel, where it may be read. Those from before we looked are not ours to tell."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self._fd = -1
        with suppress(OSError):
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)

    def look(self) -> Iterator[Found]:
        """Xid lines that came since the last look."""
        for _ in range(_RECORDS if self._fd >= 0 else 0):
            try:
                record = os.read(self._fd, 8192)
            except BlockingIOError:
                return
            except OSError as e:
                if e.errno != 32:  # EPIPE: records were lost; the next one is readable
                    return
                continue
            if not record:
                return
            text = record.decode(errors="replace").partition(";")[2].split("\n", 1)[0]
            if (xid := xid_of(text)) is not None:
                yield Found("xid", xid_text(xid, text), float(xid.code), file=f"kernel log of {os.uname().nodename}")

    def close(self) -> None:
        """Give it back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Process:
    """A process of the job on this machine: whether it lives, and whether it grows."""

    def __init__(self, pid: int) -> None:
        self.pid, self.alive = pid, True
        self._born = self._birth()
        self._curve = MemoryCurve(f"resident memory of process {pid}")
        self._began = time.monotonic()

    def _birth(self) -> str:
        """When it began: another process may bear its number later."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(errors="replace")
        except OSError:
            return ""
        fields = text.rpartition(")")[2].split()
        return fields[19] if len(fields) > 19 and fields[0] != "Z" else ""

    def look(self) -> Iterator[Found]:
        """Its memory now."""
        if not self._born or self._birth() != self._born:
            self.alive = False
            return
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return
        size = float(pages * os.sysconf("SC_PAGE_SIZE"))
        yield from self._curve.take(size, time.monotonic() - self._began, "second")
