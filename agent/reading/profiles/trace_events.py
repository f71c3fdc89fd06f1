"""Chrome traces of torch.profiler as a stream: one event at a time, kept as numbers by what they stand for.

A trace may hold gigabytes of JSON, so events are decoded one by one out of blocks and only start, length, thread and
a number for the name are kept, up to `MOST` of each kind.
"""

from __future__ import annotations

import json
import re
import sqlite3
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...core.deadline import check
from ...core.errors import ParseError
from ..run.files import open_regular
from .profile_tables import part_of, single

MOST = 500_000  # spans kept of one kind: 24 bytes each
NAMES = 20_000
EVENT = 4 << 20  # characters of one event; a longer one is no event
RANK = re.compile(r'"rank"\s*:\s*(\d{1,6})')
GPU = {"kernel", "gpu_memcpy", "gpu_memset", "concurrent_kernel", "memcpy", "memset"}
RUNTIME = {"cuda_runtime", "cuda_driver", "hip_runtime", "runtime", "driver", "privateuse1_runtime"}
OPS = {"cpu_op", "operator"}
ANNOTATED = {"user_annotation", "python_function", "cpu_instant_event"}
_OPENING = re.compile(r'"traceEvents"\s*:\s*\[|\A\s*\[')


@dataclass(slots=True)
class Spans:
    """Spans of one kind: start and length in microseconds, thread and name as numbers."""

    start: array[float] = field(default_factory=lambda: array("d"))
    length: array[float] = field(default_factory=lambda: array("d"))
    thread: array[int] = field(default_factory=lambda: array("i"))
    name: array[int] = field(default_factory=lambda: array("i"))
    lost: int = 0

    def add(self, start: float, length: float, thread: int, name: int) -> None:
        if len(self.start) >= MOST:
            self.lost += 1
            return
        self.start.append(start)
        self.length.append(length)
        self.thread.append(thread)
        self.name.append(name)


@dataclass(slots=True)
class Trace:
    """What was kept of one trace: spans by kind, names by number, totals by (kind, name)."""

    spans: dict[str, Spans] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    totals: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    rank: int | None = None
    events: int = 0
    whole: bool = True  # read to its end
    pageable: int = 0  # bytes copied to the device from memory that is not pinned

    def of(self, kind: str) -> Spans:
        return self.spans.get(kind) or Spans()

    @property
    def complete(self) -> bool:
        """Read to its end, and every span kept."""
        return self.whole and not any(s.lost for s in self.spans.values())


def trace_of(blocks: Iterable[bytes]) -> Trace:
    """Read a trace from the blocks of its file. Never raises for bad input: `whole` is False then."""
    reader = _Reader()
    for event in _events(blocks, reader.trace):
        reader.take(event)
    return reader.trace


class _Reader:
    """Sorts events into kinds; what a (category, name) stands for is worked out once."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.kinds: dict[tuple[str, str], str | None] = {}
        self.numbers: dict[str, int] = {}
        self.threads: dict[Any, int] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Keep one event if it says where time went."""
        name, start, length = event.get("name"), event.get("ts"), event.get("dur")
        if event.get("ph") != "X" or not isinstance(name, str) or not _numbers(start, length):
            return
        category = str(event.get("cat", "")).lower()
        key = (category, name)
        if key not in self.kinds:
            if len(self.kinds) > 10 * NAMES:
                self.kinds.clear()
            self.kinds[key] = _kind(category, name)
        kind = self.kinds[key]
        if kind is None:
            return
        self.trace.events += 1
        thread = self.threads.setdefault((str(event.get("pid")), str(event.get("tid"))), len(self.threads))
        number = self._number(name)
        self._keep(kind, float(start), float(length), thread, number)  # pyright: ignore[reportArgumentType]
        if kind in ("memcpy", "item", "collective", "data", "optimizer", "compile") and category in OPS | RUNTIME:
            self._keep("op", float(start), float(length), thread, number)  # pyright: ignore[reportArgumentType]
        if kind == "memcpy" and single("pageable").search(name):
            told = event.get("args")
            size = told.get("bytes") if isinstance(told, dict) else None
            self.trace.pageable += size if isinstance(size, int) else 0

    def _keep(self, kind: str, start: float, length: float, thread: int, number: int) -> None:
        self.trace.spans.setdefault(kind, Spans()).add(start, length, thread, number)
        total = self.trace.totals.get((kind, self.trace.names[number]))
        if total is None:
            self.trace.totals[kind, self.trace.names[number]] = [1, length]
        else:
            total[0] += 1
            total[1] += length

    def _number(self, name: str) -> int:
        name = name[:200]
        if name not in self.numbers:
            if len(self.numbers) >= NAMES:
                name = "(other names)"
            if name not in self.numbers:
                self.numbers[name] = len(self.trace.names)
                self.trace.names.append(name)
        return self.numbers[name]


def _numbers(start: object, length: object) -> bool:
    if not isinstance(start, int | float) or not isinstance(length, int | float):
        return False
    return abs(start) < 1e18 and 0 <= length < 1e15


def _kind(category: str, name: str) -> str | None:
    """What an event stands for: a part of the step, a kernel, a copy, a runtime call, an operator, the user's code."""
    if category in GPU:
        if single("nccl").search(name):
            return "nccl"
        return "memcpy" if "mem" in category else "kernel"
    if category in RUNTIME:
        return "sync" if single("sync").search(name) else "launch" if single("launch").search(name) else "runtime"
    if category in OPS or category in ANNOTATED:
        part = part_of(name)
        if part or category in OPS:
            return part or "op"
        if category == "python_function" and ".py(" in name and not name.startswith(("torch/", "<")):
            return None if re.match(r".*(?:site-packages|/lib/python3)", name) else "code"
    return None


