"""How much host memory the scheduler gives a job, by the arithmetic of its flags."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .settings import Setting, read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([KMGT]?)i?[Bb]?$", re.IGNORECASE)
UNITS = {"k": 1 << 10, "": 1 << 20, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}  # Slurm counts in MiB without a unit
PLAIN = {**UNITS, "": 1}  # Kubernetes counts bytes
PER = {"mem_per_cpu": "cpus_per_task", "mem_per_gpu": "gpus"}


@dataclass(frozen=True, slots=True)
class JobMemory:
    """Bytes of one task or container, in words, and the setting that says so."""

    bytes: int
    says: str
    setting: Setting


def job_memory(ws: Workspace) -> JobMemory | None:
    """The smallest memory limit that the run's scripts ask for; None where none does, or all of a node is asked for."""
    settings = read_settings(ws)
    found = []
    for s in settings.asked("host_memory_limit"):
        key = s.key.lstrip("-").replace("-", "_").rsplit(".", 1)[-1]
        if s.file.good or (size := _bytes(str(s.value), slurm=key.startswith("mem") and key != "memory")) is None:
            continue
        times, says = 1, f"{s.value}"
        if key in PER:
            count = settings.value(PER[key])
            times = count if isinstance(count, int) and count > 0 else 1
            says = f"{s.value} for each of {times} {PER[key].split('_')[0]}"
        found.append(JobMemory(size * times, says, s))
    return min(found, key=lambda m: m.bytes, default=None)


def _bytes(text: str, slurm: bool) -> int | None:
    m = SIZE.match(text.strip())
    if m is None or float(m[1]) == 0:
        return None
    return int(float(m[1]) * (UNITS if slurm else PLAIN)[m[2].lower()])
