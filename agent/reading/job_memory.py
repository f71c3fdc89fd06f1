"""How much host memory the scheduler gives a job, by the arithmetic of its flags."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .settings import Setting, Settings, read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

SIZE = re.compile(r"^(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)i?[Bb]?$", re.IGNORECASE)
UNITS = {"k": 1 << 10, "": 1 << 20, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}  # Slurm counts in MiB without a unit
PLAIN = {**UNITS, "": 1}  # Kubernetes counts bytes
GPUS = re.compile(r"(?:gpu(?::[\w.-]{1,40})?:|[\w.-]{1,40}:)?(\d{1,4})(?:\(.{0,40}\))?")
MOST = 1 << 16  # of anything that is counted on a node


@dataclass(frozen=True, slots=True)
class JobMemory:
    """Bytes of a node's part of a job or of one container, in words, and the setting that says so."""

    bytes: int
    says: str
    setting: Setting


def job_memory(ws: Workspace) -> JobMemory | None:
    """The smallest memory limit that the run's scripts ask for; None where none does, or all of a node is asked for."""
    settings = read_settings(ws)
    found = []
    for s in settings.asked("host_memory_limit"):
        key = _key(s)
        if s.file.good or (size := _bytes(str(s.value), slurm=key.startswith("mem") and key != "memory")) is None:
            continue
        times, says = 1, f"{s.value}"
        if key in _ON_A_NODE:
            counted = _ON_A_NODE[key](settings)
            if counted is None:
                continue
            times, says = counted, f"{s.value} for each of {counted} {key.removeprefix('mem_per_')}s of a node"
        found.append(JobMemory(size * times, says, s))
    return min(found, key=lambda m: m.bytes, default=None)


def _cpus(settings: Settings) -> int | None:
    """Processors of a job on one node."""
    each, tasks = _count(settings, "cpus_per_task"), _tasks(settings)
    return each * tasks if each and tasks else None


def _gpus(settings: Settings) -> int | None:
    """GPUs of a job on one node."""
    if on_node := _count(settings, "gpus", "gpus_per_node", "gres"):
        return on_node
    if each := _count(settings, "gpus", "gpus_per_task"):
        tasks = _tasks(settings)
        return each * tasks if tasks else None
    return _share(_count(settings, "gpus", "gpus"), _count(settings, "nodes"))


def _tasks(settings: Settings) -> int | None:
    """Tasks on one node: told, or all of them over the nodes, or the one that Slurm starts where none are asked for."""
    if told := _count(settings, "processes_per_node", "ntasks_per_node"):
        return told
    tasks = _values(settings, "world_size", "ntasks")
    return _share(_count(settings, "world_size", "ntasks"), _count(settings, "nodes")) if tasks else 1


def _share(total: int | None, nodes: int | None) -> int | None:
    if total is None or nodes is None:
        return 1 if total == 1 else None
    return -(-total // nodes)


def _count(settings: Settings, name: str, *keys: str) -> int | None:
    """The one number that the scripts give a setting under any of these keys (under all, where none is named)."""
    found = {m[1] for v in _values(settings, name, *keys) if (m := GPUS.fullmatch(v))}
    number = int(found.pop()) if len(found) == 1 else 0
    return number if 0 < number <= MOST else None


def _values(settings: Settings, name: str, *keys: str) -> list[str]:
    return [
        str(s.value)
        for s in settings.asked(name)
        if not s.file.good and not s.default and (not keys or _key(s) in keys)
    ]


def _key(setting: Setting) -> str:
    return setting.key.lstrip("-").replace("-", "_").rsplit(".", 1)[-1]


_ON_A_NODE = {"mem_per_cpu": _cpus, "mem_per_gpu": _gpus}


def _bytes(text: str, slurm: bool) -> int | None:
    m = SIZE.match(text.strip())
    if m is None or float(m[1]) == 0:
        return None
    return int(float(m[1]) * (UNITS if slurm else PLAIN)[m[2].lower()])
