"""Nodes and causes that come again and again."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from ..restart.advice import outcomes

LATEST = 5  # hardware diagnoses that "of the last" speaks of
OFTEN = 2  # of them that name a node


@dataclass(frozen=True, slots=True)
class Recurring:
    """A node or a cause, how often it was named by diagnoses of different failures, of how many, and when last."""

    name: str
    times: int
    of: int
    last: str


def hardware() -> tuple[str, ...]:
    """Causes that lie in a node."""
    return tuple(sorted(cause for cause, o in outcomes().items() if o.advice == "restart_excluding"))


def recurring_nodes(base: sqlite3.Connection, latest: int = LATEST) -> list[Recurring]:
    """Nodes named more than once among the latest diagnoses of hardware, most often named first."""
    marks = ", ".join("?" * len(hardware()))
    last = f"SELECT failure, max(time) AS time, session FROM diagnoses WHERE cause IN ({marks})"
    rows = base.execute(
        f"WITH latest AS ({last} GROUP BY failure ORDER BY max(time) DESC LIMIT ?)"
        " SELECT node, count(*) AS times, (SELECT count(*) FROM latest) AS among, max(latest.time) AS last"
        " FROM latest JOIN nodes ON nodes.session = latest.session"
        " GROUP BY node HAVING count(*) >= ? ORDER BY times DESC, last DESC, node",
        (*hardware(), latest, OFTEN),
    )
    return [Recurring(r["node"], r["times"], r["among"], r["last"]) for r in rows]


def recurring_causes(base: sqlite3.Connection, most: int = 5) -> list[Recurring]:
    """Causes of more than one failure, most often first; what names no cause is left out."""
    rows = base.execute(
        "SELECT cause, count(DISTINCT failure) AS times, (SELECT count(DISTINCT failure) FROM diagnoses) AS among,"
        " max(time) AS last FROM diagnoses WHERE cause NOT LIKE 'none.%'"
        " GROUP BY cause HAVING count(DISTINCT failure) >= ? ORDER BY times DESC, last DESC, cause LIMIT ?",
        (OFTEN, most),
    )
    return [Recurring(r["cause"], r["times"], r["among"], r["last"]) for r in rows]
