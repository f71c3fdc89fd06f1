"""Lines of trouble: what is told at once, and what only matters when no progress follows."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ...reading.logs.failures import notes
from ...reading.logs.tracebacks import ALONE, Read
from ...reading.machine.kernel_log import Xid, xid_of
from ...reading.run.files import Line, RunFile
from ...reading.run.lines import strip
from ...reading.scan.anchors import is_harmless
from ..growing import Pace, patience, span
from ..supervisor.tree import read as read_process
from .alarm import LIMITS, Found, Told
from .watched_curves import MemoryCurve, Window, amount

# One of these stands in every line that is looked at closely.
_WORTH = re.compile(
    rb"Traceback \(most recent|Xid|fallen off the bus|OVERFLOW|[Oo]verflow|loss scale|No space left|quota exceeded|"
    rb"[Ss]ave|[Ss]aving|[Cc]heckpoint|exit ?code|exitcode|return code|exit status|exited with|ExitCode=|Killed|OOM|"
    rb"oom[-_]kill|Out of memory: |[Ww]atchdog|ChildFailedError|CANCELLED|NODE.FAIL|Node failure|SIG[A-Z]{3,4}\b|"
    rb"[Ss]egmentation fault|Fatal Python error|core dumped|terminate called|[Ss]ignal \d|"
    rb"\w(?:Error|Exception|Interrupt)\b"
)
_SAVE = re.compile(
    r"(?i)(?:fail(?:ed|ure)?|error|could not|cannot|unable to)\b.{0,40}\b(?:sav(?:e|ing)|writ(?:e|ing)|persist\w*)\b"
    r".{0,60}(?:checkpoint|ckpt|state|model|shard|weights)"
    r"|(?:checkpoint|ckpt)\b.{0,60}\b(?:sav(?:e|ing)|write|upload)\b.{0,20}\b(?:failed|error)\b"
    r"|\b(?:checkpoint|ckpt)\w* (?:save |saving |writing |upload )?failed\b"
    r"|PytorchStreamWriter failed writing|Error while serializing|No space left on device|[Dd]isk quota exceeded"
    r"|SafetensorError: .{0,80}(?:I/?O|space)"
)
_LOADS = re.compile(r"(?i)\bload(?:ing|ed)?\b|\bresum|\brestor")
_FLOOR = re.compile(
    r"(?i)loss scale already at minimum|minimum loss scale reached|loss scale .{0,20}(?:at|reached) (?:its )?min"
)
_SKIPS = re.compile(
    r"OVERFLOW!|[Gg]radient overflow|overflow.{0,60}[Ss]kipping|[Ss]kipping step.{0,40}(?:overflow|inf|nan)"
)
_DEADLY = frozenset(("watchdog", "launcher", "scheduler"))
_SIGNALS = frozenset(("SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTERM"))


@dataclass(slots=True)
class Pending:
    """What may have ended the run in this file: told once no progress follows it."""

    found: Found
    line: int | None
    since: float


class Trouble:
    """The lines of one file that are no metrics."""

    def __init__(self, file: RunFile) -> None:
        self._file = file
        self.pending: Pending | None = None
        self.told: Pending | None = None  # the one that was
        self._trace: Pending | None = None  # a traceback whose exception has not come yet

    def progressed(self) -> Iterator[Found]:
        """A step went on: what was pending was survived."""
        held, self.pending, self._trace = self.pending, None, None
        if held is not None and held.found.kind == "traceback":
            text = f"{held.found.text}; the run goes on"
            yield Found("traceback", text, severity="notice", line=held.line, rank=held.found.rank)

    def take(self, data: bytes, number: int | None, rank: int | None, now: float) -> Iterator[Found]:
        """One line: what is told of it at once. What is pending is looked at by whoever follows the file."""
        if self._trace is not None and self._exception(data):
            return
        if _WORTH.search(data) is None:
            return
        stripped = strip(data[:4096].decode(errors="replace"))
        body = stripped.body
        if rank is None:
            rank = stripped.rank
        if body.startswith("Traceback (most recent call last)"):
            found = Found("traceback", "a traceback", line=number, rank=rank)
            self._trace = Pending(found, number, now)
            if self.pending is None or self.pending.found.kind != "traceback":
                self.pending = self._trace
            return
        if is_harmless(body):
            return
        yield from self._at_once(body, number, rank)
        self._deadly(data, stripped, number, rank, now)

    def _exception(self, data: bytes) -> bool:
        """Whether a line belongs to the traceback that is open; the exception's own line closes it."""
        held = self._trace
        body = strip(data[:4096].decode(errors="replace")).body
        if held is None or body[:1] in (" ", "\t", "") or body.startswith("Traceback (most"):
            return body[:1] in (" ", "\t")
        if m := _EXCEPTION.match(body):
            text = f"{m['type']}: {m['message'] or ''}".rstrip(": ")
            told = Found("traceback", text[:300], line=held.line, rank=held.found.rank)
            self._trace = None
            if self.pending is held:
                self.pending = Pending(told, held.line, held.since)
        return False  # `No space left on device` stands in such a line too

    def _at_once(self, body: str, number: int | None, rank: int | None) -> Iterator[Found]:
        if ("Xid" in body or "bus" in body) and (xid := xid_of(body)) is not None:
            yield Found("xid", xid_text(xid, body), line=number, rank=rank)
        elif _FLOOR.search(body):
            yield Found("scale_floor", body.strip()[:300], line=number, rank=rank)
        elif _SKIPS.search(body):
            yield Found("steps_skipped", "", line=number, rank=rank)
        elif _SAVE.search(body) and not _LOADS.search(body):
            yield Found("checkpoint_failed", body.strip()[:300], line=number, rank=rank)

    def _deadly(self, data: bytes, stripped: Any, number: int | None, rank: int | None, now: float) -> None:
        if self.pending is not None:
            return
        read = Read(Line(number or 0, 0, data[:4096]), stripped, None)
        for note in notes(read, self._file, inside=True):
            if (
                note.kind in ("exit", "killed")
                or (note.kind == "cascade" and note.value in _DEADLY)
                or (note.kind == "signal" and note.value in _SIGNALS)
            ):
                text = stripped.body.strip()[:300]
                self.pending = Pending(Found("fatal", text, line=number, rank=rank), number, now)
                return
        if m := ALONE.match(stripped.body):
            text = f"{m['type']}: {m['message']}"[:300]
            if not m["type"].endswith(("Warning", "Exit")):
                self.pending = Pending(Found("traceback", text, line=number, rank=rank), number, now)


