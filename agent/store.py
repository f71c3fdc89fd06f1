"""The state folder: session database and finished reports. Nothing of a run is ever written to."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from .errors import UsageError
from .paths import state_folder
from .report import Report

STDIN = "-"
ROOTS = "roots.json"  # of a session: its runs by absolute paths
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
    """Keep a finished report, atomically, readable by its owner only.

    Every report of a session is kept in its order; the session's own is its last diagnosis, which an answer to a
    follow-up does not replace.
    """
    folder = state / "reports"
    of_session = folder / _plain(report.session)
    of_session.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = report.to_json()
    number = sum(1 for _ in of_session.glob("[0-9]*.json")) + 1
    path = folder / f"{_plain(report.session)}.json"
    _write(of_session / f"{number:04}.json", text)
    _write(of_session / ROOTS, json.dumps([[_absolute(r.root), r.good] for r in report.runs]))
    if report.status != "answer" or _status(path) in ("", "answer"):
        _write(path, text)
    return path


def _write(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as f:
        f.write(text)
    Path(f.name).replace(path)


def _status(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["status"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _plain(session: str) -> str:
    """An id as a file name: never a path."""
    return Path(session).name or "session"


def _absolute(root: str) -> str:
    return root if root == STDIN else str(Path(root).absolute())


def load_report(state: Path, session: str) -> Report:
    """The report of a session.

    Raises:
        UsageError: there is none by that id.
    """
    path = state / "reports" / f"{_plain(session)}.json"
    if not path.is_file():
        raise UsageError(f"no session {session!r}", "`doctor sessions` lists them")
    try:
        return Report.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError:
        raise UsageError(f"the report of session {session!r} is of another version", "diagnose the run again") from None


def is_kept(state: Path, session: str) -> bool:
    """Whether there is a report of this session."""
    return (state / "reports" / f"{_plain(session)}.json").is_file()


def turns(state: Path, session: str) -> list[Report]:
    """All reports of a session in the order of its questions. One that is none (any more) is passed over."""
    found = []
    for path in sorted((state / "reports" / _plain(session)).glob("[0-9]*.json")):
        try:
            found.append(Report.model_validate_json(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return found


def session_roots(state: Path, session: str) -> tuple[list[Path], list[Path]]:
    """Where the runs of a session are: those it is about, and the healthy ones to compare with.

    Both are empty for a session that was about no run.

    Raises:
        UsageError: there is no such session, a folder of it is gone, or it read standard input.
    """
    report = load_report(state, session)
    try:
        kept = json.loads((state / "reports" / _plain(session) / ROOTS).read_text(encoding="utf-8"))
        named = [(Path(root), bool(good)) for root, good in kept]
    except (OSError, ValueError, TypeError):
        named = [(Path(r.root), r.good) for r in report.runs]
    for root, _ in named:
        if str(root) == STDIN:
            raise UsageError(f"session {session} read standard input, which is gone", "name the run with --run")
        if not root.exists():
            raise UsageError(f"the run of session {session} is gone: {root}", "name where it is now with --run")
    return [r for r, good in named if not good], [r for r, good in named if good]


def newest(state: Path, root: Path | None = None) -> str | None:
    """The session of the newest report, of a run at `root` where one is given; None where there is none."""
    wanted = root.absolute() if root else None
    for entry in reports(state):
        if wanted is None or wanted in (Path(r).absolute() for r in entry.roots):
            return entry.id
    return None


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
