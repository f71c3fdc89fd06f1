"""One rank's dump as columns: what it enqueued in each process group, and how far each piece came."""

from __future__ import annotations

import json
import pickletools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from ...core.errors import ParseError
from ..run.files import RunFile
from ..run.plain_pickle import plain

LIMIT = 16 << 20  # bytes of one dump; as objects it needs about twelve times as much
ENTRIES = 1 << 18
NUMBERS = 1 << 24  # sizes of all tensors together
RANKS = 1 << 17
_LIST = re.compile(r"-?\d+")
_P2P = re.compile(r"(send|recv) (\d+)(->|<-)(\d+)")

Key = tuple[str, str]  # name and description of a process group
Sizes = list[list[int]]


@dataclass(slots=True)
class Work:
    """What a rank enqueued in one process group, oldest first; the columns have one length.

    Attributes:
        rows: `(sequence number, operation, input sizes, output sizes, input dtypes, output dtypes)`.
        states: `(state, retired)` of each: scheduled, started or completed.
        created: nanoseconds since the epoch of that host, 0 where unknown.
        records: position of each in the rank's buffer.
    """

    rows: list[tuple] = field(default_factory=list)
    states: list[tuple] = field(default_factory=list)
    created: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    records: list[int] = field(default_factory=list)

    def first(self) -> int:
        return self.rows[0][0]

    def last(self) -> int:
        return self.rows[-1][0]


@dataclass(slots=True)
class Dump:
    """One file. `rank` is None where neither its name nor its place among the others tells it.

    Attributes:
        members: ranks of each process group by its name and description, as the dump states them.
        work: collectives by process group; `peers`: sends and receives by process group.
        begins: number of its oldest record; above 0 the buffer has wrapped and earlier ones are lost.
    """

    file: RunFile
    rank: int | None
    version: str
    members: dict[Key, tuple[int, ...]]
    work: dict[Key, Work]
    peers: dict[Key, Work]
    begins: int = 0
    count: int = 0
    backend: str = ""


def parse(file: RunFile, data: bytes) -> Dump:
    """A dump from its bytes.

    Raises:
        ParseError: too large, hostile, damaged, or not laid out as a dump.
    """
    content = load(data)
    entries = content.get("entries", [])
    if type(entries) is not list or not set(map(type, entries)) <= {dict}:
        raise ParseError("its entries are no list of records")
    if len(entries) > ENTRIES:
        raise ParseError(f"{len(entries)} entries: more than is read")
    work, peers = _by_group(entries)
    first = entries[0] if entries else {}
    return Dump(
        file, file.rank, _word(content.get("version")), _members(content.get("pg_config")), work, peers,
        begins=_int(first.get("record_id")), count=len(entries),
        backend=_word(first.get("profiling_name")).partition(":")[0],
    )  # fmt: skip


def load(data: bytes) -> dict[str, Any]:
    """The mapping a dump holds, pickled or JSON, made of plain values only."""
    if len(data) > LIMIT:
        raise ParseError(f"larger than {LIMIT >> 20} MiB: not read")
    if data[:1] == b"\x80":
        content = plain(data)
    else:
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as e:
            raise ParseError(f"no JSON: {str(e)[:120]}") from None
    if type(content) is not dict:
        raise ParseError("it holds no mapping")
    return content


def _by_group(entries: list[dict]) -> tuple[dict[Key, Work], dict[Key, Work]]:
    """Collectives and point-to-point entries of every process group, in order."""
    if not entries:
        return {}, {}
    groups = _keys(_column(entries, "process_group", None))
    p2p = list(map(bool, _column(entries, "is_p2p", False)))
    sequences = _numbers(entries, "collective_seq_id")
    if any(p2p):
        pairs = _numbers(entries, "p2p_seq_id")
        sequences = [p if at else s for p, s, at in zip(pairs, sequences, p2p, strict=True)]
    rows = list(zip(
        sequences, _texts(entries, "profiling_name"), _sizes(entries, "input_sizes"), _sizes(entries, "output_sizes"),
        _names(entries, "input_dtypes"), _names(entries, "output_dtypes"), strict=True,
    ))  # fmt: skip
    states = list(zip(_texts(entries, "state"), map(bool, _column(entries, "retired", False)), strict=True))
    created = np.array(_numbers(entries, "time_created_ns"), dtype=np.int64)
    records = _numbers(entries, "record_id")
    if len(set(groups)) == 1 and not any(p2p):
        return {groups[0]: Work(rows, states, created, records)}, {}
    where: dict[tuple[Key, bool], list[int]] = {}
    for i, place in enumerate(zip(groups, p2p, strict=True)):
        where.setdefault(place, []).append(i)
    found: tuple[dict[Key, Work], dict[Key, Work]] = ({}, {})
    for (key, between), at in where.items():
        found[between][key] = Work(
            [rows[i] for i in at], [states[i] for i in at], created[at], [records[i] for i in at]
        )  # fmt: skip
    return found


