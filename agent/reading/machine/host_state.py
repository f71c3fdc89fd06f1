"""What a look at the host means: facts of the probe as keys with values, each with the line it stands on."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..memory.oom import size_in_bytes
from ..run.files import Line
from ..run.lines import output_lines
from ..scan.anchors import patterns
from ..settings.settings import read_settings

if TYPE_CHECKING:
    from ...core.shell import Completed
    from ..run.workspace import Workspace

SECONDS = 10.0
FULL, NEARLY = 0.99, 0.95  # of bytes or inodes in use
LOW_BYTES = 1 << 30  # left on a disk, where that is also less than a tenth of it
CLOSE = 0.9  # share of a limit that is used
WAITING = 20.0  # percent of a minute in which some task waited for memory or a disk
LEFT_BYTES = 64 << 20  # in /dev/shm that nobody uses
SMALL_SHM = 1 << 30
FEW_FILES = 4096
HOLDS = 16  # paths that are asked for

Fact = tuple[str, Any, Line]


def ask_host(ws: Workspace) -> Completed:
    """The probe's output about this machine, asked once for a workspace."""
    argv = [sys.executable, "-I", "-m", "traindoctor.agent.jobs.probes.host", *map(str, ws.pids), *paths(ws)]
    return ws.memo("host_probe", lambda: ws.shell(argv, SECONDS))


def paths(ws: Workspace) -> list[str]:
    """Folders the job writes to: of the run itself, its settings, the caches."""
    found = [str(r.resolve() if r.is_dir() else r.resolve().parent) for r in ws.roots if str(r) != "-"]
    for name in ("output_dir", "hf_cache", "nvme_path"):
        values = read_settings(ws).asked(name) if ws.files else []
        found += [str(s.value) for s in values if isinstance(s.value, str) and s.value.startswith("/")]
    found += [v for n in ("HF_HOME", "TRITON_CACHE_DIR", "TMPDIR") if (v := os.environ.get(n, "")).startswith("/")]
    cache = Path.home() / ".cache"
    return [p for p in dict.fromkeys([*found, str(cache)]) if "\0" not in p][:HOLDS]


def facts(done: Completed) -> Iterator[Fact]:
    """Facts in the order in which they were printed; a path that never answered is one too.

    Sizes are bytes, shares between 0 and 1, pressures percent.
    """
    asking: tuple[str, Line] | None = None
    for line in output_lines(done.stdout):
        try:
            said = json.loads(line.data)
        except ValueError:
            continue
        if not isinstance(said, dict):
            continue
        if "asking" in said:
            asking = (str(said.get("path", said["asking"])), line)
        elif judge := _JUDGES.get(str(said.get("fact"))):
            try:
                judged = list(judge(said))
            except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError):
                continue  # a recording that was cut or changed
            yield from ((key, value, line) for key, value in judged)
    if done.code is None and asking:
        yield "no_answer", asking[0], asking[1]


Judged = Iterator[tuple[str, Any]]


def _disk(said: dict[str, Any]) -> Judged:
    total, free, mount = said["total"], said["free"], said["mount"]
    if not total:
        return
    used = 1 - free / total
    if mount == "/dev/shm":
        yield "shm_bytes", total
        if used >= NEARLY:
            yield "shm_full", f"{mount} {used:.0%}"
        return
    yield "disk_free_bytes", free
    if said["read_only"] and os.path.commonpath([mount, said["path"]]) == mount:
        yield "read_only", mount
    elif used >= FULL:
        yield "disk_full", f"{mount} {used:.0%}"
    elif used >= NEARLY or (free < LOW_BYTES and free < total / 10):
        yield "disk_low", f"{mount} {used:.0%}"


def _inodes(said: dict[str, Any]) -> Judged:
    if said["total"] and 1 - said["free"] / said["total"] >= 0.98:
        yield "inodes_full", f"{said['mount']} {1 - said['free'] / said['total']:.0%}"


def _limit(said: dict[str, Any]) -> Judged:
    if said["name"] == "nproc":
        return
    yield f"{said['name']}_limit", said["soft"] if said["soft"] == "unlimited" else _kib(said)
    if said["name"] == "nofile" and isinstance(said["soft"], int) and said["soft"] < FEW_FILES:
        yield "nofile_low", said["soft"]


