"""Statistics and values of tensors, streamed: every byte is read once, memory does not grow with the file."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, field
from math import prod
from threading import Lock, Thread
from typing import Any, TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...core import deadline
from ...core.errors import ParseError, ToolError
from ..run.files import RunFile, open_regular
from ..run.workspace import Workspace
from .elements import KINDS, Array, Kind, decoded, native, small_values
from .formats.placed import extent
from .formats.torch_files import joined
from .parts import Damaged, Member, Numbers, Problem, State, Tensor, Window, opened

# ----------
# Statistics of a block of elements, from their bits where that is faster: IEEE numbers sort like their bits do.


_DOT = 8192  # elements a product is summed over at once: fewer than a BLAS would spread over threads
_SAFE = (1e-14, 1e15)  # magnitudes between which float32 squares neither overflow nor vanish


class Tally:
    """What has been seen of one tensor's elements, block by block in any order."""

    __slots__ = ("_deep", "_dtype", "_kind", "_seen", "_swapped", "numbers")

    def __init__(self, dtype: str, swapped: bool = False, deep: bool = True) -> None:
        self._dtype, self._kind, self._swapped, self._deep = dtype, KINDS[dtype], swapped, deep
        self._seen = False
        self.numbers = Numbers(read=self._kind.family != "other")

    def add(self, raw: Array) -> Tally:
        """Count a block: uint8, a whole number of elements."""
        if not self.numbers.read or not len(raw):
            return self
        raw = native(raw, self._kind, self._swapped)
        if self._kind.family == "float" and self._kind.infinity:
            self._by_bits(raw)
        else:
            values = decoded(raw, self._dtype)
            if values is not None:
                self._by_value(values)
        return self

    def merge(self, other: Tally) -> None:
        """Add what another tally of the same tensor has seen."""
        mine, its = self.numbers, other.numbers
        if other._seen:
            self._range(its.least, its.most)
        mine.count += its.count
        mine.nan += its.nan
        mine.inf += its.inf
        mine.zeros += its.zeros
        mine.squares += its.squares
        mine.read = mine.read and its.read

    def done(self) -> Numbers:
        """The numbers, with what only the whole can tell."""
        n = self.numbers
        n.constant = self._seen and n.least == n.most and not n.nan and not n.inf and n.count > 1
        return n

    def _range(self, least: float, most: float) -> None:
        n = self.numbers
        n.least = min(n.least, least) if self._seen else least
        n.most = max(n.most, most) if self._seen else most
        self._seen = True

    def _by_bits(self, raw: Array) -> None:
        """Signed, the bits of positive numbers sort upwards and those of negative ones downwards from -0."""
        kind, n = self._kind, self.numbers
        signed = raw.view(f"i{kind.bits // 8}")
        low, high = int(signed.min()), int(signed.max())
        sign = 1 << (kind.bits - 1)
        bits = raw.view(f"u{kind.bits // 8}")
        top = int(bits.max()) if low < 0 else 0  # the most negative number
        if high >= kind.infinity or top - sign >= kind.infinity:
            self._with_nonfinite(raw, bits)
            return
        n.count += len(bits)
        n.zeros += len(bits) - int(np.count_nonzero(bits))
        if low == -sign:
            n.zeros += int(np.count_nonzero(bits == sign))
        least = _value(top if low < 0 else low, self._dtype, kind)
        most = _value(high if high >= 0 else low + 2 * sign, self._dtype, kind)
        self._range(least, most)
        if self._deep and (least or most):
            n.squares += _squares(decoded(raw, self._dtype), max(-least, most))

    def _with_nonfinite(self, raw: Array, bits: Array) -> None:
        kind = self._kind
        magnitudes = bits & type(bits[0])((1 << (kind.bits - 1)) - 1)
        self.numbers.count += len(bits)
        odd = magnitudes >= kind.infinity
        if not kind.nans:
            infinite = int(np.count_nonzero(magnitudes == kind.infinity))
            self.numbers.inf += infinite
            self.numbers.nan += int(np.count_nonzero(odd)) - infinite
        else:
            self.numbers.nan += int(np.count_nonzero(odd))
        if values := self._finite(decoded(raw, self._dtype), ~odd):
            self._plain(*values)

    def _finite(self, values: Any, mask: Array) -> tuple[Array] | None:
        kept = values[mask]
        return (kept,) if len(kept) else None

    def _by_value(self, values: Array) -> None:
        n = self.numbers
        if self._kind.family == "complex":
            pairs = values.reshape(-1, 2)
            nan = np.isnan(pairs).any(axis=1)
            inf = np.isinf(pairs).any(axis=1) & ~nan
            n.count += len(pairs)
            n.nan += int(nan.sum())
            n.inf += int(inf.sum())
            n.zeros += int((~pairs.any(axis=1)).sum())
            kept = pairs[~(nan | inf)].reshape(-1)
            if len(kept):
                self._plain(kept, zeros=False)
            return
        n.count += len(values)
        if self._kind.family == "float":
            nan = np.isnan(values)
            n.nan += int(nan.sum())
            values = values[~nan]
        if len(values):
            self._plain(values)

    def _plain(self, values: Array, zeros: bool = True) -> None:
        """Finite values, whatever their type."""
        least, most = float(values.min()), float(values.max())
        self._range(least, most)
        if zeros:
            self.numbers.zeros += len(values) - int(np.count_nonzero(values))
        if self._deep and (least or most):
            self.numbers.squares += _squares(values, max(-least, most))


