"""Sessions by the steps that are kept of them, read from the database without its library, which is slow to load.

Nothing of this is needed to go on with a session; it tells what was asked and what it was left at.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..store import DATABASE

_BLOB = 32 << 20  # bytes of a step that are unpacked to find its question
_LATEST = (
    "SELECT thread_id, MAX(checkpoint_id) FROM checkpoints WHERE checkpoint_ns = '' GROUP BY thread_id "
    "ORDER BY thread_id DESC LIMIT 300"
)
_INTERRUPTS = "SELECT thread_id, checkpoint_id, value FROM writes WHERE channel = '__interrupt__' LIMIT 1000"
_STEP = (
    "SELECT checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ? "
    "AND length(checkpoint) <= ?"
)


@dataclass(frozen=True, slots=True)
class Begun:
    """A session that has steps: its last step's time and question, and the calls that wait for a yes."""

    session: str
    time: float
    question: str = ""
    waiting: str = ""


def begun(state: Path) -> list[Begun]:
    """All sessions with steps in the database; none where there is no database or it cannot be used."""
    path = state / DATABASE
    if not path.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)) as base:
            latest = [(str(t), str(c)) for t, c in base.execute(_LATEST)]
            asked = {(str(t), str(c)): v for t, c, v in base.execute(_INTERRUPTS)}
            return [_one(base, state, t, c, asked.get((t, c))) for t, c in latest]
    except sqlite3.Error:
        return []


def _one(base: sqlite3.Connection, state: Path, session: str, step: str, interrupt: bytes | None) -> Begun:
    waiting = _calls(_unpacked(interrupt)) if interrupt else ""
    if (state / "reports" / f"{session}.json").exists():  # its report tells the rest
        return Begun(session, 0.0, waiting=waiting)
    row = base.execute(_STEP, (session, step, _BLOB)).fetchone()
    held = _unpacked(row[0]) if row else None
    held = held if isinstance(held, dict) else {}
    values = held.get("channel_values")
    values = values if isinstance(values, dict) else {}
    start = values.get("__start__")
    asked = values.get("question") or (start.get("question") if isinstance(start, dict) else "")
    return Begun(session, _time(held.get("ts"), session), asked if isinstance(asked, str) else "", waiting)


def _unpacked(data: Any) -> Any:
    """A packed value with its extensions as plain lists; None where it is none, or of another form."""
    import ormsgpack

    options = ormsgpack.OPT_NON_STR_KEYS

    def hook(_code: int, inner: bytes) -> Any:
        return ormsgpack.unpackb(inner, ext_hook=hook, option=options)

    try:
        return ormsgpack.unpackb(data, ext_hook=hook, option=options)
    except (ValueError, TypeError, RecursionError):
        return None


def _calls(held: Any) -> str:
    """Calls that wait, in words: `py_spy pid=123`."""
    try:
        calls = held[0][2]["value"]["calls"]
        said = [" ".join([str(c["tool"]), *(f"{k}={v}" for k, v in (c.get("args") or {}).items())]) for c in calls[:4]]
    except (TypeError, KeyError, IndexError, AttributeError):
        return "a question"
    return ", ".join(said)[:400]


def _time(stamp: Any, session: str) -> float:
    """When the step was made; else the time that the id names."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (ValueError, TypeError):
        pass
    try:
        return datetime.strptime(session[:15] + "+0000", "%Y%m%d-%H%M%S%z").timestamp()
    except ValueError:
        return 0.0