def _column(entries: list[dict], name: str, default: Any) -> list:
    try:
        return list(map(itemgetter(name), entries))
    except KeyError:
        return [e.get(name, default) for e in entries]


def _keys(groups: list) -> list[Key]:
    """One key a group; the same object stands in all entries of a group where the dump shares it."""
    known: dict[int, Key] = {}
    return [known.get(id(g)) or known.setdefault(id(g), _key(g)) for g in groups]


def _key(group: Any) -> Key:
    if type(group) in (tuple, list) and len(group) == 2 and type(group[0]) is type(group[1]) is str:
        return group[0][:200], group[1][:200]
    if group is None:
        return "0", "default_pg"
    raise ParseError("a process group without name and description")


def _numbers(entries: list[dict], name: str) -> list[int]:
    found = _column(entries, name, 0)
    if set(map(type, found)) <= {int}:
        if max(found) >= 1 << 62 or min(found) <= -1 << 62:
            raise ParseError(f"{name} is no number of this world")
        return found
    return [_int(n) for n in found]


def _texts(entries: list[dict], name: str) -> list[str]:
    found = _column(entries, name, "")
    if not set(map(type, found)) <= {str}:
        raise ParseError(f"{name} is no text")
    return found


def _sizes(entries: list[dict], name: str) -> list[Sizes]:
    """Sizes of tensors, checked to be lists of lists of numbers, so that comparing them costs what it seems to."""
    found = _column(entries, name, [])
    if set(map(type, found)) <= {list}:
        tensors: list[Any] = list(chain.from_iterable(found)) if sum(map(len, found)) < NUMBERS else [None]
        if set(map(type, tensors)) <= {list} and sum(map(len, tensors)) < NUMBERS:
            numbers = chain.from_iterable(tensors)
            if set(map(type, numbers)) <= {int}:
                return found
    raise ParseError(f"{name} are no lists of numbers")


def _names(entries: list[dict], name: str) -> list[list[str]]:
    found = _column(entries, name, [])
    if set(map(type, found)) <= {list} and sum(map(len, found)) < NUMBERS:
        words = chain.from_iterable(found)
        if set(map(type, words)) <= {str}:
            return found
    raise ParseError(f"{name} are no lists of names")


def _members(groups: Any) -> dict[Key, tuple[int, ...]]:
    """Ranks of the process groups; the dump writes them as the text `[0, 1]`."""
    found: dict[Key, tuple[int, ...]] = {}
    for name, group in groups.items() if type(groups) is dict else ():
        if type(group) is not dict:
            continue
        ranks = group.get("ranks", "")
        key = (_word(group.get("name", name)), _word(group.get("desc", "")))
        found[key] = _listed(ranks) if type(ranks) is str else tuple(map(_int, ranks)) if type(ranks) is list else ()
    return found


@lru_cache(512)
def _listed(ranks: str) -> tuple[int, ...]:
    """`[0, 1]` as numbers; every rank of a group repeats the same text."""
    return tuple(sorted({int(n) for n in _LIST.findall(ranks) if len(n) < 8}))[:RANKS]


def _word(value: Any) -> str:
    """A short text; whatever else stands in its place is none."""
    return value[:200] if type(value) is str else str(value) if type(value) is int else ""


def _int(value: Any) -> int:
    """A number that may be written as text, and 0 where there is none."""
    if type(value) is int:
        return value if abs(value) < 1 << 62 else 0
    return int(value) if type(value) is str and value.lstrip("-").isdigit() and len(value) < 20 else 0


