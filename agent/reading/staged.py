"""The hyperscan pass in two stages: rare literals over everything, the patterns themselves over the lines they hit."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from ..paths import cache_folder
from .compiled import Database, hyperscan, keep, read_kept
from .literals import cover
from .patterns import Match, Pattern, Re2Scanner, relaxed

_FORMAT = "4"


@dataclass(frozen=True, slots=True)
class Plan:
    """Which literals stand for the patterns, and which patterns have none and are looked for themselves."""

    literals: list[tuple[str, bool]]
    direct: list[int]


def plan(patterns: list[Pattern]) -> Plan:
    """Made once for a set of patterns, and kept in the cache."""
    digest = hashlib.sha256(repr((_FORMAT, [(p.regex, p.once) for p in patterns])).encode()).hexdigest()[:24]
    path = cache_folder() / f"literals-{digest}.json"
    if (kept := read_kept(path)) is not None:
        data = json.loads(kept)
        return Plan([(text, caseless) for text, caseless in data["literals"]], data["direct"])
    literals, direct = cover("" if p.once else relaxed(p.regex) for p in patterns)
    made = Plan(literals, direct)
    keep(path, json.dumps({"literals": made.literals, "direct": made.direct}).encode())
    return made


class StagedScanner:
    """Finds which patterns occur in which lines. What hyperscan refuses goes to re2, what both refuse to `refused`."""

    def __init__(self, patterns: list[Pattern]) -> None:
        made = plan(patterns)
        self._count = len(patterns)
        regexes = [(relaxed(p.regex).encode(), hyperscan.HS_FLAG_SINGLEMATCH if p.once else 0) for p in patterns]
        self._patterns = Database(regexes)
        direct = [i for i in made.direct if i not in self._patterns.refused]
        caseless = hyperscan.HS_FLAG_CASELESS
        first = [regexes[i] for i in direct]
        first += [(re.escape(text).encode(), caseless if ignored else 0) for text, ignored in made.literals]
        self._first = Database(first)
        self._direct = direct
        odd = {i: patterns[i] for i in self._patterns.refused}
        self._rest = Re2Scanner(list(odd.values()), list(odd)) if odd else None
        self.refused: dict[int, str] = self._rest.refused if self._rest else {}
        self._local = threading.local()

    def scan(self, block: bytes) -> list[Match]:
        """Each pattern and line in which it occurs, once."""
        found: list[Match] = []
        lines = self._candidates(block, found)
        if lines:
            self._second(block, lines, found)
        if self._rest:
            found += self._rest.scan(block)
        return found

    def _candidates(self, block: bytes, found: list[Match]) -> list[tuple[int, int]]:
        """Lines that hold a literal, as `(start, stop)`; what is looked for directly goes to `found`."""
        lines: list[tuple[int, int]] = []
        count, direct = len(self._direct), self._direct
        limit = -1
        seen: dict[int, int] = {}

        def note(hit: int, _start: int, end: int, _flags: int, _context: Any) -> None:
            nonlocal limit
            if hit < count:
                if seen.get(hit, -1) < end:
                    seen[hit] = _stop(block, end)
                    found.append((direct[hit], end))
            elif end > limit:
                limit = _stop(block, end)
                lines.append((block.rfind(b"\n", 0, end - 1) + 1, limit))

        self._first.made.scan(block, match_event_handler=note, scratch=self._scratch("first", self._first.made))
        return lines

    def _second(self, block: bytes, lines: list[tuple[int, int]], found: list[Match]) -> None:
        """The patterns over the candidate lines alone."""
        starts, at, parts = [], 0, []
        for start, stop in lines:
            starts.append(at)
            parts.append(block[start:stop])
            at += stop - start + 1
        joined = b"\n".join(parts)
        seen: dict[int, int] = {}
        known = set(self._direct)

        def note(pattern: int, _start: int, end: int, _flags: int, _context: Any) -> None:
            if pattern in known or seen.get(pattern, -1) >= end:
                return
            seen[pattern] = _stop(joined, end)
            line = bisect_right(starts, max(end - 1, 0)) - 1
            found.append((pattern, lines[line][0] + min(end - starts[line], lines[line][1] - lines[line][0])))

        self._patterns.made.scan(joined, match_event_handler=note, scratch=self._scratch("second", self._patterns.made))

    def _scratch(self, name: str, database: Any) -> Any:
        """Working memory of one thread for one database."""
        found = getattr(self._local, name, None)
        if found is None:
            found = hyperscan.Scratch(database)
            setattr(self._local, name, found)
        return found


def _stop(block: bytes, end: int) -> int:
    """Where the line of a match ends that ends at `end`."""
    stop = block.find(b"\n", max(end - 1, 0))
    return stop if stop >= 0 else len(block)
