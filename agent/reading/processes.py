"""Processes of this machine that may belong to a job: ranks, their workers, the state the kernel has them in.

Read from /proc by a short-lived child (`python -m ...processes`), so that a process stuck in the kernel can only
hold up the child, and so that what was seen can be recorded. Of an environment only the variables in `NAMED` leave
the child: the rest may hold secrets.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..shell import Completed
    from ..workspace import Workspace

NAMED = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_PROCID",
    "SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PROBING",
)  # fmt: skip
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
WORKERS = ("pt_data_worker", "pt_data_pin")
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed", "srun")
SECONDS = 10.0
ARGUMENT = 400  # characters of a command line that are kept


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
    done = ws.shell([sys.executable, "-I", "-m", __name__], SECONDS)
    try:
        rows = json.loads(done.stdout) if done.code == 0 else None
    except ValueError:
        rows = None
    if not isinstance(rows, list):
        return None
    try:
        found = [Process(**row) for row in rows]
    except TypeError:  # recorded by another version
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


def _table() -> list[dict[str, Any]]:
    rows = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            row = _row(int(entry.name))
            if row:
                rows.append(row)
    return _relevant(rows)


def _relevant(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Python's processes, those that know a rank, the dead ones, and what started them."""
    by_pid = {r["pid"]: r for r in rows}
    kept: dict[int, dict[str, Any]] = {}
    for row in rows:
        if row.get("variables") or row["state"] == "Z" or "python" in row["command"] or row["name"][:3] == "pt_":
            while row and row["pid"] not in kept:
                kept[row["pid"]] = row
                row = by_pid.get(row["parent"], {})
    return list(kept.values())


def _row(pid: int) -> dict[str, Any] | None:
    """One process; None where it ended meanwhile or belongs to the kernel."""
    folder = Path("/proc") / str(pid)
    try:
        stat = (folder / "stat").read_text(errors="replace")
        uid = folder.stat().st_uid
        command = (folder / "cmdline").read_bytes()
    except OSError:
        return None
    name, after = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
    if not command and after[0] != "Z":
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    row = {
        "pid": pid, "parent": int(after[1]), "uid": uid, "name": name, "state": after[0],
        "command": command.replace(b"\0", b" ").decode(errors="replace").strip()[:ARGUMENT],
        "wchan": _first_line(folder / "wchan"), "cpu": (int(after[11]) + int(after[12])) / ticks,
        "rss": int(after[21]) * os.sysconf("SC_PAGE_SIZE"), "folder": _link(folder / "cwd"),
        "output": _link(folder / "fd" / "1"),
    }  # fmt: skip
    try:
        pairs = (v.partition(b"=") for v in (folder / "environ").read_bytes().split(b"\0"))
        row["variables"] = {
            k.decode(): v.decode(errors="replace")[:120] for k, _, v in pairs if k.decode(errors="replace") in NAMED
        }
    except OSError:
        row["readable"] = False
    return row


def _first_line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()[:80]
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_table()))