def _kib(said: dict[str, Any]) -> int:
    """Locked memory in KiB, as `ulimit -l` prints it."""
    return said["soft"] >> 10 if said["name"] == "memlock" else said["soft"]


def _group_memory(said: dict[str, Any]) -> Judged:
    limit, peak = said["limit"], said["peak"]
    if said["oom_kills"] and said["pid"] != "self":  # of our own shell's group they may be anybody's
        yield "group_oom_kills", said["oom_kills"]
    if isinstance(limit, int):
        yield "memory_limit_bytes", limit
        if isinstance(peak, int):
            yield "memory_peak_share", round(peak / limit, 3) if limit else 1.0
        if isinstance(said["now"], int) and limit and said["now"] > CLOSE * limit:
            yield "memory_near_limit", round(said["now"] / limit, 3)


def _group_processes(said: dict[str, Any]) -> Judged:
    if isinstance(said["now"], int) and said["now"] > CLOSE * said["limit"]:
        yield "process_limit", f"{said['now']} of {said['limit']} in {said['group']}"


def _memory(said: dict[str, Any]) -> Judged:
    yield "memory_total_bytes", said.get("MemTotal", 0)
    if "MemAvailable" in said:
        yield "memory_available_bytes", said["MemAvailable"]
        if said["MemAvailable"] < 0.03 * said.get("MemTotal", 0):
            yield "memory_low", round(said["MemAvailable"] / said["MemTotal"], 3)


def _pressure(said: dict[str, Any]) -> Judged:
    if said["who"] == "some" and said["of"] in {"io", "memory"} and said["avg60"] >= WAITING:
        yield f"{said['of']}_pressure", said["avg60"]


def _processor(said: dict[str, Any]) -> Judged:
    yield "cores", said["allowed"]
    yield "load_per_core", round(said["load"][0] / max(1, said["cores"]), 2)
    if said["io_wait"] >= 0.3:
        yield "io_wait", said["io_wait"]
    if said["stolen"] >= 0.1:
        yield "stolen", said["stolen"]


def _shared_memory(said: dict[str, Any]) -> Judged:
    if said["left_bytes"] >= LEFT_BYTES:
        yield "shm_left_bytes", said["left_bytes"]
        for one in said.get("segments", []):  # older recordings have names alone
            yield "shm_leftover", f"{one['path']}, {int(one['bytes'])} bytes of {said['owner']}"


def _zombie(said: dict[str, Any]) -> Judged:
    yield "zombie", f"{said['pid']} {said['name']}, child of {said['parent']} {said['parent_name']}"


_JUDGES = {
    "disk": _disk,
    "inodes": _inodes,
    "limit": _limit,
    "open_files": lambda said: iter([("open_files", said["count"])]),
    "group_memory": _group_memory,
    "group_processes": _group_processes,
    "group_cores": lambda said: iter([("cores_allowed", round(said["cores"], 2))]),
    "memory": _memory,
    "pressure": _pressure,
    "processor": _processor,
    "shared_memory": _shared_memory,
    "zombie": _zombie,
    "stuck": lambda said: iter([("stuck", f"{said['pid']} {said['name']} in {said['where'] or 'the kernel'}")]),
    "clock": lambda said: iter([] if said["synchronized"] else [("clock_free", True)]),
}


# ----------
# Lines of hosts and schedulers as facts: kernel, disks, limits, Slurm, links, services. Data first.

HostFact = tuple[str, str | int | bool | float]

