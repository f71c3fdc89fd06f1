"""The session database: LangGraph's SQLite checkpointer, private to its owner, one writer at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BUSY_MS = 5000


@contextmanager
def open_checkpoints(folder: Path) -> Iterator[Any]:
    """A checkpointer on `sessions.sqlite` in the state folder (mode 0600).

    A database that SQLite cannot read any more is set aside under another name and a new one begun: old
    sessions are then gone from the list of resumable ones, their reports are not.
    """
    from langgraph.checkpoint.sqlite import SqliteSaver

    path = folder / "sessions.sqlite"
    try:
        connection = _connect(path)
    except sqlite3.DatabaseError:
        path.replace(path.with_suffix(".broken"))
        connection = _connect(path)
    try:
        yield SqliteSaver(connection)
    finally:
        connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600, exist_ok=True)
    path.chmod(0o600)
    connection = sqlite3.connect(path, check_same_thread=False, timeout=BUSY_MS / 1000)
    connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection
