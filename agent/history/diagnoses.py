"""One row for each diagnosed session, and earlier rows of the same job or node."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta

from ..report import Before

BEFORE = 5
_COLUMNS = (
    "session", "time", "user", "host", "job", "job_id", "folder", "root", "cause", "status", "confidence", "framework",
    "error", "gpus", "step", "attempt", "failure",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """A diagnosis as the history keeps it.

    Attributes:
        time: UTC, ISO 8601 to the second.
        job: the name that the run gives its job; `folder` its folder without stamps and counts of attempts.
        nodes: those at fault, else where it broke first.
        error: the first error without its numbers; `framework` and it tell whether two failures are alike.
        failure: tells this failure from another of the same job; the same failure diagnosed again has the same.
    """

    session: str
    time: str
    user: str
    host: str
    folder: str
    root: str
    cause: str
    status: str
    failure: str
    job: str = ""
    job_id: str = ""
    confidence: float = 0.0
    framework: str = ""
    error: str = ""
    gpus: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    step: int | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for; empty fields ask for nothing. `job` is part of a name or a folder, or a whole id."""

    cause: str = ""
    node: str = ""
    job: str = ""
    since: timedelta | None = None
    limit: int = 20


def now() -> str:
    """The time as rows keep it."""
    return stamp(datetime.now(UTC))


def stamp(when: datetime) -> str:
    """UTC to the second; it sorts as text."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def put(base: sqlite3.Connection, entry: Entry) -> None:
    """Keep a row; one of the same session gives way."""
    row = asdict(entry) | {"gpus": json.dumps(entry.gpus)}
    marks = ", ".join(f":{name}" for name in _COLUMNS)
    base.execute(f"INSERT OR REPLACE INTO diagnoses ({', '.join(_COLUMNS)}) VALUES ({marks})", row)
    base.execute("DELETE FROM nodes WHERE session = ?", (entry.session,))
    base.executemany("INSERT OR IGNORE INTO nodes VALUES (?, ?)", [(entry.session, n) for n in entry.nodes])


def found(base: sqlite3.Connection, wanted: Wanted) -> list[Entry]:
    """Rows that fit, newest first."""
    tests, values = ["1"], []
    if wanted.cause:
        tests.append("cause = ?")
        values.append(wanted.cause)
    if wanted.node:
        tests.append("session IN (SELECT session FROM nodes WHERE node = ?)")
        values.append(wanted.node)
    if wanted.job:
        tests.append("(instr(job, ?) OR instr(folder, ?) OR job_id = ?)")
        values += [wanted.job] * 3
    if wanted.since is not None:
        tests.append("time >= ?")
        values.append(stamp(datetime.now(UTC) - wanted.since))
    return _rows(base, f"{' AND '.join(tests)} ORDER BY time DESC, session DESC LIMIT ?", [*values, wanted.limit])


def by_session(base: sqlite3.Connection, session: str) -> Entry | None:
    """The row of a session."""
    return next(iter(_rows(base, "session = ?", [session])), None)


def earlier(base: sqlite3.Connection, entry: Entry) -> list[Entry]:
    """Other failures of the same cause that share its job or a node, newest first, each failure once."""
    marks = ", ".join("?" * len(entry.nodes))
    shared = f"OR session IN (SELECT session FROM nodes WHERE node IN ({marks}))" if entry.nodes else ""
    rows = _rows(
        base,
        "cause = ? AND session != ? AND failure != ?"
        f" AND (folder = ? OR (job != '' AND job = ? AND user = ?) {shared}) ORDER BY time DESC LIMIT 200",
        [entry.cause, entry.session, entry.failure, entry.folder, entry.job, entry.user, *entry.nodes],
    )
    return list({r.failure: r for r in reversed(rows)}.values())[::-1]


def same_job(one: Entry, other: Entry) -> bool:
    """Whether two rows are of one job: in one folder, or of one name by one user."""
    return one.folder == other.folder or (one.job != "" and (one.job, one.user) == (other.job, other.user))


def as_before(entry: Entry, now: Entry) -> Before:
    """An earlier row as the report tells it."""
    same = [
        "cause",
        *(["job"] if same_job(entry, now) else []),
        *(["node"] if set(entry.nodes) & set(now.nodes) else []),
    ]
    fields = {"session": entry.session, "time": entry.time, "cause": entry.cause, "status": entry.status}
    return Before.model_validate({**fields, "same": same, "nodes": entry.nodes})


def _rows(base: sqlite3.Connection, where: str, values: Iterable[object]) -> list[Entry]:
    rows = base.execute(f"SELECT {', '.join(_COLUMNS)} FROM diagnoses WHERE {where}", list(values)).fetchall()
    made = []
    for row in rows:
        nodes = [
            n[0] for n in base.execute("SELECT node FROM nodes WHERE session = ? ORDER BY node", (row["session"],))
        ]
        made.append(Entry(**{**dict(row), "gpus": json.loads(row["gpus"] or "[]"), "nodes": nodes}))
    return made
