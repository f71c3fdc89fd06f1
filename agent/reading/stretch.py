"""The log pass over one stretch of one file: patterns over blocks, a second look at the lines that were hit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from .anchors import EVENT, FRAME, RANKS, RESTART, WARNING, is_harmless
from .harvest import SLOTS, TEMPLATES, Harvest, Slot, template
from .hearsay import is_hearsay
from .hit_line import HitLine, line_starts
from .lines import is_bar, without_escapes
from .patterns import Pattern, Scanner, searcher
from .pieces import Piece, newlines

TAIL = 1 << 16
CHECKED = 5000  # hits of one pattern in a stretch that get the second look; beyond it they are believed
DENSE = 1500  # rank labels in a block beyond which only its ends are looked at
WARNINGS_READ = 20_000

_RANK = re.compile(
    rb"\[(?:rank|Rank |RANK |rank: |default)(\d{1,6})\]|\brank=(\d{1,6})[\])]"
    rb"|\.py:\d{1,6}\] \((\d{1,4})/(?P<of>\d{1,4})\) "
)
_LABEL = re.compile(rb"(?m)^(\d{1,5}): ")


class Stretch:
    """Reads pieces of one file into a harvest."""

    def __init__(self, patterns: Sequence[Pattern], scanner: Scanner, labels: bool) -> None:
        self._patterns, self._scanner, self._labels = patterns, scanner, labels
        self._checked: dict[int, int] = {}
        self._starts: np.ndarray | None = None  # of the lines of a block that held escapes
        self.harvest = Harvest()

    def read(self, pieces: Iterable[Piece]) -> Harvest:
        h = self.harvest
        before = b""
        for piece in pieces:
            if not h.head:
                h.head = piece.data[:TAIL]
            self._piece(piece)
            count = newlines(piece.data)
            kept = piece.data[-TAIL:] if len(piece.data) >= TAIL else (before + piece.data)[-TAIL:]
            before = kept
            h.tail, h.tail_offset = kept, piece.offset + len(piece.data) - len(kept)
            h.lines = piece.lines + count
            h.tail_line = h.lines - newlines(kept)
            h.unterminated = not piece.data.endswith(b"\n")
            h.bytes += len(piece.data)
        return h

    def _piece(self, piece: Piece) -> None:
        data = piece.data
        plain = without_escapes(data) if b"\x1b" in data else data
        self._starts = None if plain is data else line_starts(data)
        matches = self._scanner.scan(plain)
        labelled = any(self._patterns[index].name == RANKS for index, _ in matches)
        if labelled or self._labels:
            self._ranks(piece, plain, labelled)
        if matches:
            self._look(piece, plain, sorted(matches, key=lambda m: m[1]))

    def _look(self, piece: Piece, plain: bytes, matches: list[tuple[int, int]]) -> None:
        """Go through the hit lines in order; several patterns on one line share its parse."""
        counted, lines = 0, piece.lines
        start = stop = -1
        line: HitLine | None = None
        for index, end in matches:
            if self._patterns[index].once:
                continue
            at = max(end - 1, 0)
            if not start <= at <= stop or line is None:
                start = plain.rfind(b"\n", 0, at) + 1
                stop = plain.find(b"\n", at)
                stop = len(plain) if stop < 0 else stop
                lines += plain.count(b"\n", counted, start)
                counted = start
                line = HitLine(piece, plain, start, stop, lines, self._labels, self._starts)
            self._hit(index, line, at)

    def _hit(self, index: int, line: HitLine, at: int) -> None:
        pattern, h = self._patterns[index], self.harvest
        name = pattern.name
        if name in (EVENT, FRAME):
            if line.anchored:
                return
            line.anchored = True
            h.anchor(line.place(at), line.number)
        elif name == WARNING:
            self._warning(line, at)
        elif name == RESTART:
            if len(h.restarts) < 64 and (not h.restarts or h.restarts[-1].number != line.number):
                h.restarts.append(line.found(at, {}))
        else:
            self._signature(index, pattern, line, at)

    def _signature(self, index: int, pattern: Pattern, line: HitLine, at: int) -> None:
        h = self.harvest
        checked = self._checked.get(index, 0)
        rank = line.quick_rank()
        slot = h.slots.get((index, rank))
        if checked >= CHECKED and slot is not None and len(slot.last) == slot.last.maxlen and pattern.verify:
            slot.count += 1
            slot.last.append(line.found(at, {}))
            return
        self._checked[index] = checked + 1
        captures = line.captures(pattern.regex, at) if pattern.verify else {}
        if captures is None:
            return
        found = line.found(at, captures)
        if is_hearsay(found.stripped.body, lambda: _begin(pattern.regex, found.stripped.body)):
            return
        if slot is None:
            key = (index, rank if len(h.slots) < SLOTS else None)
            slot = h.slots.setdefault(key, Slot())
        slot.add(found)

    def _warning(self, line: HitLine, at: int) -> None:
        h = self.harvest
        if line.warned:
            return
        line.warned = True
        h.warned += 1
        if h.warned > WARNINGS_READ:
            return
        found = line.found(at, {})
        body = found.stripped.body
        if is_bar(found.data) or is_harmless(body):
            return
        shape = template(body)
        if shape in h.warnings or len(h.warnings) < TEMPLATES:
            h.warnings.setdefault(shape, Slot()).add(found)

    def _ranks(self, piece: Piece, plain: bytes, labelled: bool) -> None:
        ends = [(0, TAIL), (max(len(plain) - TAIL, TAIL), len(plain))]
        shape, spans = _LABEL, ends
        if labelled:
            shape = _RANK
            dense = plain.count(b"rank") + plain.count(b"[default") + plain.count(b"] (") > DENSE
            spans = ends if dense else [(0, len(plain))]
        counted, lines = 0, piece.lines
        for begin, end in spans:
            for m in shape.finditer(plain, begin, min(end, len(plain))):
                lines += plain.count(b"\n", counted, m.start())
                counted = m.start()
                if shape is _RANK and m["of"] and int(m[3]) >= int(m["of"]):
                    continue  # `(8/8)` counts something else
                start = plain.rfind(b"\n", 0, m.start()) + 1
                if self._starts is not None:  # escapes were taken off: the line begins elsewhere in the file
                    start = int(self._starts[lines - piece.lines])
                self.harvest.rank(int(next(g for g in m.groups() if g is not None)), lines + 1, piece.offset + start)


def _begin(regex: str, body: str) -> int | None:
    search = searcher(regex)
    m = search.search(body) if search else None
    return m.start() if m else None
