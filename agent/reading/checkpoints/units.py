"""Bytes of files cut into pieces of work, so that every byte is read once, by any number of threads."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Lock, Thread

import numpy as np

from ... import deadline
from ...errors import ParseError
from ..files import RunFile, open_regular
from .bits import Array
from .crc import joined
from .dtypes import KINDS
from .parts import Member, Tensor
from .tally import Tally

JOB = 8 << 20  # bytes a thread takes at once
BLOCK = 512 << 10  # bytes that are read and then looked at while they lie in the processor's cache


@dataclass(slots=True)
class Unit:
    """A run of bytes of a file: an entry with a checksum, or a tensor, with the tensors that lie in it."""

    file: RunFile
    start: int
    size: int
    tensors: list[Tensor] = field(default_factory=list)
    member: Member | None = None
    checksums: dict[int, tuple[int, int]] = field(default_factory=dict)  # offset: (length, checksum)
    missing: bool = False

    def checksum(self) -> int:
        """Of the whole entry, joined from those of its pieces."""
        total = 0
        for _, (length, crc) in sorted(self.checksums.items()):
            total = joined(total, crc, length)
        return total


class Pass:
    """One reading of many units. `tallies` and the units' checksums are complete when `run` has returned."""

    def __init__(self, units: Iterable[Unit], deep: bool) -> None:
        self._units = list(units)
        self._deep = deep
        self._lock = Lock()
        self._failed: BaseException | None = None
        self.tallies: dict[int, Tally] = {}  # by id of the tensor
        for unit in self._units:
            for tensor in unit.tensors:
                self.tallies[id(tensor)] = Tally(tensor.dtype, tensor.swapped, deep)

    def run(self) -> None:
        """Read everything.

        Raises:
            TimeoutError: the time of the call is over.
        """
        jobs = self._jobs()
        total = sum(unit.size for unit in self._units)
        threads = 1 if total < 2 * JOB else min(8, max(2, _processors()))
        workers = [Thread(target=copy_context().run, args=(self._work, jobs), daemon=True) for _ in range(threads - 1)]
        for worker in workers:
            worker.start()
        self._work(jobs)
        for worker in workers:
            worker.join()
        if self._failed is not None:
            raise self._failed

    def _jobs(self) -> Iterator[list[tuple[Unit, int, int]]]:
        """Lists of (unit, offset in it, length) of about `JOB` bytes, neighbours together."""
        job: list[tuple[Unit, int, int]] = []
        weight = 0
        for unit in self._units:
            for offset in range(0, max(unit.size, 1), JOB):
                length = min(JOB, unit.size - offset)
                job.append((unit, offset, length))
                weight += length + 4096
                if weight >= JOB:
                    yield job
                    job, weight = [], 0
        if job:
            yield job

    def _work(self, jobs: Iterator[list[tuple[Unit, int, int]]]) -> None:
        buffer = memoryview(bytearray(BLOCK))
        with ExitStack() as stack:
            handles: dict[RunFile, int] = {}
            while True:
                with self._lock:
                    job = None if self._failed else next(jobs, None)
                if job is None:
                    return
                try:
                    for unit, offset, length in job:
                        self._piece(unit, offset, length, buffer, handles, stack)
                except BaseException as e:  # noqa: BLE001 - of a thread: raised again by the one that waits
                    self._failed = e
                    return

    def _piece(
        self, unit: Unit, offset: int, length: int, buffer: memoryview, handles: dict[RunFile, int], stack: ExitStack
    ) -> None:
        deadline.check()
        tallies = [(t, Tally(t.dtype, t.swapped, self._deep)) for t in unit.tensors]
        crc = 0
        try:
            handle = handles.get(unit.file)
            if handle is None:
                handle = handles[unit.file] = stack.enter_context(open_regular(unit.file.path)).fileno()
                if hasattr(os, "posix_fadvise"):  # not on every system
                    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            for at in range(offset, offset + length, BLOCK):
                block = buffer[: min(BLOCK, offset + length - at)]
                _fill(handle, block, unit.start + at)
                if unit.member is not None:
                    crc = zlib.crc32(block, crc)
                if tallies:
                    raw = np.frombuffer(block, np.uint8)
                    for tensor, tally in tallies:
                        _look(tensor, tally, raw, unit.start + at)
        except (OSError, ParseError):
            unit.missing = True
            return
        with self._lock:
            if unit.member is not None:
                unit.checksums[offset] = (length, crc)
            for tensor, tally in tallies:
                self.tallies[id(tensor)].merge(tally)


def _processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _fill(handle: int, block: memoryview, at: int) -> None:
    got = os.preadv(handle, [block], at)
    while got < len(block):
        more = os.preadv(handle, [block[got:]], at + got)
        if not more:
            raise ParseError("the file became shorter while it was read")
        got += more


def _look(tensor: Tensor, tally: Tally, block: Array, at: int) -> None:
    """Count the part of a tensor that lies in a block of bytes that begins at `at`."""
    begin, end = max(tensor.start, at), min(tensor.start + tensor.size, at + len(block))
    if begin < end:
        tally.add(block[begin - at : end - at])


def units_of(tensors: Iterable[Tensor], members: Iterable[tuple[RunFile, Member]] = ()) -> list[Unit]:
    """Units in the order of their bytes.

    Args:
        tensors: each of them one run of bytes.
        members: entries whose checksums are wanted.
    """
    units = [Unit(file, m.start, m.size, member=m) for file, m in members]
    homes = {(u.file, u.member.name): u for u in units if u.member}
    own: dict[tuple[RunFile, int, int, str], Unit] = {}
    for tensor in tensors:
        home = homes.get((tensor.file, tensor.member))
        width = max(1, KINDS[tensor.dtype].bits // 8)
        inside = home and home.start <= tensor.start and tensor.start + tensor.size <= home.start + home.size
        if home is not None and inside and (tensor.start - home.start) % width == 0:
            home.tensors.append(tensor)
            continue
        key = (tensor.file, tensor.start, tensor.size, tensor.dtype)
        if key not in own:
            own[key] = Unit(tensor.file, tensor.start, tensor.size)
        own[key].tensors.append(tensor)
    return sorted([*units, *own.values()], key=lambda u: (u.file.name, u.start))