def peer(name: str) -> tuple[str, int, int] | None:
    """`nccl:send 1->2` as (send, 1, 2) and `nccl:recv 3<-0` as (recv, 0, 3): from whom to whom, within the group."""
    m = _P2P.search(name[:200])
    if m is None:
        return None
    left, right = int(m[2]), int(m[4])
    return (m[1], left, right) if m[3] == "->" else (m[1], right, left)


def callers(entry: dict) -> Iterable[tuple[str, str, int]]:
    """(function, file, line) of an entry's stack, innermost first; nothing where the dump has none."""
    frames = entry.get("frames")
    for frame in frames[:200] if type(frames) is list else ():
        if type(frame) is dict:
            yield _word(frame.get("name")), _word(frame.get("filename")), _int(frame.get("line"))


# ----------
# Ranks in step leave dumps that differ in nothing but clocks: of those only the clocks are read.
#
# A pickle whose bytes equal those of one already checked and read, except within the numbers that are times and
# the digits of its thread id, holds the same operations, hence the same values but those.

KNOWN = 8  # dumps that later ones are set against
CLOCK, THREAD = "time_created_ns", "thread_id"
CLOCKS = (CLOCK, "time_discovered_started_ns", "time_discovered_completed_ns")


@dataclass(frozen=True, slots=True)
class _Pattern:
    data: np.ndarray  # (bytes,) uint8
    free: np.ndarray  # (bytes,) bool: may differ
    clocks: np.ndarray  # (entries, 8) positions of the bytes of each entry's time
    dump: Dump


class Twins:
    """Recognises dumps that equal an earlier one but for the clocks."""

    def __init__(self) -> None:
        self._known: list[_Pattern] = []

    def of(self, file: RunFile, data: bytes) -> Dump | None:
        """The dump, if it is the twin of one that was learned."""
        mine = np.frombuffer(data, dtype=np.uint8)
        for known in self._known:
            if len(mine) == len(known.data) and not ((mine != known.data) & ~known.free).any():
                created = mine[known.clocks].view("<i8").ravel()
                dump = replace(known.dump, file=file, rank=file.rank)
                dump.work = {key: _timed(work, created, dump.begins) for key, work in dump.work.items()}
                dump.peers = {key: _timed(work, created, dump.begins) for key, work in dump.peers.items()}
                return dump
        return None

    def learn(self, data: bytes, dump: Dump) -> None:
        """Remember a dump that was read, where its layout is plain enough to know its twins by."""
        if len(self._known) >= KNOWN or data[:1] != b"\x80" or not dump.count:
            return
        free, clocks = _free(data)
        together = [w for works in (dump.work, dump.peers) for w in works.values()]
        numbered = sorted(r for w in together for r in w.records) == list(range(dump.begins, dump.begins + dump.count))
        if len(clocks) == dump.count and numbered:
            places = np.array(clocks)[:, None] + np.arange(8)
            self._known.append(_Pattern(np.frombuffer(data, dtype=np.uint8), free, places, dump))


def _free(data: bytes) -> tuple[np.ndarray, list[int]]:
    """Bytes that may differ between twins, and where each entry's time stands."""
    free = np.zeros(len(data), dtype=bool)
    clocks: list[int] = []
    memo: dict[int, str] = {}
    word = before = ""
    for op, argument, at in pickletools.genops(data):
        if at is None:
            continue
        if op.name == "BINUNICODE" and isinstance(argument, str):
            before, word = word, argument
            if before == THREAD and argument.isdigit():
                free[at + 5 : at + 5 + len(argument)] = True
        elif op.name in ("BINPUT", "LONG_BINPUT") and isinstance(argument, int):
            memo.setdefault(argument, word)
        elif op.name in ("BINGET", "LONG_BINGET") and isinstance(argument, int):
            before, word = word, memo.get(argument, "")
        elif op.name == "LONG1" and data[at + 1] == 8 and word in CLOCKS:
            free[at + 2 : at + 10] = True
            if word == CLOCK:
                clocks.append(at + 2)
    return free, clocks


def _timed(work: Work, created: np.ndarray, begins: int) -> Work:
    return Work(work.rows, work.states, created[np.array(work.records) - begins], work.records)
