"""What a diagnosed session really was, as somebody said afterwards."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass

_COLUMNS = ("session", "time", "user", "said", "truth", "framework", "error", "note", "incident")


@dataclass(frozen=True, slots=True)
class Correction:
    """The verdict of a session (`said`) and the truth about it; the two are equal where the verdict was right."""

    session: str
    time: str
    user: str
    said: str
    truth: str
    framework: str = ""
    error: str = ""
    note: str = ""
    incident: str = ""


def put(base: sqlite3.Connection, correction: Correction) -> None:
    """Keep it; an earlier one about the same session gives way."""
    marks = ", ".join(f":{name}" for name in _COLUMNS)
    base.execute(f"INSERT OR REPLACE INTO corrections ({', '.join(_COLUMNS)}) VALUES ({marks})", asdict(correction))


def take_back(base: sqlite3.Connection, session: str) -> Correction | None:
    """Forget what was said about a session; gives what that was."""
    kept = about(base, session)
    base.execute("DELETE FROM corrections WHERE session = ?", (session,))
    return kept


def about(base: sqlite3.Connection, session: str) -> Correction | None:
    """What was said about a session."""
    return next((c for c in everything(base) if c.session == session), None)


def everything(base: sqlite3.Connection) -> list[Correction]:
    """All of them, oldest first."""
    rows = base.execute(f"SELECT {', '.join(_COLUMNS)} FROM corrections ORDER BY time, session")
    return [Correction(**dict(row)) for row in rows]
