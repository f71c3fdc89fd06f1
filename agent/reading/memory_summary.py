"""Allocator statistics that a run printed: `torch.cuda.memory_summary()` tables and `torch.cuda.memory_stats()`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .anchor_lines import anchored
from .anchor_windows import around
from .files import Line, RunFile

if TYPE_CHECKING:
    from ..workspace import Workspace

HEAD = re.compile(r"PyTorch CUDA memory summary, device ID (\d{1,3})")
COUNTS = re.compile(r"CUDA OOMs: (\d{1,9})\s*\|\s*cudaMalloc retries: (\d{1,9})")
CELL = r"\|\s*(\d{1,9})\s?(B|KiB|MiB|GiB|TiB|PiB)\s*"
ROW = re.compile(rf"\|\s*(Allocated memory|GPU reserved memory|Non-releasable memory)\s*{CELL}{CELL}")
STAT = re.compile(
    r"['\"]?\b(allocated_bytes\.all\.current|allocated_bytes\.all\.peak|reserved_bytes\.all\.current|"
    r"inactive_split_bytes\.all\.current|num_alloc_retries|num_ooms)['\"]?\s*[:=,]\s*(\d{1,18})\b"
)
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
NAMES = {
    "allocated_bytes.all.current": "stats_allocated_bytes", "allocated_bytes.all.peak": "stats_peak_bytes",
    "reserved_bytes.all.current": "stats_reserved_bytes", "num_alloc_retries": "alloc_retries",
    "inactive_split_bytes.all.current": "inactive_split_bytes", "num_ooms": "ooms_counted",
}  # fmt: skip
TABLES = 24  # tables read: the first half and the last


@dataclass(frozen=True, slots=True)
class Statistic:
    """One number with the line that prints it; bytes, or a count."""

    key: str
    value: int
    file: RunFile
    line: Line


def statistics(ws: Workspace) -> Iterator[Statistic]:
    """The last printed statistics of each file and device, in file order."""
    hits = [h for h in anchored(ws).of("oom") if HEAD.search(h.text) or STAT.search(h.text)]
    if len(hits) > TABLES:
        hits = [*hits[: TABLES // 2], *hits[-TABLES // 2 :]]
    last: dict[tuple[str, str, str], Statistic] = {}
    for hit in hits:
        device, lines = "", [hit.line]
        if m := HEAD.search(hit.text):
            device, lines = m[1], _table(around(ws, hit, 512, 6 << 10), hit.line)
        for line in lines:
            for key, value in _numbers(line.text):
                last[hit.file.name, device, key] = Statistic(key, value, hit.file, line)
    yield from last.values()


def _table(lines: list[Line], head: Line) -> list[Line]:
    """The lines of one table: those after its head until the next one or the first that is no row."""
    found = []
    for line in lines:
        if line.number <= head.number:
            continue
        if "|" not in line.text or HEAD.search(line.text):
            break
        found.append(line)
    return found


def _numbers(text: str) -> Iterator[tuple[str, int]]:
    if m := COUNTS.search(text):
        yield "ooms_counted", int(m[1])
        yield "alloc_retries", int(m[2])
    elif m := ROW.search(text):
        now, peak = int(m[2]) * UNITS[m[3]], int(m[4]) * UNITS[m[5]]
        if m[1] == "Allocated memory":
            yield "stats_allocated_bytes", now
            yield "stats_peak_bytes", peak
        elif m[1] == "GPU reserved memory":
            yield "stats_reserved_bytes", now
        else:
            yield "inactive_split_bytes", now
    for m in STAT.finditer(text):
        yield NAMES[m[1]], int(m[2])
