"""The state folder: session database and finished reports. Nothing of a run is ever written to."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from .errors import UsageError
from .paths import state_folder
from .report import Report

_SHARED = ("nfs", "lustre", "gpfs", "beegfs", "cifs", "smb", "ceph", "fuse.", "wekafs", "9p", "afs", "panfs")


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """One line of `doctor sessions`."""

    id: str
    time: float
    question: str
    cause: str | None
    status: str
    roots: list[str]


def usable_state(state: Path | None = None) -> tuple[Path, str]:
    """A folder a database may live in, and a word for the report when it is not the usual one.

    SQLite's write-ahead log needs shared memory, which network file systems do not give; a folder that cannot
    be written is replaced too, because a diagnosis must not fail for want of a place to keep it.
    """
    folder = state or state_folder()
    local = Path(tempfile.gettempdir()) / f"traindoctor-{os.getuid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "reports").mkdir(exist_ok=True, mode=0o700)
        if not os.access(folder, os.W_OK):
            raise PermissionError(folder)
    except OSError as e:
        (local / "reports").mkdir(parents=True, exist_ok=True, mode=0o700)
        return local, f"state folder {folder} cannot be written ({e.strerror or 'permission denied'}): kept in {local}"
    if _file_system(folder).startswith(_SHARED):
        (local / "reports").mkdir(parents=True, exist_ok=True, mode=0o700)
        return local, f"state folder {folder} is on a network file system: kept in {local}"
    return folder, ""


def _file_system(folder: Path) -> str:
    """Type of the file system that holds a folder, by the longest mount point; empty where /proc has none."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    at = str(folder.resolve())
    under = [(m, t) for m, t in mounts if at == m or at.startswith(m.rstrip("/") + "/")]
    return max(under, key=lambda mt: len(mt[0]))[1] if under else ""


def new_session() -> str:
    """A session id that sorts by time: `20261120-141500-a1b2c3`."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(3)


def save_report(state: Path, report: Report) -> Path:
    """Keep a finished report, atomically, readable by its owner only."""
    folder = state / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as f:
        f.write(report.to_json())
    path = folder / f"{report.session}.json"
    Path(f.name).replace(path)
    return path


def load_report(state: Path, session: str) -> Report:
    """The report of a session.

    Raises:
        UsageError: there is none by that id.
    """
    path = state / "reports" / f"{Path(session).name}.json"
    if not path.is_file():
        raise UsageError(f"no session {session!r}", "`doctor sessions` lists them")
    return Report.model_validate_json(path.read_text(encoding="utf-8"))


def reports(state: Path) -> list[SessionEntry]:
    """Finished sessions, newest first. A file that is no report (any more) is passed over."""
    found = []
    for path in (state / "reports").glob("*.json"):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            entry = SessionEntry(
                data["session"],
                path.stat().st_mtime,
                data["question"],
                data["root_cause"]["id"],
                data["status"],
                [r["root"] for r in data["runs"]],
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue
        found.append(entry)
    return sorted(found, key=lambda e: -e.time)
