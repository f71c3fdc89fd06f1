"""The session database: LangGraph's SQLite checkpointer, private to its owner, one writer at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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