_EXCEPTION = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (?P<message>.*)|:?$)")


def xid_text(xid: Xid, body: str) -> str:
    """A line about an Xid, with what the catalogue says of its code."""
    line = body.strip()[:200]
    return f"Xid {xid.code} ({xid.known['name']}; {xid.known['action']}): {line}" if xid.known else line


# ----------
# This machine while the run lives: room on its disks, the kernel's log, a process of the job.

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
        if full or soon:
            rate = f", full in {hours * 60:.0f} min at the rate of now" if soon and hours is not None else ""
            left = f"{inodes:.1%} of the inodes are" if inodes < LIMITS.disk_share <= share else (
                f"{amount(self.free)} of {amount(self.total)} ({share:.1%})"
            )  # fmt: skip
            found = Found("disk_filling", f"{left} free{rate}", float(self.free), file=str(self.path))
            yield from self._told.tell(found)

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
        self._born = getattr(read_process(pid), "born", None)  # another process may bear its number later
        self._curve = MemoryCurve(f"resident memory of process {pid}")
        self._began = time.monotonic()

    def look(self) -> Iterator[Found]:
        """Its memory now."""
        now = read_process(self.pid)
        self.alive = self.alive and now is not None and now.state != "Z" and now.born == self._born
        if self.alive and now is not None:
            yield from self._curve.take(float(now.resident), time.monotonic() - self._began, "second")


# ----------
# How the steps go on: of the run and of each rank, by the clock of whoever looks.

_MOST = 4096  # ranks


class Rank(Pace):
    """One rank, or one file whose rank nobody knows. Times are of the monotonic clock.

    Attributes:
        behind: by how many steps it was behind each time it wrote.
    """

    __slots__ = ("behind", "file", "times", "told")

    def __init__(self) -> None:
        super().__init__()
        self.behind: deque[float] = deque(maxlen=LIMITS.lags)
        self.times, self.told = Window(32), Told()
        self.file = ""


