"""Processes of this machine that may belong to a job: `python -m traindoctor.agent.jobs.probes.processes`, one a line.

Python's processes, those that know a rank, the dead ones, and what started them. Of an environment only the variables
in `NAMED` are printed: the rest may hold secrets.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

NAMED = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_PROCID",
    "SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PROBING",
)  # fmt: skip
ARGUMENT = 400  # characters of a command line that are kept


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
    sys.stdout.writelines(json.dumps(row) + "\n" for row in _table())
