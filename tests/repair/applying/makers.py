"""Runs with reports about them: files on disk, and a report whose patches turn their text into another."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from traindoctor.agent.core.unified import unified

SESSION = "20261120-141500-a1b2c3"


def patch(name: str, file: str, old: str, new: str, **more: Any) -> dict[str, Any]:
    """A patch as a report has it."""
    digest = hashlib.sha256(old.encode()).hexdigest()
    return {"id": name, "file": file, "sha256": digest, "diff": unified(old, new, file), "title": f"Do {name}", **more}


def report(runs: list[Any], patches: list[dict[str, Any]], *sets: list[str], **more: Any) -> dict[str, Any]:
    """A report with one repair for each set of patches; all of them in one where none is given."""
    rows = [r if isinstance(r, dict) else {"id": f"r{n}", "root": str(r)} for n, r in enumerate(runs, 1)]
    return {
        "schema": "traindoctor.report/1", "session": SESSION, "status": "likely", "runs": rows,
        "root_cause": {"id": "loss.fp16_overflow"}, "patches": patches,
        "fixes": [{"title": f"Repair {', '.join(s)}", "patches": s} for s in sets or [[p["id"] for p in patches]]],
        **more,
    }  # fmt: skip


def kept(path: Path, data: Any) -> Path:
    """A report as a file, which was made here: the state folder has it too."""
    own = Path(os.environ["DOCTOR_STATE"]) / "reports" / f"{SESSION}.json"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(json.dumps(data), encoding="utf-8")
    return foreign(path, data)


def foreign(path: Path, data: Any) -> Path:
    """A report as a file from elsewhere: nothing here knows of it."""
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def one_file(folder: Path, old: str, new: str, name: str = "config.yaml", **more: Any) -> tuple[Path, Path]:
    """A run of one file, and the report with its one patch."""
    run = folder / "run"
    file = run / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(old.encode())
    return file, kept(folder / "report.json", report([run], [patch("P1", name, old, new, **more)]))


def tree(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Every entry below a folder: kind, mode, content."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (info.st_mode, content)
    return found


def journal_of(state: str | None = None) -> Path:
    """Where applies are kept."""
    return Path(state or os.environ["DOCTOR_STATE"]) / "applied"
