"""Ranks in step leave dumps that differ in nothing but clocks: of those only the clocks are read.

A pickle whose bytes equal those of one already checked and read, except within the numbers that are times and
the digits of its thread id, holds the same operations, hence the same values but those.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, replace

import numpy as np

from ..files import RunFile
from .dump import Dump, Work

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
