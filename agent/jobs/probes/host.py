"""Look at the host: `python -m traindoctor.agent.jobs.probes.host [PID ...] [PATH ...]` prints one fact a line.

Passive: reads /proc, /sys and file system counters. A file system that does not answer (a dead NFS server) blocks
only this child; before each path a line says that it is being asked. Without a PID, limits and the control group are
our own, which a shell of the same user shares with its jobs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PROC, SHM = Path("/proc"), Path("/dev/shm")
SAMPLE = 0.1  # seconds between two readings of the processor's counters
UNLIMITED = 1 << 60  # control groups of version 1 write "no limit" as a huge number
LIMITS = {"Max open files": "nofile", "Max processes": "nproc", "Max locked memory": "memlock"}
MAPPERS = 3000  # processes whose mappings are looked at
SEGMENTS = 8  # of shared memory that are named, the largest


def say(**what: object) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def read(path: Path) -> str:
    """Text of a small file; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def disk(path: Path) -> None:
    """Bytes and inodes left for us where a path lies, or will lie."""
    say(asking="disk", path=str(path))
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    s = os.statvfs(there)
    where = {"path": str(path), "mount": mount_of(there), "read_only": bool(s.f_flag & os.ST_RDONLY)}
    say(fact="disk", total=s.f_blocks * s.f_frsize, free=s.f_bavail * s.f_frsize, **where)
    if s.f_files:
        say(fact="inodes", total=s.f_files, free=s.f_favail, **where)


def mount_of(path: Path) -> str:
    """The mount point a path lies under."""
    path = path.resolve()
    while not path.is_mount() and path != path.parent:
        path = path.parent
    return str(path)


def limits(pid: str) -> None:
    """Limits of a process, and how many files it holds open."""
    for line in read(PROC / pid / "limits").splitlines():
        for words, name in LIMITS.items():
            if line.startswith(words):
                soft, hard = line[len(words) :].split()[:2]
                say(fact="limit", name=name, pid=pid, soft=_number(soft), hard=_number(hard))
    with contextlib.suppress(OSError):
        say(fact="open_files", pid=pid, count=len(list((PROC / pid / "fd").iterdir())))


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def group(pid: str) -> None:
    """Memory, processes and processors that the control group of a process allows, by the tightest level above it."""
    for line in read(PROC / pid / "cgroup").splitlines():
        number, kinds, path = [*line.split(":", 2), "", ""][:3]
        root = Path("/sys/fs/cgroup")
        if number == "0":
            for folder in _levels(root, path) or _levels(root / "unified", path):
                group_v2(folder, pid)
        elif "memory" in kinds.split(","):
            for folder in _levels(root / "memory", path):
                group_v1(folder, pid)


def _levels(root: Path, path: str) -> list[Path]:
    """The folder of a group and those above it, below the root; in a container only the root may be in sight."""
    here = root / path.lstrip("/")
    if not here.is_dir():
        here = root
    return [f for f in [here, *here.parents] if f.is_relative_to(root)]


