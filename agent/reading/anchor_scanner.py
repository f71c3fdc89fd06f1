"""Many literals over blocks of bytes, without case, at the price of the lines that matter.

A log of NCCL's INFO lines holds a literal in each line. A first scan asks which literals a block holds at all;
only those that have not been seen often enough are then looked up one by one.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from functools import cache
from typing import Any, Protocol

try:
    import hyperscan
except ImportError:  # no wheel for this machine
    hyperscan: Any = None

ENOUGH = 1500  # hits of one literal in a file; from then on the first of each block


class Scanner(Protocol):
    """Finds `(end of match, topic)` pairs in a block of whole lines, in no order; `seen` counts by literal."""

    def scan(self, block: bytes, seen: Counter[int]) -> list[tuple[int, str]]: ...


@cache
def scanner_of(words: tuple[tuple[str, str], ...]) -> Scanner:
    """A scanner for `(topic, literal)` pairs."""
    return _Plain(words) if hyperscan is None else _Fast(words)


class _Fast:
    def __init__(self, words: tuple[tuple[str, str], ...]) -> None:
        self.topics = [topic for topic, _ in words]
        self.literals = [re.escape(word).encode() for _, word in words]
        self.present = _database(self.literals, hyperscan.HS_FLAG_SINGLEMATCH)
        self.single: dict[int, Any] = {}

    def scan(self, block: bytes, seen: Counter[int]) -> list[tuple[int, str]]:
        first: dict[int, int] = {}

        def note(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            first[number] = end

        self.present.scan(block, match_event_handler=note)
        found: list[tuple[int, str]] = []
        for number, end in first.items():
            ends = [end] if seen[number] >= ENOUGH else self._all(number, block)
            seen[number] += len(ends)
            found += [(e, self.topics[number]) for e in ends]
        return found

    def _all(self, number: int, block: bytes) -> list[int]:
        if number not in self.single:
            self.single[number] = _database([self.literals[number]], 0)
        ends: list[int] = []

        def note(_number: int, _start: int, end: int, _flags: int, _context: object) -> bool | None:
            ends.append(end)
            return True if len(ends) >= ENOUGH else None

        with contextlib.suppress(hyperscan.ScanTerminated):  # enough of them
            self.single[number].scan(block, match_event_handler=note)
        return ends


def _database(literals: list[bytes], flags: int) -> Any:
    database = hyperscan.Database()
    database.compile(
        expressions=literals,
        ids=list(range(len(literals))),
        flags=[hyperscan.HS_FLAG_CASELESS | flags] * len(literals),
    )
    return database


class _Plain:
    """Without hyperscan: one alternation of literals for each topic."""

    def __init__(self, words: tuple[tuple[str, str], ...]) -> None:
        groups: dict[str, list[str]] = {}
        for topic, word in words:
            groups.setdefault(topic, []).append(re.escape(word))
        self.patterns = [(t, re.compile("|".join(g).encode(), re.IGNORECASE)) for t, g in groups.items()]

    def scan(self, block: bytes, seen: Counter[int]) -> list[tuple[int, str]]:
        found = []
        for number, (topic, pattern) in enumerate(self.patterns):
            for m in pattern.finditer(block):
                found.append((m.end(), topic))
                seen[number] += 1
        return found
