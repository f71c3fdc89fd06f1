"""The state folder: session database and finished reports. Nothing of a run is ever written to."""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..core.errors import UsageError
from ..core.own_files import state_folder
from ..core.report import Report

STDIN = "-"
DATABASE = "sessions.sqlite"
ROOTS = "roots.json"  # of a session: its runs by absolute paths, with where these led to
_ID = re.compile(r"[\w-]{1,80}", re.ASCII)
_REPLACED: dict[Path, str] = {}  # folders that stand in for one that cannot be used, with the word about it
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
    if folder in _REPLACED:  # whoever found it before hands it on: each report still says so
        return folder, _REPLACED[folder]
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "reports").mkdir(exist_ok=True, mode=0o700)
        if not os.access(folder, os.W_OK):
            raise PermissionError(folder)
    except OSError as e:
        why = f"cannot be written ({e.strerror or 'permission denied'})"
    else:
        if not _file_system(folder).startswith(_SHARED):
            return folder, ""
        why = "is on a network file system"
    local = _node_local()
    _REPLACED[local] = f"state folder {folder} {why}: kept in {local}"
    return local, _REPLACED[local]


def _node_local() -> Path:
    """A folder of this user on this machine. One that somebody else prepared, or may write to, is not trusted."""
    folder = Path(tempfile.gettempdir()) / f"traindoctor-{os.getuid()}"
    folder.mkdir(exist_ok=True, mode=0o700)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        folder = Path(tempfile.mkdtemp(prefix="traindoctor-"))
    (folder / "reports").mkdir(exist_ok=True, mode=0o700)
    return folder


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
    if report.status != "answer" or not _kept_roots(state, report.session):
        _keep_roots(of_session, [(r.root, r.good) for r in report.runs])  # patches are of a diagnosis, so is its place
    if report.status != "answer" or _status(path) in ("", "answer"):
        _write(path, text)
    return path


def begin(state: Path, session: str, runs: Sequence[Path], good: Sequence[Path]) -> None:
    """Keep where the runs of a session are as soon as it begins: one that is killed finds them again by its id.

    What is kept of it already stays, as its patches are of that place.

    Raises:
        OSError: the state folder cannot be written.
    """
    if _kept_roots(state, session) or not (runs or good):
        return
    folder = state / "reports" / _plain(session)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _keep_roots(folder, [*((str(r), False) for r in runs), *((str(g), True) for g in good)])


def _keep_roots(folder: Path, runs: Sequence[tuple[str, bool]]) -> None:
    _write(folder / ROOTS, json.dumps([[_absolute(root), good, _led_to(root)] for root, good in runs]))


def _write(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".", delete=False, encoding="utf-8") as f:
        try:
            f.write(text)
            f.flush()
            Path(f.name).replace(path)
        except OSError:
            Path(f.name).unlink(missing_ok=True)
            raise


