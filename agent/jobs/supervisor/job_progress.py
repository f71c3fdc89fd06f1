"""How far a job has come, read from what it prints: any counter that moves is life, a step is a counter with its name.

Only what was appended since the last look is read, and of much output only its last piece: a job that prints gigabytes
costs a look as much as one that prints a page.
"""

from __future__ import annotations

import os
import re
from collections import deque
from pathlib import Path
from statistics import median
from typing import Any

# ----------
# How fast counters move: the time between two arrivals of a new value, and the time a step takes.


_STEP = re.compile(rb"step|^iter|^it$")


class Pace:
    """One counter of a job: a number with a name, or the part done of a total.

    Attributes:
        moves: how many times it had another value than before.
        value: the value it has now; `total` of how many, 0 where that is not said.
    """

    __slots__ = ("_arrived", "_before", "_gaps", "_paces", "moves", "name", "total", "value")

    def __init__(self, name: bytes, total: int = 0) -> None:
        self.name, self.total = name, total
        self.moves = 0
        self.value = -1.0
        self._before = 0.0
        self._arrived: float | None = None
        self._paces: deque[float] = deque(maxlen=64)
        self._gaps: deque[float] = deque(maxlen=64)

    def now_at(self, value: float) -> bool:
        """Take a value that was read. True where it is another one."""
        if value == self.value:
            return False
        self.value = value
        self.moves += 1
        return True

    def arrived(self, now: float) -> None:
        """All values of one look have been taken: they share the time since the look before that brought any."""
        if self._arrived is not None and now > self._arrived:
            gap, count = now - self._arrived, self.value - self._before
            self._gaps.append(gap)
            self._paces.append(gap / count if count > 0 else gap)
        self._arrived, self._before = now, self.value

    @property
    def finished(self) -> bool:
        """Whether it has reached its total: a bar that is full says nothing of what comes after it."""
        return self.total > 0 and self.value >= self.total

    @property
    def weight(self) -> tuple[bool, int, int]:
        """The counter of a job's steps is the one of most weight: it moves still, is named so, has moved most.

        That it moves is known once its values came twice: output in blocks brings many of them at the first time.
        """
        kind = 2 if _STEP.search(self.name) else 1 if self.is_step else 0
        return not self.finished and bool(self._gaps), kind, self.moves

    @property
    def is_step(self) -> bool:
        """Whether its value is a step, not an epoch, a number of tokens or a share of something."""
        return (self.total > 0 and self.name != b"%") or bool(_STEP.search(self.name))

    @property
    def seconds(self) -> float | None:
        """Median seconds a step."""
        return median(self._paces) if self._paces else None

    @property
    def gap(self) -> float:
        """Median seconds between two arrivals, or a third of the longest where that is more.

        A job logs each tenth step, or its output comes in blocks: between two of them it is silent as a rule.
        """
        return max(median(self._gaps), max(self._gaps) / 3) if self._gaps else 0.0


# ----------

# ruff: noqa: PTH123


BLOCK = 1 << 14  # bytes of one file that are read in a look
FILES = 64  # logs of single ranks that are followed beside the console
KEYS = 2048  # counters, and kinds of lines, that are remembered
LISTED = 10.0  # seconds between two listings of the folder of rank logs

# step 12, iteration   10/ 500, 'epoch': 0.3, "global_step": 7, it 12, Epoch [3/10], step=1,200
_NAMED = (
    rb"(?P<name>(?i:global[_ ]?step|train[_ ]?step|step|iteration|iter|it|epoch|batch|update|tokens|samples)s?)"
    rb"['\"]?\s{0,3}[:=#\[(]?\s{0,6}['\"]?(?P<count>\d[\d,]*(?:\.\d+)?)(?![\w.])"
)
_SHARE = rb"(?<![\w/.\-:])(?P<part>\d{1,12})\s?/\s?(?P<total>\d{1,12})(?![\w/.\-:])"  # a bar: 12/500
_PERCENT = rb"(?<![\w.])(?P<percent>\d{1,3}(?:\.\d+)?)\s?%(?!\w)"
_RANK = rb"\[(?:rank|default|torchrun|trainer)?(?P<rank>\d{1,5})\]:"
COUNTER = re.compile(rb"(?<![A-Za-z])" + _NAMED + rb"|" + _SHARE + rb"|" + _PERCENT + rb"|" + _RANK)
TROUBLE = re.compile(
    rb"Traceback \(most recent call last\)|ChildFailedError|out of memory|OutOfMemoryError|Watchdog caught"
    rb"|Fatal Python error|[Ss]egmentation fault|Signal \d+ \(SIG\w+\) received|terminate called after"
    rb"|CUDA error: |NCCL error|No space left on device|exitcode ?: ?-?[1-9]\d* "
)
_NUMBERS = re.compile(rb"[\d.,:eE+\-]+|0x[0-9a-f]+")