def _value(bits: int, dtype: str, kind: Kind) -> float:
    """The number that a bit pattern is."""
    if kind.bits == 8:
        return float(small_values(dtype)[bits])
    if dtype == "bfloat16":
        return float(np.array([bits << 16], np.uint32).view(np.float32)[0])
    return float(np.array([bits], f"u{kind.bits // 8}").view(kind.plain)[0])


def _squares(values: Array | None, largest: float) -> float:
    """Sum of squares of finite values, the largest magnitude known."""
    if values is None:
        return 0.0
    if values.dtype != np.float32 or not _SAFE[0] < largest < _SAFE[1]:
        wide = values.astype(np.float64, copy=False)
        with np.errstate(over="ignore"):  # beyond float64 the sum is infinite
            return sum(float(np.dot(wide[i : i + _DOT], wide[i : i + _DOT])) for i in range(0, len(wide), _DOT))
    return sum(float(np.dot(values[i : i + _DOT], values[i : i + _DOT])) for i in range(0, len(values), _DOT))


# ----------
# Bytes of files cut into pieces of work, so that every byte is read once, by any number of threads.

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


# ----------
# Elements of tensors that are not one run of bytes: slices, transposed and expanded views, arrays inside a pickle.

WHOLE = 64 << 20  # bytes of a view that are read at once to have its elements in their order


def dense(tensor: Tensor) -> bool:
    """Whether the elements are, in some order, all elements of one run of bytes."""
    if tensor.inline is not None:
        return False
    if tensor.strides is None:
        return True
    step = 1
    for stride, n in sorted((s, n) for s, n in zip(tensor.strides, tensor.shape, strict=True) if n != 1):
        if stride != step:
            return False
        step *= n
    return True


