"""What the log pass keeps of one stretch of a file: bounded samples, exact counts, mergeable in order."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from .lines import Stripped

FIRST, LAST = 6, 2  # hits kept of one pattern and rank in one file
SLOTS = 20_000  # (pattern, rank) pairs of one file that keep lines of their own
ANCHORS = 1500  # places kept at either end of a stretch
TEMPLATES = 120  # distinct warnings of one file
KEPT = 4096  # bytes of a line that are kept

_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?|'[^']{24,}'|/[\w./\-]{12,}")


@dataclass(slots=True)
class Found:
    """One line that was hit. `number` counts lines from the start of the stretch until it is merged."""

    number: int
    offset: int
    data: bytes
    cut: bool
    stripped: Stripped
    captures: dict[str, str]
    stamp_text: str = ""


@dataclass(slots=True)
class Slot:
    """Hits of one pattern and rank: the first few, the last few, and how many there were."""

    count: int = 0
    first: list[Found] = field(default_factory=list)
    last: deque[Found] = field(default_factory=lambda: deque(maxlen=LAST))

    def add(self, found: Found) -> None:
        self.count += found.stripped.repeated
        (self.first if len(self.first) < FIRST else self.last).append(found)

    def extend(self, later: Slot) -> None:
        self.count += later.count
        for found in (*later.first, *later.last):
            (self.first if len(self.first) < FIRST else self.last).append(found)

    @property
    def kept(self) -> list[Found]:
        return [*self.first, *self.last]


@dataclass(slots=True)
class RankSeen:
    """Where a rank spoke: how often (sampled in dense logs), and its first and last line."""

    lines: int = 0
    first_line: int = 0
    first_offset: int = 0
    last_line: int = 0
    last_offset: int = 0


@dataclass(slots=True)
class Harvest:
    """Everything kept of one stretch."""

    lines: int = 0
    bytes: int = 0
    slots: dict[tuple[int, int | None], Slot] = field(default_factory=dict)
    anchors: list[tuple[int, int]] = field(default_factory=list)  # (offset, line) of event lines
    late_anchors: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=ANCHORS))
    restarts: list[Found] = field(default_factory=list)
    warnings: dict[str, Slot] = field(default_factory=dict)
    warned: int = 0
    events: int = 0
    ranks: dict[int, RankSeen] = field(default_factory=dict)
    head: bytes = b""
    tail: bytes = b""
    tail_offset: int = 0
    tail_line: int = 0
    unterminated: bool = False

    def anchor(self, offset: int, line: int) -> None:
        """Remember where something happened, at both ends if there is too much."""
        self.events += 1
        if len(self.anchors) < ANCHORS:
            self.anchors.append((offset, line))
        else:
            self.late_anchors.append((offset, line))

    def rank(self, rank: int, line: int, offset: int, lines: int = 1) -> None:
        """Note that a rank spoke."""
        seen = self.ranks.get(rank)
        if seen is None:
            seen = self.ranks[rank] = RankSeen(0, line, offset)
        seen.lines += lines
        seen.last_line, seen.last_offset = line, offset

    def append(self, later: Harvest) -> None:
        """Join the stretch that follows this one; its line numbers move by the lines of this one."""
        shift = self.lines
        moved = [f for slot in (*later.slots.values(), *later.warnings.values()) for f in slot.kept] + later.restarts
        for found in {id(f): f for f in moved}.values():  # several patterns may share a line
            found.number += shift
        for key, slot in later.slots.items():
            self.slots.setdefault(key, Slot()).extend(slot)
        for template, slot in later.warnings.items():
            if template in self.warnings or len(self.warnings) < TEMPLATES:
                self.warnings.setdefault(template, Slot()).extend(slot)
        self.restarts = (self.restarts + later.restarts)[:64]
        for offset, line in (*later.anchors, *later.late_anchors):
            self.anchor(offset, line + shift)
        self.events += later.events - len(later.anchors) - len(later.late_anchors)
        self.warned += later.warned
        for rank, seen in later.ranks.items():
            self.rank(rank, seen.first_line + shift, seen.first_offset, seen.lines)
            self.ranks[rank].last_line, self.ranks[rank].last_offset = seen.last_line + shift, seen.last_offset
        self.head = self.head or later.head
        if later.bytes:
            self.tail, self.tail_offset = later.tail, later.tail_offset
            self.tail_line, self.unterminated = later.tail_line + shift, later.unterminated
        self.lines += later.lines
        self.bytes += later.bytes


def template(body: str) -> str:
    """A line with its varying parts taken out, so that the same warning counts once."""
    return _VARYING.sub("#", body[:400])
