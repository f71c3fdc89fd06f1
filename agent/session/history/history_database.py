"""The history's SQLite file: safe on network file systems, never waited for beyond its time, set aside when damaged.

A rollback journal, as write-ahead logs need shared memory; short transactions. Where the file system knows no locks, a
lock file beside it serves. Every use runs in a thread of its own, because a dead file server holds its caller for ever.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

# ----------
# Where the history is kept: in the state folder, or in a folder that a team shares.


VARIABLE = "DOCTOR_HISTORY"
NAME = "history.sqlite"
INCIDENTS = "incidents"


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a history. `shared`: somebody named it, so others may write there too."""

    folder: Path
    shared: bool = False

    @property
    def database(self) -> Path:
        return self.folder / NAME

    @property
    def incidents(self) -> Path:
        return self.folder / INCIDENTS


def place_of(state: Path) -> Place:
    """The place that `DOCTOR_HISTORY` (`history` in doctor.toml) names, else the state folder."""
    named = os.environ.get(VARIABLE)
    return Place(Path(named).expanduser(), shared=True) if named else Place(state)


def file_mode(place: Place) -> int:
    """Bits of a new file: for its owner alone, or for the group where the shared folder is writable for it."""
    if not place.shared:
        return 0o600
    group = place.folder.stat().st_mode & stat.S_IWGRP
    return 0o660 if group else 0o600


def new_folder(path: Path, place: Place) -> None:
    """A folder below the place, open to those whom its files are open to."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path != place.folder and file_mode(place) & 0o060:
        path.chmod(0o770)


# ----------

T = TypeVar("T")
SECONDS = 2.0  # that a diagnosis waits for the history, at most
LOCK_LIFE = 30.0  # seconds after which a lock file of a killed process counts for nothing
APPLICATION = 0x64_6F_63_68
_OF_A_ROW = "session TEXT PRIMARY KEY, time TEXT NOT NULL, user TEXT NOT NULL"
MIGRATIONS = (
    f"""
    CREATE TABLE diagnoses ({_OF_A_ROW}, host TEXT, job TEXT, job_id TEXT, folder TEXT, root TEXT, cause TEXT NOT NULL,
        status TEXT NOT NULL, confidence REAL, framework TEXT, error TEXT, gpus TEXT, step INTEGER, attempt INTEGER,
        failure TEXT NOT NULL);
    CREATE TABLE nodes (session TEXT NOT NULL, node TEXT NOT NULL, PRIMARY KEY (session, node)) WITHOUT ROWID;
    CREATE INDEX diagnoses_by_cause ON diagnoses (cause, time);
    CREATE INDEX diagnoses_by_time ON diagnoses (time);
    CREATE INDEX nodes_by_node ON nodes (node);
    """,
    f"""
    CREATE TABLE corrections ({_OF_A_ROW}, said TEXT NOT NULL, truth TEXT NOT NULL, framework TEXT, error TEXT,
        note TEXT, incident TEXT);
    """,
)


class Unusable(Exception):
    """The history cannot be used now; the message is one line. A diagnosis goes on without it."""


def reading(place: Place, work: Callable[[sqlite3.Connection], T], nothing: T, seconds: float = SECONDS) -> T:
    """What `work` reads; `nothing` where there is no history yet.

    Raises:
        Unusable: it cannot be read, or not in time.
    """

    def read(ends: float) -> T:
        if not place.database.exists():
            return nothing
        with _locked(place, ends, write=False) as locks, closing(_connect(place, ends, locks, _mode(place))) as base:
            if _version(base) == 0:
                return nothing
            if _version(base) < len(MIGRATIONS):  # of an older release: brought up to date by the next writer
                return _migrated(place, work, ends, locks)
            return work(base)

    return _bounded(place, read, seconds)


def writing(place: Place, work: Callable[[sqlite3.Connection], T], seconds: float = SECONDS) -> T:
    """What `work` does within one transaction; a file that is damaged is set aside and begun anew.

    Raises:
        Unusable: it cannot be written, or not in time.
    """

    def write(ends: float) -> T:
        new_folder(place.folder, place)
        with _locked(place, ends, write=True) as locks:
            _create(place)
            return _migrated(place, work, ends, locks)

    return _bounded(place, write, seconds)


def _migrated(place: Place, work: Callable[[sqlite3.Connection], T], ends: float, locks: bool) -> T:
    with closing(_connect(place, ends, locks, "rw")) as base:
        base.execute("BEGIN IMMEDIATE")
        try:
            for number in range(_version(base), len(MIGRATIONS)):
                for statement in MIGRATIONS[number].split(";"):
                    base.execute(statement)
            base.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            base.execute(f"PRAGMA application_id = {APPLICATION}")
            found = work(base)
            base.execute("COMMIT")
        finally:
            if base.in_transaction:
                base.execute("ROLLBACK")
        return found


def _connect(place: Place, ends: float, locks: bool, mode: str) -> sqlite3.Connection:
    uri = f"{place.database.absolute().as_uri()}?mode={mode}{'' if locks else '&nolock=1'}"
    base = sqlite3.connect(uri, uri=True, timeout=max(0.05, ends - time.monotonic()), isolation_level=None)
    base.row_factory = sqlite3.Row
    return base


def _mode(place: Place) -> str:
    """Also who only reads rolls back what a killed writer left, where he may."""
    return "rw" if os.access(place.database, os.W_OK) and os.access(place.folder, os.W_OK) else "ro"


def _version(base: sqlite3.Connection) -> int:
    """The schema's version. Raises `Unusable` for a newer one, and for a database of another program."""
    version = base.execute("PRAGMA user_version").fetchone()[0]
    owner = base.execute("PRAGMA application_id").fetchone()[0]
    if version > len(MIGRATIONS) and owner == APPLICATION:
        raise Unusable("is of a newer release of doctor")
    if owner != APPLICATION and (version or base.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()):
        raise Unusable("is a database of another program")
    return version