def runs(window: Window, tensor: Tensor, size: int) -> Iterator[Array]:
    """Elements as uint8 in runs of about `size` bytes.

    Elements that stand in a view more than once (expanded dimensions) come once. A view of more than `WHOLE` bytes
    whose dimensions are permuted comes in the order of its storage.
    """
    width = KINDS[tensor.dtype].bits // 8
    size = max(width, size // width * width)
    if tensor.inline is not None:
        elements = np.frombuffer(tensor.inline, f"V{width}")
        if tensor.strides is not None and len(elements):
            elements = as_strided(elements, tensor.shape, [s * width for s in tensor.strides], writeable=False)
        yield np.ascontiguousarray(elements).reshape(-1).view(np.uint8)
        return
    start, length = tensor.start - window.start, tensor.size
    if tensor.strides is None or (length > WHOLE and dense(tensor)) or tensor.count * width > length:
        yield from _plain(window, start, length, size)
        return
    dimensions = list(zip(tensor.shape, tensor.strides, strict=True))
    if length > WHOLE:
        dimensions.sort(key=lambda d: -d[1])
    yield from _strided(window, start, dimensions, width, size if length > WHOLE else WHOLE)


def _plain(window: Window, start: int, length: int, size: int) -> Iterator[Array]:
    for at in range(0, length, size):
        deadline.check()
        yield np.frombuffer(window.read(start + at, min(size, length - at)), np.uint8)


def _strided(window: Window, start: int, dimensions: list[tuple[int, int]], width: int, size: int) -> Iterator[Array]:
    """Rows of the first dimension, as many at once as lie within `size` bytes; rows longer than that one by one."""
    deadline.check()
    if not dimensions:
        yield np.frombuffer(window.read(start, width), np.uint8)
        return
    (count, stride), rest = dimensions[0], dimensions[1:]
    row = extent(tuple(n for n, _ in rest), tuple(s for _, s in rest)) * width
    if row > size and rest:
        for i in range(count):
            yield from _strided(window, start + i * stride * width, rest, width, size)
        return
    step = max(1, (size - row) // max(1, stride * width))
    for first in range(0, count, step):
        deadline.check()
        n = min(step, count - first)
        raw = window.read(start + first * stride * width, (n - 1) * stride * width + row)
        shape = (n, *(d[0] for d in rest))
        elements = np.frombuffer(raw, f"V{width}")
        view = as_strided(elements, shape, (stride * width, *(d[1] * width for d in rest)), writeable=False)
        yield np.ascontiguousarray(view).reshape(prod(shape)).view(np.uint8)


# ----------

_RUN = 1 << 20


@dataclass(slots=True)
class Examined:
    """What one pass over a file's bytes found. `problems`: entries with a wrong checksum, or that cannot be read."""

    numbers: dict[str, Numbers] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def numbers_of(ws: Workspace, tensors: Iterable[Tensor], *, deep: bool = True) -> dict[str, Numbers]:
    """Statistics by tensor name. Counts of NaN and infinities are exact; a tensor not read has `read=False`.

    Args:
        deep: sum the squares too.
    """
    return _pass(ws, list(tensors), [], deep).numbers


def examine(ws: Workspace, state: State, *, deep: bool = False) -> Examined:
    """Statistics of every tensor of a file and the checksums of its archive's entries, each byte read once."""
    return _pass(ws, list(state.tensors.values()), [state], deep)


def chunks(ws: Workspace, tensor: Tensor, elements: int = 1 << 20) -> Iterator[Array]:
    """Values in order: float32, float64 or int64 in arrays of about `elements`. Nothing for packed types.

    Raises:
        ToolError: the bytes cannot be read.
    """
    if KINDS[tensor.dtype].family == "other":
        return
    try:
        with opened(tensor.file) as window:
            for raw in runs(window, tensor, elements * KINDS[tensor.dtype].bits // 8):
                values = decoded(raw, tensor.dtype, tensor.swapped)
                if values is not None:
                    for at in range(0, len(values), elements):
                        yield values[at : at + elements]
    except Damaged as e:
        raise ToolError(f"{tensor.file.name}: {tensor.name} cannot be read: {e}") from None


def _pass(ws: Workspace, tensors: list[Tensor], states: list[State], deep: bool) -> Examined:
    plain = [t for t in tensors if dense(t)]
    units = units_of(plain, [(m.file or s.file, m) for s in states for m in s.members.values() if not m.packed])
    work = Pass(units, deep)
    work.run()
    found = Examined()
    for unit in units:
        name = unit.member.name if unit.member else unit.tensors[0].name
        if unit.missing:
            found.problems.append(Problem("unreadable", f"{name}: its bytes could not be read", name))
            for tensor in unit.tensors:
                work.tallies[id(tensor)].numbers.read = False
        elif unit.member is not None and unit.checksum() != unit.member.crc:
            text = f"{name}: its bytes do not have the checksum written with them"
            found.problems.append(Problem("crc_mismatch", text, name))
    for tensor in plain:
        found.numbers[tensor.name] = work.tallies[id(tensor)].done()
    for tensor in tensors:
        if tensor.name not in found.numbers:
            found.numbers[tensor.name] = _scattered(tensor, deep)
    return found


def _scattered(tensor: Tensor, deep: bool) -> Numbers:
    """A tensor that is not one run of bytes, read by itself."""
    tally = Tally(tensor.dtype, tensor.swapped, deep)
    if not tally.numbers.read:
        return tally.numbers
    try:
        with opened(tensor.file) as window:
            for raw in runs(window, tensor, _RUN):
                tally.add(np.ascontiguousarray(raw))
    except Damaged:
        tally.numbers.read = False
    return tally.done()


# ----------
# Work on many tensors in a few threads, with the time of the call and what cannot be read in mind.

T = TypeVar("T")
R = TypeVar("R")
_THREADS = 4


def in_threads(todo: Sequence[T], work: Callable[[T], R]) -> Iterator[R | None]:
    """What `work` makes of each, in their order; None where the time was over or the bytes could not be read."""
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        jobs = [pool.submit(copy_context().run, work, one) for one in todo]
        for job in jobs:
            try:
                yield job.result()
            except (TimeoutError, ToolError):
                yield None
