"""Pieces of text that a line must hold for a pattern to match in it: the cheap first stage of the log pass.

A pass over hundreds of patterns costs what its commonest words cost ("loss", "step"). So for each pattern the
rarest literals are chosen such that every match holds one of them; words of ordinary metric lines are no choice.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from re import _constants as _c  # type: ignore[attr-defined]  # the parse tree of a pattern has no public name
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Protocol

from ...core.own_files import KNOWLEDGE, read_table

SHORTEST = 4
MOST = 48  # literals of one pattern
SPREAD = 12  # strings that one run may stand for, e.g. from [Ff]ail(ed|ure)

Strings = tuple[str, ...]
Literal = tuple[str, bool]  # the text, and whether its case is ignored


@cache
def _ordinary() -> str:
    """Metric lines as every healthy run prints them, in lower case."""
    return read_table(KNOWLEDGE / "ordinary_lines.yaml")["lines"].lower()


def choices(regex: str) -> tuple[list[Strings], bool]:
    """Sets of literals of each of which every match holds at least one, rarest first, and whether case is ignored.

    Sets with common, short or very many strings are none.
    """
    try:
        tree = _parser.parse(regex)
    except (re.error, RecursionError, OverflowError):
        return [], False
    found = sorted({c for c in _candidates(tree) if _score(c) > 0}, key=lambda c: (-_score(c), c))
    return found, bool(tree.state.flags & re.IGNORECASE) or "(?i" in regex


def required(regex: str) -> tuple[Strings, bool] | None:
    """The rarest such set, or None."""
    found, caseless = choices(regex)
    return (found[0], caseless) if found else None


def cover(regexes: Iterable[str]) -> tuple[list[Literal], list[int]]:
    """Few literals for many patterns, and the indices of the patterns that have none.

    The first stage gets slower with every literal, so a pattern takes the set that adds least to those of the
    others; a literal that holds a shorter chosen one is left out.
    """
    open_: list[tuple[int, list[Strings], bool]] = []
    direct: list[int] = []
    for index, regex in enumerate(regexes):
        found, caseless = choices(regex)
        if found:
            open_.append((index, found[:12], caseless))
        else:
            direct.append(index)
    chosen: list[Literal] = []
    for _, found, caseless in sorted(open_, key=lambda row: (min(len(c) for c in row[1]), row[0])):
        fresh = [[(s, caseless) for s in c if not _covered(s, caseless, chosen)] for c in found]
        least = min(range(len(found)), key=lambda i: (len(fresh[i]), -_score(found[i])))
        chosen += fresh[least]
    chosen = list(dict.fromkeys(chosen))
    return [one for one in chosen if not _covered(*one, [o for o in chosen if o != one])], direct


def _covered(text: str, caseless: bool, chosen: Iterable[Literal]) -> bool:
    """Whether every line that holds this text holds a chosen literal, too."""
    low = text.lower()
    return any(c.lower() in low if ignored else not caseless and c in text for c, ignored in chosen)


def _score(strings: Strings) -> float:
    """How rarely one of these is met: by the worst of them; nothing for common, short or very many."""
    if not strings or len(strings) > MOST:
        return 0.0
    worst = min(len(s) for s in strings)
    if worst < SHORTEST or (worst == SHORTEST and len(strings) > 4) or any(s.lower() in _ordinary() for s in strings):
        return 0.0
    return min(worst, 10) - 0.25 * len(strings) + 6


def _best(candidates: Iterable[Strings]) -> Strings | None:
    found = max(candidates, key=_score, default=())
    return found if _score(found) > 0 else None


def _candidates(tree: Sequence[Any]) -> list[Strings]:
    """Sets of strings of which each match holds one: runs of exact text, and what groups and branches need."""
    found: list[Strings] = []
    run: Strings = ("",)
    for op, arg in tree:
        exact = _exact(op, arg)
        if exact is not None and len(run) * len(exact) <= SPREAD:
            run = tuple(a + b for a in run for b in exact)
            continue
        found.append(run)
        run = exact if exact is not None and len(exact) <= SPREAD else ("",)
        found += _inner(op, arg)
    found.append(run)
    return [tuple(dict.fromkeys(s)) for s in found if any(s)]


def _inner(op: Any, arg: Any) -> list[Strings]:
    if op is _c.SUBPATTERN:
        return _candidates(arg[3])
    if op in (_c.MAX_REPEAT, _c.MIN_REPEAT) and arg[0] >= 1:
        return _candidates(arg[2])
    if op is _c.BRANCH:
        parts = [_best(_candidates(branch)) for branch in arg[1]]
        if all(p is not None for p in parts):
            return [tuple(s for p in parts if p is not None for s in p)]
    return []


def _exact(op: Any, arg: Any) -> Strings | None:
    """All strings that an item stands for, if they are few."""
    if op is _c.LITERAL:
        return (chr(arg),)
    if op is _c.AT:
        return ("",)
    if op is _c.IN:
        return _set(arg)
    if op is _c.SUBPATTERN:
        return None if arg[1] or arg[2] else _product(arg[3])
    if op is _c.BRANCH:
        parts = [_product(branch) for branch in arg[1]]
        if any(p is None for p in parts):
            return None
        every = tuple(s for p in parts if p is not None for s in p)
        return every if len(every) <= SPREAD else None
    if op in (_c.MAX_REPEAT, _c.MIN_REPEAT) and arg[0] == 0 and arg[1] == 1:
        once = _product(arg[2])
        return ("", *once) if once is not None and len(once) < SPREAD else None
    return None


def _set(items: Sequence[Any]) -> Strings | None:
    chars: list[str] = []
    for op, arg in items:
        if op is _c.LITERAL:
            chars.append(chr(arg))
        elif op is _c.RANGE and arg[1] - arg[0] < 6:
            chars += [chr(n) for n in range(arg[0], arg[1] + 1)]
        else:
            return None
    return tuple(chars) if 0 < len(chars) <= 6 else None


def _product(tree: Sequence[Any]) -> Strings | None:
    run: Strings = ("",)
    for op, arg in tree:
        exact = _exact(op, arg)
        if exact is None or len(run) * len(exact) > SPREAD:
            return None
        run = tuple(a + b for a in run for b in exact)
    return run


# ----------
# Many literals over blocks of bytes, without case, at the price of the lines that matter.
#
# A log of NCCL's INFO lines holds a literal in each line. A first scan asks which literals a block holds at all;
# only those that have not been seen often enough are then looked up one by one.

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