COUNTER = re.compile(
    r"\b(?P<name>symbol_error\w*|link_downed\w*|link_error_recovery|port_rcv_errors|local_link_integrity_errors|"
    r"rnr_nak_retry_err|packet_seq_err|local_ack_timeout_err|out_of_sequence)\b['\"]?\s?[:=]?\s*(?P<n>\d+)",
    re.IGNORECASE,
)
SACCT = re.compile(
    r"^\s*\d{1,10}(?:_\d+)?(?:\.\w+)?\b.{0,200}?\b(?P<state>COMPLETED|FAILED|TIMEOUT|CANCELLED|OUT_OF_ME\w*|NODE_FAIL|"
    r"PREEMPTED|DEADLINE|BOOT_FAIL|REQUEUED)\b\+?(?:.{0,120}?\b(?P<exit>\d{1,3}:\d{1,3})\b)?"
)
CANCELLED = re.compile(r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?P<why> DUE TO .{1,40})? \*\*\*", re.I)
SYSTEMD = re.compile(r"systemd\[\d+\]: (?P<what>Stopping|Stopped|Starting|Started) (?P<unit>.{3,120}?)\.{0,3}\s*$")
DF = re.compile(
    r"^(?P<fs>\S{1,200})\s+(?P<size>[\d.]+[KMGTPi]{0,2}B?)\s+(?P<used>[\d.]+[KMGTPi]{0,2}B?)\s+(?P<free>[\d.]+[KMGTPi]{0,2}B?)"
    r"\s+(?P<percent>\d{1,3})%\s+(?P<mount>/\S*)\s*$"
)
DF_HEADER = re.compile(r"^Filesystem\s.*\b(?P<unit>1K-blocks|Inodes|Size|1024-blocks)\b", re.I)
LIMIT = re.compile(r"^\s*(?:-n: file descriptors|open files)\s+(?:\([^)]{1,20}\)\s+)?(?P<n>\d+|unlimited)", re.I)
MAX_FILES = re.compile(r"^Max open files\s+(?P<n>\d+)", re.IGNORECASE)
MEMLOCK = re.compile(r"^\s*max locked memory\s+(?:\([^)]{1,24}\)\s+)?(?P<n>\d+|unlimited)", re.I)
ULIMIT_COMMAND = re.compile(r"\$ ?ulimit -(?P<what>[nl])\s*$")
FREE = re.compile(
    r"^\s*Mem:\s+(?P<total>[\d.]+)(?P<unit>[KMGT]?i?)B?\s+.*?(?P<available>[\d.]+)(?P<unit2>[KMGT]?i?)B?\s*$"
)
PSEUDO = re.compile(r"^(?:/dev/loop|squashfs|overlay$|devtmpfs|udev|efivarfs|none$)|/snap/")


def facts_of(text: str) -> Iterator[HostFact]:
    """Facts that one line states by itself, as (key without the namespace, value)."""
    told: set[str] = set()
    for key, pattern in patterns("host"):
        if key not in told and (m := pattern.search(text)):
            told.add(key)
            yield key, (m.groupdict().get("v") or m[0]).strip()[:160]
    for m in COUNTER.finditer(text):
        if int(m["n"]) > 0:
            yield "ib_counters", f"{m['name']} {m['n']}"
    if m := SACCT.match(text):
        yield "slurm_state", m["state"]
        if m["exit"] and m["exit"] != "0:0":
            yield "slurm_exit", m["exit"]
    if m := CANCELLED.search(text):
        yield "slurm_state", "CANCELLED" + (m["why"] or "").upper()
    if m := LIMIT.match(text) or MAX_FILES.match(text):
        yield "nofile_limit", int(m["n"]) if m["n"].isdigit() else "unlimited"
    if m := MEMLOCK.match(text):
        yield "memlock_limit", int(m["n"]) if m["n"].isdigit() else "unlimited"


def disk_facts(text: str, unit: str) -> Iterator[HostFact]:
    """A line of `df` (`unit` from its header: size, inodes or 1k-blocks): full file systems and /dev/shm."""
    if (m := DF.match(text)) is None or PSEUDO.search(m["fs"]) or PSEUDO.search(m["mount"]):
        return
    percent = int(m["percent"])
    if unit == "inodes":
        if percent >= 98:
            yield "inodes_full", f"{m['mount']} {percent}%"
        return
    if percent >= 99 and not m["mount"].startswith(("/boot", "/run/user", "/sys")):
        yield "disk_full", f"{m['mount']} {percent}%"
    if m["mount"] == "/dev/shm":
        yield "shm_bytes", _size(m["size"], unit)


def _size(text: str, unit: str) -> int:
    m = re.fullmatch(r"([\d.]+)([KMGTP]?)i?B?", text)
    if m is None:
        return 0
    if not m[2]:
        return int(float(m[1]) * (1024 if unit.startswith("1") else 1))
    return size_in_bytes(m[1], m[2])


def memory_facts(text: str) -> Iterator[HostFact]:
    """The `Mem:` line of `free -h`: total and available bytes."""
    if (m := FREE.match(text)) and m["unit"]:
        yield "memory_total_bytes", size_in_bytes(m["total"], m["unit"])
        yield "memory_available_bytes", size_in_bytes(m["available"], m["unit2"] or "b")
