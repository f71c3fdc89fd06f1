# ruff: noqa: PTH123, PTH119, PTH208
"""The processes of a job as /proc shows them: who belongs to it, which rank each is, and what they use.

A process belongs to the job if its parents lead to the job's main process, if it is in that one's process group, or if
it belonged before; one whose parents have gone is known by the `DOCTOR_RUN` that the job was given. One scan is a
sequence of short pieces, so that a machine with thousands of processes costs no look more than a few milliseconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST = 4096  # processes of one job that are followed
EVERY = 2.0  # seconds between the starts of two scans
PIECE = 0.004  # seconds of scanning in one look
AGAIN = 30  # scans after which a process that was of somebody else is looked at anew
TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_RANKS = (b"RANK=", b"SLURM_PROCID=", b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=", b"LOCAL_RANK=")


@dataclass(slots=True)
class Process:
    """One process. `cpu` is seconds used so far; `born` ticks since boot, so that a pid used again is another one.

    `main` is true of the process that is a rank, false of the workers that inherited its variables.
    """

    pid: int
    parent: int
    group: int
    state: str
    cpu: float
    born: int
    resident: int
    virtual: int
    threads: int
    name: str
    rank: int | None = None
    main: bool = False
    python: bool = False
    command: str = ""
    known: bool = field(default=False, repr=False)


def read(pid: int) -> Process | None:
    """A process as it is now; None where it is gone. Its rank and command are not read yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            data = f.read(1024)
    except OSError:
        return None
    name, _, rest = data.partition(b"(")[2].rpartition(b") ")
    part = rest.split()
    if len(part) < 22:
        return None
    return Process(
        pid, int(part[1]), int(part[2]), part[0].decode(), (int(part[11]) + int(part[12])) / TICK, int(part[19]),
        int(part[21]) * PAGE, int(part[20]), int(part[17]), name.decode(errors="replace"),
    )  # fmt: skip


def content(path: str, most: int = 1 << 16) -> bytes:
    """The beginning of a file of /proc or /sys; empty where it cannot be read."""
    try:
        with open(path, "rb") as f:
            return f.read(most)
    except OSError:
        return b""


def known(process: Process, environ: bytes | None = None) -> Process:
    """The process with its command and the rank that its variables name."""
    argv = [a for a in content(f"/proc/{process.pid}/cmdline", 4096).split(b"\0") if a]
    words = [os.path.basename(a) if n == 0 else a for n, a in enumerate(argv[:6])]
    process.command = b" ".join(words).decode(errors="replace")[:200] or process.name
    process.python = b"python" in (words[0] if words else b"") or "python" in process.name
    environ = content(f"/proc/{process.pid}/environ", 1 << 18) if environ is None else environ
    process.rank = rank_of(environ)
    process.known = bool(argv)
    return process


def rank_of(environ: bytes) -> int | None:
    """The rank that the variables of a process name, as /proc holds them."""
    held = b"\0" + environ
    for name in _RANKS:
        at = held.find(b"\0" + name)
        if at >= 0:
            value = held[at + 1 + len(name) :].split(b"\0", 1)[0]
            return int(value) if value.isdigit() and len(value) < 8 else None
    return None


class Tree:
    """The processes of one job, kept up to date by `look`.

    Attributes:
        all: those that are there, by pid, as the last whole scan saw them.
        peak: the most memory all of them held together, bytes; `peak_virtual`: the most address space of one of them.
        whole: how many scans have ended.
    """

    def __init__(self, pid: int, mark: str = "") -> None:
        self.pid = pid
        self.all: dict[int, Process] = {}
        self.peak = self.peak_virtual = 0
        self.whole = 0
        self.cut = False
        self._mark = f"\0DOCTOR_RUN={mark}\0".encode() if mark else b""
        self._foreign: set[int] = set()
        self._scan: Iterator[None] | None = None
        self._next = 0.0

    def look(self, now: float) -> bool:
        """Go on with a scan, or start one where it is time; `now` is `time.monotonic()`. True when one has ended."""
        if self._scan is None:
            if now < self._next:
                return False
            self._next = now + EVERY
            self._scan = self._pieces()
        until = time.monotonic() + PIECE
        for _ in self._scan:
            if time.monotonic() > until:
                return False
        self._scan = None
        self.whole += 1
        return True

    def scan(self) -> None:
        """A whole scan at once."""
        for _ in self._pieces():
            pass
        self._scan = None
        self.whole += 1

    def ranks(self) -> list[Process]:
        """The processes that are ranks, by rank; the job's Python processes where none knows a rank."""
        alive = [p for p in self.all.values() if p.state != "Z"]
        ranks = sorted((p for p in alive if p.main), key=lambda p: (p.rank or 0, p.pid))
        return ranks or [p for p in alive if p.python]

    @property
    def cpu(self) -> dict[tuple[int, int], float]:
        """Seconds of processor that each process has used, by pid and birth."""
        return {(p.pid, p.born): p.cpu for p in self.all.values()}

    def moved_bytes(self) -> int:
        """What all processes have read and written so far, by calls and from disk; sockets are not among it."""
        total = 0
        for pid in list(self.all):
            for line in content(f"/proc/{pid}/io", 512).splitlines():
                name, _, value = line.partition(b":")
                if name in (b"rchar", b"wchar", b"read_bytes", b"write_bytes"):
                    total += int(value)
        return total

    def _pieces(self) -> Iterator[None]:
        try:
            there = [int(n) for n in os.listdir("/proc") if n.isdigit()]
        except OSError:
            return
        self._foreign = set() if self.whole % AGAIN == 0 else self._foreign.intersection(there)
        seen: dict[int, Process] = {}
        for number, pid in enumerate(sorted(p for p in there if p not in self._foreign)):
            process = read(pid)
            if process is not None:
                seen[pid] = process
            if number % 16 == 15:
                yield
        found: dict[int, Process] = {}
        for number, process in enumerate(seen.values()):
            if self._belongs(process, seen):
                found[process.pid] = self._again(process)
                if len(found) >= MOST:
                    self.cut = True
                    break
            else:
                self._foreign.add(process.pid)
            if number % 16 == 15:
                yield
        for p in found.values():
            parent = found.get(p.parent)
            p.main = p.rank is not None and (parent is None or parent.rank != p.rank)
        self.all = found
        self.peak = max(self.peak, sum(p.resident for p in found.values()))
        self.peak_virtual = max([self.peak_virtual, *(p.virtual for p in found.values())])

    def _belongs(self, process: Process, seen: dict[int, Process]) -> bool:
        here: Process | None = process
        for _ in range(64):
            if here is None:
                return False
            before = self.all.get(here.pid)
            if here.pid == self.pid or here.group == self.pid or (before is not None and before.born == here.born):
                return True
            if here.parent == os.getpid() and self._mark:  # its parents are gone: it came to us as their next of kin
                return self._mark in b"\0" + content(f"/proc/{here.pid}/environ", 1 << 18)
            here = seen.get(here.parent)
        return False

    def _again(self, process: Process) -> Process:
        """What was read of it before, as a program changes its command only by starting another."""
        before = self.all.get(process.pid)
        if before is None or before.born != process.born or not before.known or before.name != process.name:
            return known(process)
        process.rank, process.python, process.command = before.rank, before.python, before.command
        process.known = True
        return process