def _create(place: Place) -> None:
    """An empty file with the right bits: SQLite gives its journal the same ones."""
    try:
        handle = os.open(place.database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return
    os.fchmod(handle, file_mode(place))
    os.close(handle)


@contextmanager
def _locked(place: Place, ends: float, *, write: bool) -> Iterator[bool]:
    """Hold the lock file where the file system knows no locks; gives whether it knows them."""
    locks = _knows_locks(place.folder)
    with ExitStack() as held:
        if write and not locks:
            held.enter_context(_lock_file(place, ends))
        yield locks


@contextmanager
def _lock_file(place: Place, ends: float) -> Iterator[None]:
    from filelock import SoftFileLock, SoftFileLockLifetimeWarning
    from filelock import Timeout as TooLong

    # a transaction takes milliseconds, so that a marker of this age is of a process that was killed, here or elsewhere
    warnings.filterwarnings("ignore", category=SoftFileLockLifetimeWarning)

    beside = place.database.with_suffix(".lock")
    wait = max(0.05, ends - time.monotonic())
    try:
        held = SoftFileLock(beside, timeout=wait, lifetime=LOCK_LIFE, poll_interval=0.02).acquire()
    except TooLong:
        raise Unusable("is locked by somebody else") from None
    with held:
        yield


@cache
def _knows_locks(folder: Path) -> bool:
    """Whether the file system gives locks at all: an NFS mount without its lock daemon has none.

    Asked of a file of our own: closing the database here would drop the locks of every other thread on it.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            fcntl.lockf(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        return e.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOSPC, errno.EDQUOT)  # told by the writer
    return True


def _bounded(place: Place, work: Callable[[float], T], seconds: float) -> T:
    """Run in a thread for a bounded time; whatever is wrong becomes `Unusable`."""
    done: list[Any] = []

    def run() -> None:
        ends = time.monotonic() + seconds
        try:
            done.append((True, _whole(place, work, ends)))
        except BaseException as e:  # noqa: BLE001 - carried over to the caller's thread, which raises it
            done.append((False, e))

    thread = threading.Thread(target=run, name="history", daemon=True)
    thread.start()
    thread.join(seconds + 0.2)
    if not done:
        raise Unusable(f"the history in {place.folder} does not answer")
    good, found = done[0]
    if good:
        return cast(T, found)
    if isinstance(found, Unusable):
        raise Unusable(f"the history in {place.folder} {found}") from None
    if isinstance(found, sqlite3.Error | OSError):
        why = found.strerror if isinstance(found, OSError) and found.strerror else str(found)
        raise Unusable(f"the history in {place.folder} cannot be used: {why}") from None
    raise found


def _whole(place: Place, work: Callable[[float], T], ends: float) -> T:
    """Do the work; once more after a damaged file was set aside."""
    try:
        return work(ends)
    except sqlite3.DatabaseError as e:
        if not _tells_damage(e):
            raise
    with _lock_file(place, ends):
        aside = _set_aside(place, ends)
    found = work(ends)
    if aside:
        raise Unusable(f"was damaged: begun anew, the old file is {aside}")
    return found


def _tells_damage(e: sqlite3.Error) -> bool:
    return getattr(e, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _set_aside(place: Place, ends: float) -> str:
    """Rename the damaged file, its journal with it; empty where somebody else has done so meanwhile."""
    try:
        with closing(_connect(place, ends, True, "rw")) as base:
            if base.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
                return ""
    except sqlite3.DatabaseError as e:
        if not _tells_damage(e):
            raise
    name = f"{place.database.name}.damaged-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    for suffix in ("-journal", ""):
        old = place.folder / f"{place.database.name}{suffix}"
        if old.exists():
            old.rename(place.folder / f"{name}{suffix}")
    return name
