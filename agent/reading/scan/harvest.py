"""What the log pass keeps of one stretch of a file: bounded samples, exact counts, mergeable in order."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..run.clocks import stamp_of
from ..run.files import Piece, newlines
from ..run.lines import Stripped, is_bar, strip, without_escapes
from .anchors import EVENT, FRAME, RANKS, RESTART, WARNING, is_harmless
from .patterns import Pattern, Scanner, searcher

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


# ----------
# A line in which the log pass found something, parsed as far as it is asked for.

_QUICK_RANK = re.compile(rb"\[(?:rank|Rank |default)(\d{1,6})\]|\brank=(\d{1,6})[\])]")


class HitLine:
    """A line in which something was found, parsed as far as it is asked for."""

    __slots__ = (
        "_cache",
        "_labels",
        "_piece",
        "_plain",
        "_rank",
        "_ranked",
        "_start",
        "_stop",
        "anchored",
        "number",
        "offset",
        "warned",
    )

    def __init__(
        self, piece: Piece, plain: bytes, start: int, stop: int, lines: int, labels: bool, starts: np.ndarray | None
    ) -> None:
        self._piece, self._plain, self._start, self._stop, self._labels = piece, plain, start, stop, labels
        self.number = lines + 1
        within = start if starts is None else int(starts[min(lines - piece.lines, len(starts) - 1)])
        self.offset = piece.offset + within
        self.anchored = self.warned = self._ranked = False
        self._cache: dict[int, Found] = {}
        self._rank: int | None = None

    def place(self, at: int) -> int:
        """Offset from which this line is read again: of a very long one, that of the part with the match."""
        if self._stop - self._start <= KEPT or self._plain is not self._piece.data:
            return self.offset
        return self._piece.offset + self._segment(at)[0]

    def quick_rank(self) -> int | None:
        """The rank by a glance at the line's start; the full parse is for lines that are kept."""
        if not self._ranked:
            self._ranked = True
            m = _QUICK_RANK.search(self._plain, self._start, min(self._stop, self._start + 160))
            self._rank = int(next(g for g in m.groups() if g is not None)) if m else None
        return self._rank

    def found(self, at: int, captures: dict[str, str]) -> Found:
        """The line (of a very long or overwritten one, the part around the match) ready to be kept."""
        begin, end = self._start, self._stop
        if end - begin > KEPT or b"\r" in self._plain[begin : min(end, begin + KEPT)].rstrip(b"\r"):
            begin, end = self._segment(at)
        kept = self._cache.get(begin)
        if kept is None:
            kept = self._cache[begin] = self._make(begin, end)
        if not captures:
            return kept
        return Found(kept.number, kept.offset, kept.data, kept.cut, kept.stripped, captures, kept.stamp_text)

    def _make(self, begin: int, end: int) -> Found:
        whole = begin == self._start and end == self._stop
        short = end - begin <= KEPT and self._stop - self._start <= KEPT
        stripped = strip(self._plain[begin:end].decode(errors="replace"), self._labels)
        stamp = stamp_of(self._plain[begin : begin + 200].decode(errors="replace"))
        if short:  # shown as it stands in the file, escapes and bars included
            data, offset, cut = self._raw(), self.offset, False
        else:
            data, cut = self._plain[begin:end], not whole
            offset = self.offset + (begin - self._start)
        return Found(self.number, offset, data, cut, stripped, {}, stamp.text if stamp else "")

    def _raw(self) -> bytes:
        data = self._piece.data
        if self._plain is data:
            return data[self._start : self._stop]
        at = self.offset - self._piece.offset
        stop = data.find(b"\n", at)
        return data[at : stop if stop >= 0 else len(data)][: 2 * KEPT]

    def _segment(self, at: int) -> tuple[int, int]:
        """The overwritten part that holds the match, or a window around it."""
        begin = self._plain.rfind(b"\r", self._start, at) + 1 or self._start
        begin = max(begin, self._start)
        end = self._plain.find(b"\r", at, self._stop)
        end = self._stop if end < 0 else end
        if end - begin > KEPT:
            begin = max(begin, at - KEPT // 2)
            end = min(end, begin + KEPT)
        return begin, end

    def captures(self, regex: str, at: int) -> dict[str, str] | None:
        """Named groups of the pattern in this line's body; None where the second look finds no match."""
        search = searcher(regex)
        if search is None:
            return None
        found = self.found(at, {})
        m = search.search(found.stripped.body)
        if m is None:  # a signature may speak of the header too, and of what a bar overwrote
            m = search.search(without_escapes(found.data).decode(errors="replace").rstrip("\r"))
        return {k: v for k, v in m.groupdict().items() if v is not None} if m else None


def line_starts(data: bytes) -> np.ndarray:
    """Where each line of a block starts."""
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10) + 1
    return np.concatenate((np.zeros(1, dtype=ends.dtype), ends))


# ----------
# Lines that speak of a failure instead of printing one.
#
# What quotes the words of a failure proves none: a note that says `if you see "CUDA out of memory" ...`, a conversation
# that is training data or a rollout, an answer of a tool kept in a log. Reading such a line as the failure itself would
# let whoever writes it choose the verdict. Nor does a list of what may have happened say what did: Ray prints the
# out-of-memory killer, a forced stop and a crash below every worker that is gone.

# A quotation that a sentence opens: two words, then the mark. `message="..."`, `Error: '...'`, `Cuda failure '...'` and
# `raise X("...")` are how programs print what they got.
_OPENED = re.compile("[A-Za-z]{2,} [A-Za-z]{2,}[,;:]? [\"'\u2018\u201c][^\"'\u2019\u201d]*$")
_PRINTED = re.compile(r"(?i)error|fail|warn|exception|unexpected|could not|cannot|raised|died")
# What opens a list of guesses; or one of Ray's on a line of its own.
_GUESSES = re.compile(
    r"(?i)\b(?:potential|possible|likely|common|probable) (?:root )?(?:causes?|reasons?)\b"
    r"|^\W{0,8}\(?\d\)\s+The process is killed by SIGKILL by OOM"
)
_RECORD = re.compile(r'\W{0,4}"(?:role|messages|conversations|prompt|cause|tool_call_id)"\s*:')


def is_hearsay(body: str, begins: Callable[[], int | None]) -> bool:
    """Whether what a pattern finds in a line is only spoken of there.

    Args:
        body: the line without what its logger put before it.
        begins: where in it the match starts; asked only where a quotation opens.
    """
    if _RECORD.match(body):
        return True
    if (guesses := _GUESSES.search(body)) and (at := begins()) is not None and at >= guesses.start():
        return True
    if ' "' not in body and " '" not in body and "\u201c" not in body and "\u2018" not in body:
        return False
    at = begins()
    return at is not None and _OPENED.search(body[:at]) is not None and not _PRINTED.search(body[:at])


def stated(body: str) -> str:
    """A line as far as it states something: without the list of possible causes that follows."""
    guesses = _GUESSES.search(body)
    return body[: guesses.start()] if guesses else body


# ----------
# The log pass over one stretch of one file: patterns over blocks, a second look at the lines that were hit.

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