class Steps(Pace):
    """The steps of one run. `live`: whether some came while we looked; before that, nobody knows how long one takes."""

    def __init__(self, limit: float = LIMITS.stall) -> None:
        super().__init__()
        self.limit = limit
        self.ranks: dict[int, Rank] = {}
        self.told = Told()

    @property
    def live(self) -> bool:
        """Whether steps were seen to come."""
        return len(self.gaps) >= 3

    @property
    def step(self) -> float | None:
        """The newest."""
        return self.value if self.at is not None else None

    def rank(self, number: int) -> Rank:
        """The state of one rank."""
        if number not in self.ranks and len(self.ranks) >= _MOST:
            number = min(self.ranks)
        return self.ranks.setdefault(number, Rank())

    def step_of(self, step: float, when: float, old: bool, rank: int | None, file: str) -> None:
        """A line names a step. `when`: now, or when the file was written where the line is old."""
        if rank is not None:
            held = self.rank(rank)
            if step != held.value:
                held.came(step, when, old)
                held.file = file
        if step != self.step:
            self.came(step, when if self.at is None else max(self.at, when), old)
            self.told.over("stall")

    def lag(self, rank: int, stride: float) -> None:
        """A rank wrote: how far it is behind the others just then. `stride`: steps between two of its lines."""
        held = self.ranks.get(rank)
        others = sorted(r.value for n, r in self.ranks.items() if n != rank)
        if held is not None and others:
            held.behind.append((median(others) - held.value) / max(stride, 1.0))

    def judge(self, now: float, ended: bool) -> Iterator[Found]:
        """What is told of the pace at this look."""
        if self.at is None or ended:
            return
        quiet = now - self.at
        if quiet >= patience(self.limit, (LIMITS.stall_times if self.live else 0.0, self.gap)):
            usual = f"one each {span(self.gap)}" if self.gaps else ""
            text = f"no new step for {span(quiet)}" + ("" if self.live else ": it may be over")
            severity = None if self.live else "notice"
            yield from self.told.tell(Found("stall", text, quiet, usual, severity, step=self.value))
        if len(self.ranks) > 1:
            yield from self._silent(now, self.at)
            yield from self._slow()

    def _silent(self, now: float, newest: float) -> Iterator[Found]:
        """Ranks without a step while the others have new ones."""
        going = {n: r for n, r in self.ranks.items() if len(r.gaps) >= 5}
        for number, held in going.items() if len(going) >= 2 else ():
            at = [r.at or 0.0 for r in going.values()]
            usual, quiet = held.gap, newest - (held.at or 0.0)
            if quiet < usual:
                held.told.over("rank_silent")
            bound = patience(LIMITS.rank_stall, (LIMITS.stall_times, usual))
            others = sum(a > now - bound / 2 for a in at)
            if quiet >= bound and 2 * others >= len(going):
                text = f"rank {number} has no new step for {span(quiet)}; {others} others go on"
                yield from _told(number, held, "rank_silent", text, quiet, f"one each {span(usual)}")

    def _slow(self) -> Iterator[Found]:
        """Ranks that are behind each time they write, or whose steps take longer."""
        timed = {n: r.times.middle()[0] for n, r in self.ranks.items() if len(r.times) >= 16}
        usual = median(timed.values()) if len(timed) >= 2 else 0.0
        for number, held in self.ranks.items():
            behind = held.behind
            if len(behind) == LIMITS.lags and min(behind) > 3 and behind[-1] >= behind[0]:
                text = f"rank {number} is {behind[-1]:.0f} reports behind the others, and falls back"
                yield from _told(number, held, "straggler", text, behind[-1], "0")
            elif (mine := timed.get(number)) is not None and len(timed) >= 2 and mine > LIMITS.slower * usual > 0:
                text = f"rank {number} takes {span(mine)} a step"
                yield from _told(number, held, "straggler", text, mine, f"{span(usual)} on the others")
            elif behind and max(behind) < 1:
                held.told.over("straggler")


def _told(rank: int, held: Rank, kind: str, text: str, value: float, usual: str) -> Iterator[Found]:
    found = Found(kind, text, value, usual, step=held.value, rank=rank, file=held.file)
    return held.told.tell(found)