def group_v2(folder: Path, pid: str) -> None:
    """One level of the unified hierarchy."""
    limit = read(folder / "memory.max").strip()
    events = dict(line.split() for line in read(folder / "memory.events").splitlines() if len(line.split()) == 2)
    if limit.isdigit() or int(events.get("oom_kill", 0)):
        peak, now = (read(folder / name).strip() for name in ("memory.peak", "memory.current"))
        say(fact="group_memory", pid=pid, group=str(folder), limit=_number(limit), peak=_number(peak), now=_number(now),
            oom_kills=int(events.get("oom_kill", 0)))  # fmt: skip
    if (most := read(folder / "pids.max").strip()).isdigit():
        now = _number(read(folder / "pids.current").strip())
        say(fact="group_processes", pid=pid, group=str(folder), limit=int(most), now=now)
    quota = read(folder / "cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        say(fact="group_cores", pid=pid, group=str(folder), cores=int(quota[0]) / int(quota[1]))


def group_v1(folder: Path, pid: str) -> None:
    """One level of the older memory hierarchy."""
    limit = read(folder / "memory.limit_in_bytes").strip()
    kills = re.search(r"^oom_kill (\d+)", read(folder / "memory.oom_control"), re.MULTILINE)
    bounded = limit.isdigit() and int(limit) < UNLIMITED
    if bounded or (kills and int(kills[1])):
        peak, now = (read(folder / f"memory.{name}usage_in_bytes").strip() for name in ("max_", ""))
        say(fact="group_memory", pid=pid, group=str(folder), limit=int(limit) if bounded else "max", peak=_number(peak),
            now=_number(now), oom_kills=int(kills[1]) if kills else 0)  # fmt: skip


def memory() -> None:
    """Of the whole machine, in bytes."""
    found = {m[1]: int(m[2]) << 10 for m in re.finditer(r"^(\w+):\s+(\d+) kB", read(PROC / "meminfo"), re.MULTILINE)}
    names = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree", "Shmem")
    say(fact="memory", **{n: found[n] for n in names if n in found})


def pressure() -> None:
    """Share of the last ten seconds and minute in which some or all tasks waited, in percent."""
    for what in ("cpu", "io", "memory"):
        for line in read(PROC / "pressure" / what).splitlines():
            who, *pairs = line.split()
            say(fact="pressure", of=what, who=who, **{k: float(v) for k, v in (p.split("=") for p in pairs)})


def processor() -> None:
    """Load and what the cores did over a tenth of a second."""
    before, _ = read(PROC / "stat").split("\n", 1)
    time.sleep(SAMPLE)
    after, _ = read(PROC / "stat").split("\n", 1)
    spent = [b - a for a, b in zip(map(int, before.split()[1:]), map(int, after.split()[1:]), strict=True)]
    whole = sum(spent[:8]) or 1
    load = [float(x) for x in read(PROC / "loadavg").split()[:3]]
    cores = len(os.sched_getaffinity(0))
    say(fact="processor", load=load, cores=os.cpu_count(), allowed=cores, io_wait=round(spent[4] / whole, 3),
        stolen=round(spent[7] / whole, 3) if len(spent) > 7 else 0)  # fmt: skip


def stats() -> Iterator[tuple[str, str, str, int, int]]:
    """Pid, name, state, parent and user of every process."""
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            name, _, rest = read(folder / "stat").partition("(")[2].rpartition(")")
            words = rest.split()
            with contextlib.suppress(OSError, IndexError):
                yield folder.name, name, words[0], int(words[1]), folder.stat().st_uid


def processes() -> None:
    """Our user's dead children that nobody waited for, and everybody's tasks stuck in the kernel."""
    own = os.getuid()
    for pid, name, state, parent, user in stats():
        if state == "Z" and user == own:
            parent_name = read(PROC / str(parent) / "comm").strip()
            say(fact="zombie", pid=int(pid), name=name, parent=parent, parent_name=parent_name)
        elif state == "D":
            say(fact="stuck", pid=int(pid), name=name, where=read(PROC / pid / "wchan").strip())


def shared_memory() -> None:
    """Files in /dev/shm that no process we may look at has mapped or open: left by jobs that were killed."""
    if not SHM.is_dir():
        return
    say(asking="shared memory")
    files = {str(p): s for p, s in _files(SHM)}
    if not files:
        return
    used: set[str] = set()
    for folder in [f for f in PROC.iterdir() if f.name.isdigit()][:MAPPERS]:
        used |= {m[0] for m in re.finditer(r"/dev/shm/\S+", read(folder / "maps")) if m[0] in files}
        with contextlib.suppress(OSError):
            used |= {str(link) for fd in (folder / "fd").iterdir() if str(link := fd.readlink()) in files}
    left = {path: s for path, s in files.items() if path not in used and s.st_uid == os.getuid()}
    whole, lost = (sum(s.st_blocks * 512 for s in group.values()) for group in (files, left))
    largest = sorted(left.items(), key=lambda one: (-one[1].st_blocks, one[0]))[:SEGMENTS]
    segments = [{"path": p, "bytes": s.st_blocks * 512, "age": int(time.time() - s.st_mtime)} for p, s in largest]
    say(fact="shared_memory", files=len(files), bytes=whole, left=len(left), left_bytes=lost, owner=_own_name(),
        segments=segments)  # fmt: skip


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container without an entry for its user
        return str(os.getuid())


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink():
                    yield path, path.stat()


def clock() -> None:
    """Whether the kernel's clock is disciplined, and by how much it is believed to be off (microseconds)."""
    found = ctypes.create_string_buffer(256)  # struct timex, all zero: only asks
    try:
        state = ctypes.CDLL(None).adjtimex(found)
    except (OSError, AttributeError):
        return
    status = int.from_bytes(found.raw[40:44], sys.byteorder)
    error = int.from_bytes(found.raw[24:32], sys.byteorder, signed=True)
    if state >= 0:
        say(fact="clock", synchronized=not status & 0x40, most_error_us=error)


def main(arguments: list[str]) -> int:
    """Everything, in the order in which a part can hang: paths last."""
    pids = [a for a in arguments if a.isdigit()] or ["self"]
    memory()
    for pid in pids:
        limits(pid)
        group(pid)
    pressure()
    processor()
    processes()
    clock()
    shared_memory()
    for path in dict.fromkeys([*(a for a in arguments if not a.isdigit()), "/dev/shm", "/tmp"]):
        with contextlib.suppress(OSError):
            disk(Path(path))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
