"""The processes of a job as /proc shows them: who belongs to it, which rank each is, and what they use.

A process belongs to the job if its parents lead to the job's main process, if it is in that one's process group, or if
it belonged before; one whose parents have gone is known by the `DOCTOR_RUN` that the job was given. One scan is a
sequence of short pieces, so that a machine with thousands of processes costs no look more than a few milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# ruff: noqa: PTH123, PTH119, PTH208


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


# ----------
# Who of the job's processes vanished before its end, when, and of what: told by the kernel at once.
#
# A launcher notices a dead rank within a tenth of a second and ends the others. Looks a second apart would see all of
# them gone together and could not tell who was first.

DEATHS_MOST = 512  # processes that are waited for: each costs a descriptor
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
            if p.pid in self._pids or p.pid == self._main or p.state == "Z" or len(self._kept) >= DEATHS_MOST:
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


# ----------
# Memory and room on disk of a job: what it may use, what it used, and whether the kernel killed some of it.

# ruff: noqa: PTH110


ROOT = "/sys/fs/cgroup"
_UNLIMITED = 1 << 60


class Memory:
    """What limits the job's memory. Kills are counted from the moment this was made."""

    def __init__(self, pid: int) -> None:
        self._places = groups(pid)
        self._before = self._kills()
        self.limit, self.limit_of = self._limit(pid)
        self._most = 0

    def facts(self, tree: Tree) -> dict[str, Any]:
        """As `record.json` holds it. `peak_bytes` is of the kind that the limit is about."""
        kills, before = self._kills(), self._before
        peak = tree.peak_virtual if self.limit_of == "RLIMIT_AS" else tree.peak
        if self.limit_of == "cgroup":  # pages that processes share are counted once there, and in each of them here
            self._most = max(self._most, self._charged())
            peak = min(peak, self._most) if self._most else peak
        return {
            "peak_bytes": peak, "limit_bytes": self.limit, "limit_of": self.limit_of,
            "oom_kills": None if kills is None or before is None else max(0, kills - before),
        }  # fmt: skip

    def _kills(self) -> int | None:
        if not self._places:
            return None
        place = self._places[0]
        for name in ("memory.events", "memory.oom_control"):
            for line in content(f"{place}/{name}", 4096).splitlines():
                word = line.split()
                if len(word) == 2 and word[0] == b"oom_kill" and word[1].isdigit():
                    return int(word[1])
        return None

    def _charged(self) -> int:
        return max((number_in(f"{p}/{n}") or 0 for p in self._places[:1] for n in USED), default=0)

    def _limit(self, pid: int) -> tuple[int | None, str]:
        found = [n for p in self._places for f in LIMITS if (n := number_in(f"{p}/{f}")) is not None and n < _UNLIMITED]
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        space = _address_space(pid)
        if found and min(found) < total and (space is None or min(found) <= space):
            return min(found), "cgroup"
        return (space, "RLIMIT_AS") if space is not None else (None, "none")


USED = ("memory.current", "memory.usage_in_bytes")
LIMITS = ("memory.max", "memory.limit_in_bytes")


def groups(pid: int) -> list[str]:
    """The folders of the control groups that limit a process's memory, its own first, then those above it."""
    places: list[str] = []
    for line in content(f"/proc/{pid}/cgroup").decode(errors="replace").splitlines():
        _, kinds, path = (*line.split(":", 2), "", "")[:3]
        top = f"{ROOT}/memory" if "memory" in kinds.split(",") else ROOT if kinds == "" else ""
        if not top:
            continue
        here = Path(path)
        for part in (here, *here.parents):  # in a container the path is one of the host's: its own group is the top
            place = f"{top}/{str(part).strip('/')}".rstrip("/")
            if any(os.path.exists(f"{place}/{name}") for name in (*LIMITS, *USED)) and place not in places:
                places.append(place)
    return places


def _address_space(pid: int) -> int | None:
    try:
        soft = resource.prlimit(pid, resource.RLIMIT_AS)[0]
    except (OSError, ValueError):
        return None
    return None if soft == resource.RLIM_INFINITY else soft


def number_in(path: str) -> int | None:
    """The number that a file of the kernel holds; None where it says `max` or is not there."""
    text = content(path, 64).strip()
    return int(text) if text.isdigit() else None


def disk(path: Path) -> dict[str, Any]:
    """Room where the run is kept, as `record.json` holds it; empty where nobody can tell."""
    try:
        room = os.statvfs(path)
    except OSError:
        return {}
    inodes = room.f_favail if room.f_files else None  # some file systems count none
    return {"path": str(path), "free_bytes": room.f_bavail * room.f_frsize, "inodes_free": inodes}
