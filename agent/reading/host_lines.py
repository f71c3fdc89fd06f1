"""Lines of hosts and schedulers as facts: kernel, disks, limits, Slurm, links, services. Data first."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .capture_tables import patterns
from .oom import size_in_bytes

Fact = tuple[str, str | int | bool | float]

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


def facts_of(text: str) -> Iterator[Fact]:
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


def disk_facts(text: str, unit: str) -> Iterator[Fact]:
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


def memory_facts(text: str) -> Iterator[Fact]:
    """The `Mem:` line of `free -h`: total and available bytes."""
    if (m := FREE.match(text)) and m["unit"]:
        yield "memory_total_bytes", size_in_bytes(m["total"], m["unit"])
        yield "memory_available_bytes", size_in_bytes(m["available"], m["unit2"] or "b")
