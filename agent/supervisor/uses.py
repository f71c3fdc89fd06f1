# ruff: noqa: PTH110
"""Memory and room on disk of a job: what it may use, what it used, and whether the kernel killed some of it."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

from .tree import Tree, content

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
