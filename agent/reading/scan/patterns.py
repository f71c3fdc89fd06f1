"""Many patterns over blocks of bytes in one pass: hyperscan, or google-re2 where it is missing. No backtracking.

A pattern is written for a line's body, in the syntax that Python's re and re2 share. For the pass it is relaxed
(anchors let go, a greedy end shortened), so that it finds at least every line that holds a match; a second look
at those lines decides with re2.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import tempfile
import threading
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

import re2

from ...core.own_files import cache_folder
from .literals import cover

# ----------
# A hyperscan database, compiled once: serialized into the cache under a hash of its patterns.


try:
    import hyperscan
except ImportError:  # no wheel for this machine
    hyperscan: Any = None

_FORMAT = b"5"
LOCK_SECONDS = 60


class Database:
    """One database over many patterns with their hyperscan flags, compiled once and kept in the cache.

    Attributes:
        refused: indices of patterns that hyperscan does not take.
    """

    def __init__(self, patterns: list[tuple[bytes, int]]) -> None:
        self._patterns = patterns
        digest = hashlib.sha256(_FORMAT + repr((hyperscan.__version__, platform.machine())).encode())
        for regex, flags in patterns:
            digest.update(flags.to_bytes(4, "big") + len(regex).to_bytes(4, "big") + regex)
        self._path = cache_folder() / f"patterns-{digest.hexdigest()[:24]}.hs"
        self.refused, self.made = self._kept() or self._once()

    def _once(self) -> tuple[frozenset[int], Any]:
        """Compile while the others wait: eight jobs that fail together must not compile eight times."""
        from filelock import FileLock, Timeout

        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self._path}.lock", timeout=LOCK_SECONDS):
                return self._kept() or self._fresh()
        except (OSError, Timeout):
            return self._fresh()

    def _kept(self) -> tuple[frozenset[int], Any] | None:
        kept = read_kept(self._path)
        if kept is None:
            return None
        head, _, body = kept.partition(b"\n")
        try:
            return frozenset(int(n) for n in head.split()), hyperscan.loadb(body, hyperscan.HS_MODE_BLOCK)
        except (hyperscan.error, ValueError):
            return None  # written by another machine or version: compile again

    def _fresh(self) -> tuple[frozenset[int], Any]:
        """All at once; one by one only where something is refused."""
        every = list(range(len(self._patterns)))
        refused: frozenset[int] = frozenset()
        try:
            made = self._compile(every)
        except hyperscan.error:
            refused = frozenset(i for i in every if not self._takes(i))
            made = self._compile([i for i in every if i not in refused])
        head = b" ".join(str(n).encode() for n in sorted(refused))
        keep(self._path, head + b"\n" + hyperscan.dumpb(made))
        return refused, made

    def _takes(self, index: int) -> bool:
        try:
            self._compile([index])
        except hyperscan.error:
            return False
        return True

    def _compile(self, indices: list[int]) -> Any:
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        chosen = [self._patterns[i] for i in indices] or [(rb"\x00\x00nothing to look for\x00\x00", 0)]
        flags = [flags for _, flags in chosen]
        database.compile(
            expressions=[regex for regex, _ in chosen], ids=indices or [0], elements=len(chosen), flags=flags
        )
        return database


def read_kept(path: Path) -> bytes | None:
    """Content of a cache file of ours; None where it is missing, damaged or somebody else's."""
    try:
        if path.stat().st_uid != os.getuid():
            return None
        data = path.read_bytes()
    except OSError:
        return None
    return data[32:] if hashlib.sha256(data[32:]).digest() == data[:32] else None


def keep(path: Path, data: bytes) -> None:
    """Write a cache file in one step; a cache that cannot be written is done without."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as f:
            f.write(hashlib.sha256(data).digest() + data)
        Path(f.name).replace(path)
    except OSError:
        return  # a read-only home costs time, not the diagnosis


# ----------

Match = tuple[int, int]  # index of the pattern, end of the match in the block
PIECE = 1 << 14  # bytes at a time in which the fallback narrows down a hit


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern of the pass.

    `name` is what its hits are filed under, `number` tells several of one name apart; `verify`: hits need the
    second look; `once`: only whether it occurs in a block is asked.
    """

    name: str
    regex: str
    verify: bool = True
    number: int = 0
    once: bool = False


class Scanner(Protocol):
    """Finds which patterns occur in a block of whole lines, and where."""

    refused: dict[int, str]

    def scan(self, block: bytes) -> list[Match]: ...


