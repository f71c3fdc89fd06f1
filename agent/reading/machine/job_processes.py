"""Processes of this machine that may belong to a job: ranks, their workers, the state the kernel has them in.

Read by the probe `agent/jobs/probes/processes.py`, a short-lived child: a process stuck in the kernel can only hold up
that, and what was seen can be recorded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...core.shell import Completed
    from ..run.workspace import Workspace

RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed", "srun")
SECONDS = 10.0
PROGRAM = "traindoctor.agent.jobs.probes.processes"


@dataclass(slots=True)
class Process:
    """One process: `state` is the kernel's letter (R, S, D, Z, T), `wchan` where in the kernel it waits.

    `cpu` is processor seconds used so far, `rss` resident bytes, `folder` and `output` where it works and writes.
    """

    pid: int
    parent: int
    uid: int
    name: str
    state: str
    command: str
    wchan: str = ""
    cpu: float = 0.0
    rss: int = 0
    folder: str = ""
    output: str = ""
    readable: bool = True  # whether its environment could be read: what may not be read cannot be attached to
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def rank(self) -> int | None:
        """Its rank, by the variables launchers set."""
        for name in RANKS:
            value = self.variables.get(name, "")
            if value.isdigit():
                return int(value)
        return None

    @property
    def job(self) -> str:
        """What the ranks of one job share."""
        return "/".join(
            self.variables.get(n, "") for n in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
        )


@dataclass(slots=True)
class Processes:
    """The processes of one look, by pid, and the command that answered."""

    done: Completed
    by_pid: dict[int, Process]

    def children(self, pid: int) -> list[Process]:
        """Direct children, also dead ones that were not waited for."""
        return [p for p in self.by_pid.values() if p.parent == pid]

    def ranks(self) -> list[Process]:
        """The main process of every rank: the outermost one that knows its rank and is no launcher."""
        ranked = [p for p in self.by_pid.values() if p.rank is not None and p.state != "Z" and not _launches(p)]
        return [p for p in ranked if not _same_rank(self.by_pid.get(p.parent), p)]

    def of(self, pids: Iterable[int]) -> list[Process]:
        """The named processes; for a launcher the ranks it started."""
        found: dict[int, Process] = {}
        for pid in pids:
            named = self.by_pid.get(pid)
            started = [p for p in self.ranks() if pid in self.ancestors(p.pid)]
            if named and (named.rank is not None or not started):
                started = [named]
            found |= {p.pid: p for p in started}
        return list(found.values())

    def ancestors(self, pid: int) -> list[int]:
        """Pids from the parent upwards."""
        found: list[int] = []
        while (p := self.by_pid.get(pid)) and p.parent and p.parent not in found:
            found.append(p.parent)
            pid = p.parent
        return found


def processes(ws: Workspace) -> Processes | None:
    """One look at this machine's processes, not memoised; None where it has no /proc or did not answer."""
    done = ws.shell([sys.executable, "-I", "-m", PROGRAM], SECONDS)
    try:
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        found = [Process(**row) for row in rows]
    except (ValueError, TypeError):  # broken, or recorded by another version
        return None
    if done.code != 0:
        return None
    return Processes(done, {p.pid: p for p in found})


def belongs(process: Process, roots: Iterable[Path]) -> bool:
    """Whether a process works in, writes to or was told a folder of the run."""
    folder = Path(process.folder) if process.folder else None
    for root in roots:
        whole = root.resolve()
        if process.output and Path(process.output).is_relative_to(whole):
            return True
        if folder and (folder.is_relative_to(whole) or (whole != folder and whole.is_relative_to(folder))):
            return True
        if str(whole) in process.command:
            return True
    return False


def _launches(p: Process) -> bool:
    words = p.command.split()[:6]
    return p.name == "pt_elastic" or any(w.rpartition("/")[2] in LAUNCHERS for w in words)


def _same_rank(parent: Process | None, child: Process) -> bool:
    return parent is not None and parent.rank == child.rank and not _launches(parent) and "python" in parent.command
