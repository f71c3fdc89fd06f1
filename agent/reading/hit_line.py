"""A line in which the log pass found something, parsed as far as it is asked for."""

from __future__ import annotations

import re

import numpy as np

from .clocks import stamp_of
from .harvest import KEPT, Found
from .lines import strip, without_escapes
from .patterns import searcher
from .pieces import Piece

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