@lru_cache(maxsize=8192)
def searcher(regex: str) -> Any:
    """A compiled re2 pattern for one line, or None where re2 refuses it."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error:
        return None


def refusal(regex: str) -> str:
    """Why a pattern cannot be used, or an empty string. What a lint reports."""
    try:
        re.compile(regex)
    except (re.error, RecursionError, OverflowError) as e:
        return str(e)
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(regex, options)
    except re2.error as e:
        return f"not in the common syntax of hyperscan and re2: {_plain(e)}"
    if re2.compile(regex, options).search("") is not None:
        return "matches the empty line"
    return ""


def _plain(e: Exception) -> str:
    first = e.args[0] if e.args else ""
    return first.decode(errors="replace") if isinstance(first, bytes) else str(first)


_QUANTIFIED_END = re.compile(r"(?<!\\)([+*])\??(\)*)$")


def relaxed(regex: str) -> str:
    """The pattern without its anchors and without a greedy end: it still finds every line the pattern matches in."""
    out, i, in_class = [], 0, False
    while i < len(regex):
        c = regex[i]
        if c == "\\" and i + 1 < len(regex):
            if regex[i + 1] not in "AZz" or in_class:
                out.append(regex[i : i + 2])
            i += 2
            continue
        if in_class:
            in_class = c != "]" or out[-1] in ("[", "[^")
        elif c == "[":
            in_class = True
            if regex[i + 1 : i + 2] == "^":
                out.append("[^")
                i += 2
                continue
        elif c in "^$":
            i += 1
            continue
        out.append(c)
        i += 1
    return _shortened("".join(out))


def _shortened(regex: str) -> str:
    if m := _QUANTIFIED_END.search(regex):
        shorter = regex[: m.start()] + ("?" if m[1] == "*" else "") + m[2]
        if not regex[: m.start()].endswith(("\\", "(", "|", "+", "*", "?", "}")):
            return shorter
    return regex


def scanner(patterns: Iterable[Pattern], engine: str = "") -> Scanner:
    """The fastest scanner at hand for these patterns.

    Args:
        engine: `"re2"` to do without hyperscan.
    """
    known = list(patterns)
    if hyperscan is None or engine == "re2":
        return Re2Scanner(known)
    pass

    return StagedScanner(known)


class Re2Scanner:
    """The same over google-re2's Set: slower, and everywhere."""

    def __init__(self, patterns: list[Pattern], indices: list[int] | None = None) -> None:
        self._patterns = patterns
        self._indices = indices if indices is not None else list(range(len(patterns)))
        self.refused: dict[int, str] = {}

    @cached_property
    def _set(self) -> tuple[Any, list[int]]:
        options = re2.Options()
        options.log_errors = False
        options.encoding = re2.Options.Encoding.LATIN1
        options.max_mem = 256 << 20
        found, kept = re2.Set.SearchSet(options), []
        for index, pattern in zip(self._indices, self._patterns, strict=True):
            if searcher(pattern.regex) is None:
                self.refused[index] = pattern.regex
                continue
            try:
                found.Add(relaxed(pattern.regex).encode().decode("latin-1"))
            except re2.error:
                self.refused[index] = pattern.regex
                continue
            kept.append(index)
        if kept:
            found.Compile()
        return found, kept

    def scan(self, block: bytes) -> list[Match]:
        sets, kept = self._set
        if not kept or not sets.Match(block):
            return []
        found: list[Match] = []
        at = 0
        while at < len(block):
            end = at + PIECE
            end = (block.find(b"\n", end) + 1 or len(block)) if end < len(block) else len(block)
            if sets.Match(block[at:end]):
                self._lines(sets, kept, block, at, end, found)
            at = end
        return found

    def _lines(self, sets: Any, kept: list[int], block: bytes, at: int, end: int, into: list[Match]) -> None:
        while at < end:
            stop = block.find(b"\n", at, end)
            stop = end if stop < 0 else stop
            for found in sets.Match(block[at:stop]) or ():
                into.append((kept[found], self._where(kept[found], block, at, stop)))
            at = stop + 1

    def _where(self, index: int, block: bytes, at: int, stop: int) -> int:
        """Where in a line the match ends; it matters only where a line holds more than is shown of it."""
        line = block[at:stop]
        if len(line) < 4096 and b"\r" not in line:
            return max(stop, at + 1)
        regex = relaxed(self._patterns[self._indices.index(index)].regex).encode().decode("latin-1")
        search = searcher(regex)
        m = search.search(line.decode("latin-1")) if search is not None else None
        return at + max(m.end(), 1) if m else max(stop, at + 1)


# ----------
# The hyperscan pass in two stages: rare literals over everything, the patterns themselves over the lines they hit.

_STAGED_FORMAT = "4"


@dataclass(frozen=True, slots=True)
class Plan:
    """Which literals stand for the patterns, and which patterns have none and are looked for themselves."""

    literals: list[tuple[str, bool]]
    direct: list[int]


def plan(patterns: list[Pattern]) -> Plan:
    """Made once for a set of patterns, and kept in the cache."""
    digest = hashlib.sha256(repr((_STAGED_FORMAT, [(p.regex, p.once) for p in patterns])).encode()).hexdigest()[:24]
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