def _events(blocks: Iterable[bytes], trace: Trace) -> Iterator[dict[str, Any]]:
    """Objects of the list of events. A broken place ends the stream and says so in `trace.whole`."""
    import codecs

    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    parse = json.JSONDecoder().raw_decode
    buffer, at, opened = "", 0, False
    trace.whole = False
    for block in blocks:
        check()
        buffer, at = buffer[at:] + decode(block), 0
        if not opened:
            opening = _OPENING.search(buffer)
            if opening is None:
                if len(buffer) > EVENT:
                    return
                continue
            head = RANK.search(buffer[: opening.start()])
            trace.rank = int(head[1]) if head else None
            opened, at = True, opening.end()
        while True:
            at = _skip(buffer, at)
            if at < len(buffer) and buffer[at] == "]":
                trace.whole = True
                return
            try:
                event, at = parse(buffer, at)
            except (ValueError, RecursionError):
                if len(buffer) - at > EVENT:
                    return
                break
            if isinstance(event, dict):
                yield event


_SPACE = re.compile(r"[\s,]*")


def _skip(buffer: str, at: int) -> int:
    m = _SPACE.match(buffer, at)
    return m.end() if m else at


# ----------
# Nsight Systems' SQLite export (`nsys export --type sqlite`) as the spans of a trace.
#
# Tables CUPTI_ACTIVITY_KIND_{KERNEL, MEMCPY, RUNTIME}, NVTX_EVENTS and StringIds; times in nanoseconds. The database is
# opened read-only, nothing of its schema but plain tables is used.

MAGIC = b"SQLite format 3\0"
ROWS = 3_000_000  # of one table
TOLD_BY = frozenset({"CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"})  # tables of an export
HOST_TO_DEVICE, PAGEABLE = 1, 0
QUERIES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "select start, end, shortName, 0, 0, 0 from CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "select start, end, 0, bytes, copyKind, srcKind from CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "select start, end, nameId, 0, 0, globalTid from CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS": "select start, end, text, 0, 0, globalTid from NVTX_EVENTS where end is not null",
}


def trace_of_database(path: Path) -> Trace | None:
    """The spans of an export; None where the file is another database or none. Broken ones end early (`whole`)."""
    base = _opened(path)
    if base is None:
        return None
    trace = Trace()
    base.set_progress_handler(_progress, 200_000)
    base.text_factory = lambda raw: raw.decode(errors="replace")
    try:
        tables = _tables(base)
        if not tables >= TOLD_BY:
            return None
        names = dict(base.execute("select id, value from StringIds limit 200000"))
        for table, query in QUERIES.items():
            if table in tables:
                _take(trace, table, base.execute(f"{query} limit {ROWS}"), names)
    except (sqlite3.Error, OverflowError):
        trace.whole = False
    finally:
        base.close()
    return trace


def is_export(path: Path) -> bool:
    """Whether a database is an export, or one too broken to tell."""
    base = _opened(path)
    if base is None:
        return False
    try:
        return _tables(base) >= TOLD_BY
    except sqlite3.Error:
        return True
    finally:
        base.close()


def _opened(path: Path) -> sqlite3.Connection | None:
    try:
        with open_regular(path) as raw:
            if raw.read(16) != MAGIC:
                return None
        return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
    except (OSError, ParseError, sqlite3.Error):
        return None


def _tables(base: sqlite3.Connection) -> set[str]:
    base.execute("pragma trusted_schema = off")
    return {name for (name,) in base.execute("select name from sqlite_master where type = 'table'")}


def _progress() -> int:
    """Called by SQLite now and then: the time limit holds within a long query too."""
    try:
        check()
    except TimeoutError:
        return 1
    return 0


def _take(trace: Trace, table: str, rows: Iterator[tuple], names: dict[int, str]) -> None:
    numbers: dict[str, int] = {n: i for i, n in enumerate(trace.names)}
    for start, end, name, size, kind, more in rows:
        if not (isinstance(start, int) and isinstance(end, int) and end >= start):
            continue
        told = str(names.get(name, name) if isinstance(name, int) else name)
        part = _part(table, told)
        if part is None:
            continue
        told = ("memcpy" if table.endswith("MEMCPY") else told)[:200]
        number = numbers.setdefault(told, len(trace.names))
        if number == len(trace.names):
            trace.names.append(told)
        length = (end - start) / 1e3
        thread = hash(more) % 100_000 if table.endswith(("RUNTIME", "EVENTS")) else 0
        trace.spans.setdefault(part, Spans()).add(start / 1e3, length, thread, number)
        total = trace.totals.setdefault((part, told), [0, 0.0])
        total[0] += 1
        total[1] += length
        trace.events += 1
        if part == "memcpy" and kind == HOST_TO_DEVICE and more == PAGEABLE and isinstance(size, int):
            trace.pageable += size


def _part(table: str, name: str) -> str | None:
    if table.endswith("KERNEL"):
        return "nccl" if single("nccl").search(name) else "kernel"
    if table.endswith("MEMCPY"):
        return "memcpy"
    if table.endswith("RUNTIME"):
        bare = name.rpartition("_v")[0] or name  # cudaStreamSynchronize_v3020
        return "sync" if single("sync").search(bare) else "launch" if single("launch").search(bare) else "runtime"
    return part_of(name)
