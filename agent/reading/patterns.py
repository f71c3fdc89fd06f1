"""Many patterns over blocks of bytes in one pass: hyperscan, or google-re2 where it is missing. No backtracking.

A pattern is written for a line's body, in the syntax that Python's re and re2 share. For the pass it is relaxed
(anchors let go, a greedy end shortened), so that it finds at least every line that holds a match; a second look
at those lines decides with re2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import re2

from .compiled import hyperscan

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
    from .staged import StagedScanner

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
