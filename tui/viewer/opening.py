"""What the viewer does away from the screen's thread: open a file at a place, find a line, find another rank's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...agent.telling.views.excerpt import Excerpt, Row, Watch
from ...agent.telling.views.other_ranks import Moment, Name, Peer, Place, moment, own, peers, same_file, same_moment

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation
    from ...agent.core.report import CitedEvidence, Report

CHUNK = 300  # rows that are fetched at once, each way


@dataclass(slots=True)
class Opened:
    """A stretch of a file with the row to stand on, and what is to be said about it."""

    page: Excerpt
    rows: list[Row]
    at: int
    message: str = ""
    how: str = ""  # `rank 3 -> rank 4 at step 4,012`
    name: Name | None = None  # whose file it is
    when: Moment | None = None
    known: list[Peer] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class From:
    """The row from which one jumps to another rank.

    Attributes:
        rank: who wrote it, if evidence or an earlier jump tells.
        when: its moment, where it was reached by a jump: that of the row before.
    """

    page: Excerpt
    row: Row
    rank: int | None = None
    when: Moment | None = None


def has(talk: Conversation, name: str) -> bool:
    """Whether a file of this name is among those of the run."""
    return any(f.name == name for f in talk.workspace.everything)


def cited_lines(report: Report, name: str) -> dict[int, tuple[int, str]]:
    """Offset of each cited line of a file -> its number and its ids."""
    found: dict[int, tuple[int, str]] = {}
    for e in report.evidence:
        if e.kind == "line" and e.file == name and e.offset is not None and e.line:
            ids = found[e.offset][1] if e.offset in found else ""
            found[e.offset] = (e.line, ",".join(filter(None, (ids, e.id))))
    return found


def opened(talk: Conversation, report: Report, name: str, watch: Watch) -> Excerpt:
    """A file ready to be read, with the line numbers that evidence tells."""
    file = next(f for f in talk.workspace.everything if f.name == name)
    return Excerpt(file, {at: number for at, (number, _) in cited_lines(report, name).items()}).opened(watch)


def at_evidence(talk: Conversation, report: Report, e: CitedEvidence, watch: Watch) -> Opened:
    """Its file at the cited line; where the file is shorter now, its end."""
    page = opened(talk, report, e.file or "", watch)
    if e.offset is None:
        found = around(page, *page.place_of(e.line or 1, watch))
    elif e.offset >= page.measured():
        rows = page.ending(CHUNK)
        found = Opened(page, rows, len(rows) - 1)
    else:
        found = around(page, e.offset, e.line)
    if not page.says(e) and e.line:
        found.message = f"line {e.line:,} no longer says what {e.id} cites"
    return _told(found)


def at_line(talk: Conversation, report: Report, place: tuple[str, int], watch: Watch) -> Opened:
    """A file at a line, by its number."""
    page = opened(talk, report, place[0], watch)
    return _told(around(page, *page.place_of(max(place[1], 1), watch)))


def around(page: Excerpt, offset: int, number: int | None) -> Opened:
    """The rows about a place; the last ones where the file ends before it."""
    if offset >= page.measured():
        rows = page.ending(CHUNK)
        gone = f"line {number:,} is not there any more" if number and offset else ""
        return Opened(page, rows, max(len(rows) - 1, 0), gone)
    before = page.before(offset, number, CHUNK)
    rows = [*before, *page.after(offset, number, CHUNK)]
    return Opened(page, rows, min(len(before), max(len(rows) - 1, 0)))


def at_peer(
    talk: Conversation, report: Report, start: From, wanted: Name, beside: bool, known: list[Peer], watch: Watch
) -> Opened | str:
    """Another rank's log at the moment of a row, or why there is none.

    Args:
        wanted: a rank by its name; with `beside`: -1 for the one before, 1 for the one after.
        known: the ranks, where they were looked for before.
    """
    page, row = start.page, start.row
    known = known or peers(talk.workspace, page.file)
    here = own(known, page.file, row.text, start.rank)
    peer = _peer(known, here, wanted, beside)
    if isinstance(peer, str):
        return peer
    when = start.when or moment(page, row)
    there = page if peer.file.name == page.file.name else opened(talk, report, peer.file.name, watch)
    place = same_file(page, row, peer.name, watch) if there is page else same_moment(there, when, watch)
    if peer.shared and there is not page:  # of a log of many ranks that rank's own line is meant
        near = there.row(place.offset, None) if place.offset is not None else next(iter(there.ending(1)), None)
        its = same_file(there, near, peer.name, watch) if near is not None else place
        place = Place(its.offset, place.how) if its.offset is not None else place
    if place.offset is None:
        rows = there.ending(CHUNK)
        found = Opened(there, rows, max(len(rows) - 1, 0))
    else:
        found = around(there, place.offset, there.number_at(place.offset, watch))
    whose = next((p.title for p in known if p.name == here), "this log")
    found.how = f"{whose} -> {peer.title}{' ' if place.how.startswith('at ') else ': '}{place.how}"
    found.name, found.when, found.known = peer.name, when, known
    return _told(found)


def _peer(known: list[Peer], here: Name | None, wanted: Name, beside: bool) -> Peer | str:
    """The rank that is wanted, or why there is none."""
    names = [p.name for p in known]
    if not [n for n in names if n != here]:
        return "no other rank of this run has a log here"
    if not beside or not isinstance(wanted, int):
        return known[names.index(wanted)]
    if here not in names:
        return known[0]
    at = names.index(here) + wanted
    if 0 <= at < len(names):
        return known[at]
    return f"{known[names.index(here)].title} is the {'first' if at < 0 else 'last'}"


def _told(found: Opened) -> Opened:
    """With what happened to the file, and what could not be unpacked."""
    parts = [found.page.changed(), found.message, *found.page.notes[:1]]
    found.message = "; ".join(p for p in parts if p)
    return found