class Followed:
    """One file that grows; it may be cut off or put in another's place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = 0
        self._inode = 0
        self._rest = b""

    def more(self) -> bytes:
        """Whole lines that were appended since the last look, at most the last `BLOCK` of them; what a bar has drawn
        without ending its line counts too."""
        try:
            with open(self.path, "rb") as f:
                stat = os.fstat(f.fileno())
                if stat.st_ino != self._inode or stat.st_size < self.at:
                    self._inode, self.at, self._rest = stat.st_ino, 0, b""
                if stat.st_size == self.at:
                    return b""
                start = max(self.at, stat.st_size - BLOCK)
                f.seek(start)
                data = f.read(BLOCK)
        except OSError:
            return b""
        rest = self._rest if start == self.at else b""
        self.at = start + len(data)
        data = rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._rest = data[end:] if len(data) - end < 4096 else b""
        return data[:end] or (data if len(data) - end >= 4096 else b"")


class Progress:
    """What the output of a job tells of its progress. Times are `time.monotonic()`.

    Attributes:
        moved: when a counter moved last, or a kind of line came that was never seen before.
        stepped: when a counter moved last that had been seen before.
        trouble: the first line that tells of a failure; empty where none did.
        printed: whether anything was printed.
    """

    def __init__(self, console: Path, ranks: Path, now: float) -> None:
        self.began = self.moved = self.stepped = now
        self.printed = False
        self.trouble = ""
        self._ranks = ranks
        self._files = [Followed(console)]
        self._seen: set[Path] = {console}
        self._listed: float | None = None
        self._paces: dict[bytes, Pace] = {}
        self._kinds: set[int] = set()

    @property
    def main(self) -> Pace | None:
        """The counter of the job's steps, as far as one can be told; None before any was seen."""
        return max(self._paces.values(), key=lambda p: p.weight, default=None)

    @property
    def stepping(self) -> bool:
        """Whether a counter has moved in at least two looks and is not at its end."""
        main = self.main
        return main is not None and main.weight[0]

    @property
    def last(self) -> int | None:
        """The last step."""
        main = self.main
        return int(main.value) if main is not None and main.is_step and main.value < 1 << 53 else None

    def look(self, now: float) -> bool:
        """Read what is new. True where the job has shown life: a counter moved, or a line of a new kind came."""
        if self._listed is None or now - self._listed >= LISTED:
            self._listed = now
            self._list()
        alive = False
        for number, file in enumerate(self._files):
            data = file.more()
            if not data:
                continue
            self.printed = True
            moved = self._counters(data, number, now)
            alive |= bool(moved)
            if any(p.moves > 1 for p in moved):
                self.stepped = now
            alive |= self._new_kind(data)
            if not self.trouble and (found := TROUBLE.search(data)):
                self.trouble = _line_at(data, found.start())
        if alive:
            self.moved = now
        return alive

    def facts(self, at: str | None) -> dict[str, Any]:
        """As `record.json` holds it; `at` is the time of the last step for people."""
        pace = self.main.seconds if self.main is not None else None
        return {"last": self.last, "at": at, "median_seconds": round(pace, 4) if pace is not None else None}

    def _list(self) -> None:
        """Logs that torchrun keeps of single ranks, where it does."""
        if len(self._files) > FILES:
            return
        for folder, inner, names in os.walk(self._ranks):
            depth = len(Path(folder).relative_to(self._ranks).parts)
            inner[:] = sorted(inner)[:256] if depth < 4 else []
            for name in names:
                path = Path(folder) / name
                if name.endswith(".log") and path not in self._seen and len(self._files) <= FILES:
                    self._seen.add(path)
                    self._files.append(Followed(path))

    def _counters(self, data: bytes, where: int, now: float) -> list[Pace]:
        """The counters that have another value than before, each for its name, its total, its rank and its file."""
        moved: dict[bytes, Pace] = {}
        rank = b""
        for m in COUNTER.finditer(data):
            if m["rank"] is not None:
                rank = m["rank"]
                continue
            total = 0
            if m["count"] is not None:
                name, value = m["name"].lower(), float(m["count"].replace(b",", b""))
            elif m["total"] is not None:
                total, value = int(m["total"]), float(m["part"])
                name = b"/" + m["total"]
            else:
                name, value, total = b"%", float(m["percent"]), 100
            key = b"%d %b %b" % (where, rank, name)
            pace = self._paces.get(key)
            if pace is None:
                if len(self._paces) >= KEYS:
                    continue
                pace = self._paces[key] = Pace(name, total)
            if pace.now_at(value):
                moved[key] = pace
        for pace in moved.values():
            pace.arrived(now)
        return list(moved.values())

    def _new_kind(self, data: bytes) -> bool:
        """Whether a line came that was never seen before, numbers aside: what repeats itself is no progress."""
        new = False
        for line in data[-4096:].splitlines()[-16:]:
            kind = hash(_NUMBERS.sub(b"", line[:200]))
            if kind not in self._kinds and len(self._kinds) < KEYS:
                self._kinds.add(kind)
                new = True
        return new


def _line_at(data: bytes, at: int) -> str:
    start = data.rfind(b"\n", 0, at) + 1
    return data[start : start + 200].split(b"\n")[0].decode(errors="replace").strip()
