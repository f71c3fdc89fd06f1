"""Ranks that kept working while the others already waited for them in a collective: late, neither dead nor stuck."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .anchor_lines import Hit
from .anchor_windows import around
from .clocks import Stamp, stamp_of
from .files import Line, RunFile
from .roster import roster

if TYPE_CHECKING:
    from ..workspace import Workspace

ABOVE = 48 << 10  # bytes above the first report in which lines of a late rank are looked for
ZONE = 1800.0  # clocks of one machine differ by whole half hours where one of them prints UTC
DAY = 86400.0
NAMES_RANK = re.compile(r"(?i)(?:\brank ?[=:#]? ?|\[|\()(?P<rank>\d{1,6})(?:\]|\b(?: ?/ ?\d+\))?)")


def working(ws: Workspace, ranks: Iterable[int], report: Hit, limit_ms: int) -> dict[int, tuple[RunFile, Line]]:
    """The last line of each given rank that was written while the reporting one waited, late in its wait.

    A rank that died wrote nothing in that time; one stuck in its own code wrote nothing late in it.
    """
    told = stamp_of(report.text)
    found: dict[int, tuple[RunFile, Line]] = {}
    if told is None or limit_ms <= 0:
        return found
    own = roster(ws).members
    shared = around(ws, report, before=ABOVE, after=0)[:-1]
    for rank in ranks:
        member = own.get(rank)
        places = [(report.file, line) for line in reversed(shared) if _of(line.text) == rank]
        if member is not None and member.last is not None:
            places.append((member.file, member.last))
        for file, line in places[:1]:
            if _late(stamp_of(line.text), told, limit_ms / 1000):
                found[rank] = (file, line)
    return found


def _of(text: str) -> int | None:
    """The rank that a stamped line names right behind its stamp; other numbers of a line name nobody."""
    stamp = stamp_of(text)
    if stamp is None:
        return None
    behind = text.split(stamp.text, 1)[-1][:60]
    m = NAMES_RANK.search(behind)
    return int(m["rank"]) if m and "rank" in behind[: m.end()].lower() else None


def _late(line: Stamp | None, told: Stamp, limit: float) -> bool:
    """Whether a line was written in the last half of the wait that ended with `told`."""
    if line is None or "uptime" in (line.kind, told.kind):
        return False
    apart = (told.value - line.value) % DAY
    if apart <= limit / 2:
        return line.kind != told.kind or told.value >= line.value
    return line.kind != told.kind and apart % ZONE <= min(limit / 5, 120.0)
