"""Nsight Systems' SQLite export (`nsys export --type sqlite`) as the spans of a trace.

Tables CUPTI_ACTIVITY_KIND_{KERNEL, MEMCPY, RUNTIME}, NVTX_EVENTS and StringIds; times in nanoseconds. The database is
opened read-only, nothing of its schema but plain tables is used.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from ..deadline import check
from ..errors import ParseError
from .files import open_regular
from .profile_names import part_of, single
from .trace_events import Spans, Trace

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
