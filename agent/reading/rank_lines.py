"""The lines of one rank: its own last ones, and those in which others speak of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .anchor_lines import Hit
from .anchor_windows import around
from .failures import failures
from .files import Line, RunFile
from .lines import strip
from .logpass import logpass
from .roster import Member, roster

if TYPE_CHECKING:
    from ..workspace import Workspace

LAST, NEAR = 6, 16 << 10  # lines that are told, and bytes before the last one in which they are looked for


def last_lines(ws: Workspace, member: Member) -> list[Line]:
    """The last lines that a rank wrote, oldest first; of a log that several share only those it labels."""
    if member.last is None:
        return []
    near = around(ws, Hit(member.file, member.last, "last"), before=NEAR, after=0)
    whole = [x for x in near if x.number <= member.last.number and x.data.strip()]
    if member.file.rank != member.rank and member.rank is not None:
        whole = [x for x in whole if labelled(ws, member.file, x) == member.rank]
    # a shared log keeps of the rank's last line what follows its label; the file itself has the line whole
    return whole[-LAST:] or [member.last]


def labelled(ws: Workspace, file: RunFile, line: Line) -> int | None:
    """The rank that a line itself names as its writer."""
    summary = logpass(ws).files.get(file.name)
    return strip(line.text, summary.labels if summary else False).rank


def told_of(ws: Workspace, rank: int) -> list[tuple[RunFile, Line, int | None]]:
    """Lines of trouble that other ranks (or their launcher) wrote about this one, with who wrote them."""
    names = re.compile(rf"(?i)\b(?:global_|local_)?rank\s*[:=#\[(]?\s*{rank}\b(?!\.\d)")
    found: dict[tuple[str, int], tuple[RunFile, Line, int | None]] = {}
    wrong = failures(ws)
    lines = [(u.file, u.line, u.rank) for u in wrong.units]
    lines += [(u.file, line, u.rank) for u in wrong.units for line, _ in u.details]
    lines += [(n.file, n.read.line, n.rank) for n in wrong.notes]
    for file, line, who in lines:
        if who != rank and file.rank != rank and names.search(line.text[:4000]):
            found.setdefault((file.name, line.number), (file, line, who))
    return [found[at] for at in sorted(found)]


def was_seen(ws: Workspace, rank: int) -> Member | None:
    """The rank as the roster has it; None where no line and no file name is its own."""
    return roster(ws).members.get(rank)
