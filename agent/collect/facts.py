"""What the run's files say of settings, versions and checkpoints, as plain data with the place of each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..workspace import Workspace
    from .context import Context

SETTINGS, VERSIONS, SAVES, FILES = 5000, 2000, 500, 200


def settings(ws: Workspace, context: Context) -> dict[str, Any]:
    """Settings by canonical name, as asked for and as used, each with file and line."""
    from ..reading.settings import read_settings

    found = read_settings(ws)
    rows = [
        {
            "name": s.name, "value": context.value(s.value, s.file.name, s.line.offset, len(s.line.data)),
            "key": s.key, "used": s.used, "default": s.default, "framework": s.framework,
            "file": s.file.name, "line": s.line.number,
        }
        for s in found.all
    ]  # fmt: skip
    rows.sort(key=lambda r: (r["name"].startswith("other."), r["name"], r["file"], r["line"]))
    return {"frameworks": sorted(found.frameworks), "settings": rows[:SETTINGS], "more": max(0, len(rows) - SETTINGS),
            "problems": found.problems[:FILES]}  # fmt: skip


def environment(ws: Workspace) -> dict[str, Any]:
    """Versions and facts about the machine that the run's files tell, each value once, with its first place."""
    from ..reading.versions import read_environment

    found = read_environment(ws)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for name, value, file, line in [
        *((v.package, v.version, v.file, v.line) for v in found.versions),
        *((f.key, f.value, f.file, f.line) for f in found.facts),
    ]:
        row = rows.setdefault(
            (name, str(value)), {"name": name, "value": value, "file": file.name, "line": line.number, "times": 0}
        )
        row["times"] += 1
    told = sorted(rows.values(), key=lambda r: (r["name"], str(r["value"])))
    return {"told": told[:VERSIONS], "more": max(0, len(told) - VERSIONS), "problems": found.problems[:FILES]}


def saves(ws: Workspace) -> list[dict[str, Any]]:
    """Checkpoints by their structure: names, sizes, steps; nothing of their content."""
    from ..reading.checkpoints.layouts import checkpoints

    return [
        {
            "name": c.name, "framework": c.framework, "step": c.step, "bytes": c.size, "unfinished": c.marks,
            "written": datetime.fromtimestamp(c.written, UTC).isoformat(timespec="seconds") if c.written else None,
            "files": {part: [[c.within(f), f.size] for f in files[:FILES]] for part, files in c.files.items()},
        }
        for c in checkpoints(ws)[-SAVES:]
    ]  # fmt: skip
