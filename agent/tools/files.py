"""What the run left: files by role, and what could not be read."""

from __future__ import annotations

from collections import Counter

from ..reading.roles import ROLES
from ..tool import finding, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SHOWN = 400


@tool(emits=("files.skipped",))
def list_files(ws: Workspace) -> ToolResult:
    """List the files of the run by role, with what was skipped and why.

    Use first when it is unclear what there is to read. Roles: log, config, metrics, checkpoint, data, code,
    environment, capture, other; rank, host, attempt and variant are what names tell.
    """
    counts = Counter(f.role for f in ws.files)
    rows = []
    for role in ROLES:
        rows += [_row(f) for f in ws.files if f.role == role]
    shown = rows[:SHOWN]
    if len(rows) > SHOWN:
        shown.append(f"... and {len(rows) - SHOWN} more files")
    shown += [f"skipped {name}: {why}" for name, why in ws.skipped[:SHOWN]]
    evidence = [
        Evidence(key="files.skipped", value=why, kind="absent", file=name, searched=[name])
        for name, why in ws.skipped[:50]
    ]
    summary = ", ".join(f"{n} {role}" for role, n in counts.most_common())
    return finding(summary + (f"; {len(ws.skipped)} skipped" if ws.skipped else ""), evidence, "\n".join(shown))


def _row(f) -> str:
    told = [
        f"{word} {value}"
        for word, value in (("rank", f.rank), ("host", f.host), ("attempt", f.attempt), ("variant", f.variant))
        if value is not None
    ]
    good = ", good" if f.good else ""
    return f"{f.role:<12} {f.size:>12} {f.name}" + (f" ({', '.join(told)}{good})" if told or good else "")
