"""How much memory a diagnosis may take where its job ran: a scheduler that counts both would kill the job for it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .tree import Tree, content, read
from .uses import LIMITS, USED, groups, number_in

DIAGNOSIS_BYTES = 200 << 20  # a diagnosis of a small run peaks at 150 MB resident,
LARGE_LOG_BYTES = 150 << 20  # one of a large log at most that much above
OURS_BYTES = 64 << 20  # of the supervisor and its relay, as a scheduler adds up what is resident
_MEGABYTE = 1 << 20


def too_little(environ: Mapping[str, str], pid: int, output: int) -> str:
    """Why there is no room for a diagnosis here; empty where there is, or where nothing limits it.

    Args:
        environ: the job's variables; Slurm names its limits there (megabytes).
        pid: of the job, which may still hold memory.
        output: bytes of the job's output that are kept.
    """
    needed = DIAGNOSIS_BYTES + min(output, LARGE_LOG_BYTES)
    room = [r for r in (_in_groups(), _in_slurm(environ, _held(pid) + OURS_BYTES)) if r is not None]
    if not room or min(room) >= needed:
        return ""
    left = f"{max(min(room), 0) / _MEGABYTE:.0f} MB are left under the job's memory limit"
    return f"{left}, and it takes {needed // _MEGABYTE}"


def _held(pid: int) -> int:
    if read(pid) is None:
        return 0
    tree = Tree(pid)
    tree.scan()
    return sum(process.resident for process in tree.all.values())


def _in_groups() -> int | None:
    """What the control groups leave; cached files give way and do not count."""
    left = []
    for place in groups(os.getpid()):
        limit = next((n for f in LIMITS if (n := number_in(f"{place}/{f}")) is not None), None)
        used = next((n for f in USED if (n := number_in(f"{place}/{f}")) is not None), None)
        if limit is not None and used is not None:
            left.append(limit - used + _cached(place))
    return min(left, default=None)


def _cached(place: str) -> int:
    rows = (line.split() for line in content(f"{place}/memory.stat", 65536).splitlines())
    found = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
    return found.get(b"total_inactive_file", found.get(b"inactive_file", 0))


def _in_slurm(environ: Mapping[str, str], others: int) -> int | None:
    node, cpu, cpus = (environ.get(f"SLURM_{name}", "") for name in ("MEM_PER_NODE", "MEM_PER_CPU", "CPUS_ON_NODE"))
    if node.isdigit() and int(node):
        return int(node) * _MEGABYTE - others
    if cpu.isdigit() and int(cpu) and cpus.isdigit():
        return int(cpu) * int(cpus) * _MEGABYTE - others
    return None