def _status(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["status"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _plain(session: str) -> str:
    """An id as a file name: never a path."""
    if _ID.fullmatch(session):
        return session
    return re.sub(r"[^\w.-]", "_", Path(session).name, flags=re.ASCII).lstrip(".")[:80] or "session"


def _absolute(root: str) -> str:
    return root if root == STDIN else str(Path(root).absolute())


def _led_to(root: str) -> str:
    return root if root == STDIN else str(_resolved(Path(root)))


def load_report(state: Path, session: str) -> Report:
    """The report of a session.

    Raises:
        UsageError: there is none by that id.
    """
    path = state / "reports" / f"{_plain(session)}.json"
    if not path.is_file():
        if _ID.fullmatch(session) and _is_begun(state, session):
            raise UsageError(
                f"session {session} was left before its report: there is none yet", f"doctor chat --session {session}"
            )
        raise UsageError(f"no session {_named(session)}", "`doctor sessions` lists them")
    try:
        return Report.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError:
        raise UsageError(f"the report of session {session!r} is of another version", "diagnose the run again") from None


def checked_session(state: Path, session: str) -> str:
    """The id of a session that there is, finished or not.

    Raises:
        UsageError: there is none by that id.
    """
    if not _ID.fullmatch(session) or not (is_kept(state, session) or _is_begun(state, session)):
        raise UsageError(f"no session {_named(session)}", "`doctor sessions` lists them")
    return session


def _named(session: str) -> str:
    return repr(session if len(session) <= 80 else f"{session[:80]}...")


def _is_begun(state: Path, session: str) -> bool:
    """Whether steps of a session are in the database, so that it can be gone on with."""
    path = state / DATABASE
    if not path.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
            found = base.execute("SELECT 1 FROM checkpoints WHERE thread_id = ? LIMIT 1", (session,)).fetchone()
    except sqlite3.Error:  # no database, none yet, or one that cannot be used: nothing can be gone on with
        return False
    return found is not None


def is_kept(state: Path, session: str) -> bool:
    """Whether it is known where the runs of a session are: from its report, or from its begin."""
    return _has_report(state, session) or _kept_roots(state, session) is not None


def _has_report(state: Path, session: str) -> bool:
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


def with_new_checks(report: Report, before: Sequence[Report]) -> Report:
    """An answer as it is shown: with the checks that were made for it; those of earlier questions were told with them.

    A diagnosis keeps all of its checks, as it rests on them.

    Args:
        before: the reports that the session had when the question was asked.
    """
    if report.status != "answer" or not before:
        return report
    told = Counter((c.tool, c.outcome, c.why) for c in before[-1].checked)
    new = []
    for check in report.checked:
        if told[row := (check.tool, check.outcome, check.why)]:
            told[row] -= 1
        else:
            new.append(check)
    return report.model_copy(update={"checked": new})


def session_roots(state: Path, session: str, by: str = "--run") -> tuple[list[Path], list[Path]]:
    """Where the runs of a session are: those it is about, and the healthy ones to compare with.

    Both are empty for a session that was about no run.

    Args:
        by: how whoever asks would name a run.

    Raises:
        UsageError: there is no such session, a folder of it is gone, or it read standard input.
    """
    named = _kept_roots(state, session) if _ID.fullmatch(session) else None
    if named is None or _has_report(state, session):  # one that is of another version says so
        report = load_report(state, session)
        named = [(Path(r.root), r.good) for r in report.runs] if named is None else named
    for root, _ in named:
        if str(root) == STDIN:
            raise UsageError(f"session {session} read standard input, which is gone", f"name the run with {by}")
        if not root.exists():
            raise UsageError(f"the run of session {session} is gone: {root}", f"name where it is now with {by}")
    return [r for r, good in named if not good], [r for r, good in named if good]


def _kept_roots(state: Path, session: str) -> list[tuple[Path, bool]] | None:
    """Absolute paths of a session's runs, each with whether it is one to compare with; None where none were kept."""
    try:
        kept = json.loads((state / "reports" / _plain(session) / ROOTS).read_text(encoding="utf-8"))
        return [(Path(root), bool(good)) for root, good, *_ in kept]
    except (OSError, ValueError, TypeError):
        return None


def moved_roots(state: Path, session: str) -> list[tuple[Path, Path, Path]]:
    """Runs of a session whose path leads to another place now, as a link on it was made or changed.

    Returns:
        Of each its path as it was given, where that led to when the report was made, and where it leads to now.
    """
    try:
        kept = json.loads((state / "reports" / _plain(session) / ROOTS).read_text(encoding="utf-8"))
        rows = [(Path(root), Path(led)) for root, _, led in kept if root != STDIN]
    except (OSError, ValueError, TypeError):  # of an earlier version
        return []
    return [(root, led, now) for root, led in rows if (now := _resolved(root)) != led]


def newest(state: Path, root: Path | None = None, left: bool = False) -> str | None:
    """The session of the newest report, of a run at `root` where one is given; None where there is none.

    Links count as what they lead to, on both sides. `left`: a session that was left before its report counts too.
    """
    wanted = _resolved(root) if root else None
    for entry in sorted(reports(state) + (_left(state) if left else []), key=lambda e: -e.time):
        kept = _kept_roots(state, entry.id)
        roots = [Path(r) for r in entry.roots] if kept is None else [r for r, good in kept if not good]
        if wanted is None or wanted in map(_resolved, roots):
            return entry.id
    return None


def _left(state: Path) -> list[SessionEntry]:
    """Sessions that were begun and have no report, at the time of their begin."""
    found = []
    for path in (state / "reports").glob(f"*/{ROOTS}"):
        if not _has_report(state, path.parent.name):
            with suppress(OSError):  # removed meanwhile
                found.append(SessionEntry(path.parent.name, path.stat().st_mtime, "", None, "unfinished", []))
    return found


def _resolved(root: Path) -> Path:
    try:
        return root.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL
        return root.absolute()


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


# ----------
# The session database: LangGraph's SQLite checkpointer, private to its owner, one writer at a time.

BUSY_MS = 5000
KEPT = 200  # sessions whose steps are kept for going on with; older ones keep their report only


@contextmanager
def open_checkpoints(folder: Path, notes: list[str], to_read: bool = False) -> Iterator[Any]:
    """A checkpointer on `sessions.sqlite` in the state folder (mode 0600). `to_read`: no writer is waited for.

    A database that cannot be used (broken, locked for too long, disk full) costs the session its durability,
    never its diagnosis: it then lives in memory, with a word in `notes`.
    """
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.checkpoint.sqlite import SqliteSaver

    path = folder / "sessions.sqlite"
    try:
        connection = _connect(path, to_read)
        saver = SqliteSaver(connection)
        saver.setup()
    except (sqlite3.DatabaseError, OSError) as e:
        notes.append(f"session database {path} cannot be used ({e}): this session cannot be resumed")
        yield InMemorySaver()
        return
    try:
        yield saver
        with suppress(sqlite3.Error):  # the next session forgets them
            _forget_old(connection, saver)
    finally:
        connection.close()


def in_memory(saver: Any, session: str) -> Any:
    """A checkpointer in memory that has the last step of a session which another one still has; none where it cannot
    tell. For a disk that is full in the middle: what was found so far is gone on with.
    """
    from langgraph.checkpoint.memory import InMemorySaver

    memory, written = InMemorySaver(), dict[str, list[Any]]()
    config: Any = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
    try:
        last = saver.get_tuple(config)
    except sqlite3.Error:
        return memory
    if last is not None:
        at = memory.put(config, last.checkpoint, last.metadata, last.checkpoint["channel_versions"])
        for task, channel, value in last.pending_writes or []:
            written.setdefault(task, []).append((channel, value))
        for task, rows in written.items():
            memory.put_writes(at, rows, task)
    return memory


def _connect(path: Path, to_read: bool) -> sqlite3.Connection:
    path.touch(mode=0o600, exist_ok=True)
    path.chmod(0o600)
    connection = sqlite3.connect(path, check_same_thread=False, timeout=BUSY_MS / 1000)
    connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    if not to_read:  # a lock that is held too long shows here, before a step is lost to it
        connection.execute("BEGIN IMMEDIATE")
        connection.rollback()
    return connection


def _forget_old(connection: sqlite3.Connection, saver: Any) -> None:
    """Session ids sort by time, so the oldest are the smallest."""
    rows = connection.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id DESC").fetchall()
    for (thread,) in rows[KEPT:]:
        saver.delete_thread(thread)
