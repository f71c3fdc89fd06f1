"""Profilers that print text: key_averages tables of torch, Lightning's, nsys stats, timers of DeepSpeed and Megatron.

Each gives shares of a step by part (`knowledge/profiles.yaml`), with the line that says so.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ...core.own_files import KNOWLEDGE, read_table
from ..run.files import Line, RunFile

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# The names of `knowledge/profiles.yaml`: which event of a profiler stands for which part of a step.


@cache
def _raw() -> dict[str, Any]:
    return read_table(KNOWLEDGE / "profiles.yaml")


@cache
def rows(table: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """`(part, pattern)` rows of one table, in its order."""
    return tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _raw()[table])


@cache
def single(name: str) -> re.Pattern[str]:
    """A pattern that stands alone."""
    return re.compile(_raw()[name])


def part_of(name: str, table: str = "names") -> str | None:
    """The part of a step that a name stands for."""
    return next((part for part, pattern in rows(table) if pattern.search(name)), None)


# ----------

GAP = re.compile(r"\s{2,}")
PERCENT = re.compile(r"^(\d{1,3}(?:\.\d+)?) ?%?$")
DEEPSPEED = re.compile(r"time \(ms\) \|(?P<timers>(?: ?[\w-]{1,60}: ?[\d.]+ ?\|?){2,})")
TIMER = re.compile(r"([\w-]{1,60}): ?([\d.]+)")
MEGATRON = re.compile(r"^\s*(?P<name>[a-z][\w-]{2,50}) \.{2,}: ?\(?(?P<low>[\d.]+)(?:, (?P<high>[\d.]+)\))?\s*$")
ITERATION = re.compile(r"elapsed time per iteration \(ms\): (?P<ms>[\d.]+)")
DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(us|ms|s)")
FOOT = re.compile(r"^Self CPU time total: (\d{1,12}(?:\.\d{1,6})?)(us|ms|s)$")
HEADS = ("self cpu %", "percentage %", "time (%)")


@dataclass(frozen=True, slots=True)
class Told:
    """A share of the step (0 to 1) that a line prints for a part of it; `source` names the format."""

    part: str
    fraction: float
    line: Line
    name: str
    source: str
    calls: int | None = None


@dataclass(slots=True)
class _Table:
    """A table being read: its columns by name, and how its lines are cut."""

    source: str
    columns: list[str]
    comma: bool = False
    rows: int = 0
    spans: list[tuple[float, Told]] = field(default_factory=list)  # outside of any thread: seconds, no share

    def cells(self, text: str) -> list[str]:
        if self.comma:
            return next(csv.reader([text]), [])
        return _cells(text)


@dataclass(slots=True)
class _Timers:
    """The last timers of each name, and the length of the iteration they belong to."""

    iteration: float | None = None
    held: dict[str, tuple[float, Line]] = field(default_factory=dict)


def told(lines: Iterable[Line]) -> list[Told]:
    """Every share the lines print, tables first seen first; of repeated timers the last."""
    found: list[Told] = []
    table: _Table | None = None
    spans: list[tuple[float, Told]] = []
    deepspeed: dict[str, tuple[float, Line]] = {}
    megatron = _Timers()
    for line in lines:
        text = line.text.rstrip()
        low = text.lower()
        if spans and (m := FOOT.search(text)):
            whole = _duration(m[1], m[2])
            # at least: as if it never ran beside the computation
            found += [replace(t, fraction=seconds / (seconds + whole)) for seconds, t in spans if whole]
            spans = []
        if any(head in low for head in HEADS):
            table = _table(text)
        elif table and (row := _row(table, text, line)):
            found.append(row)
            spans = table.spans
        elif table and not text.strip() and table.rows:
            table = None
        if m := DEEPSPEED.search(text):
            deepspeed |= {n: (float(ms), line) for n, ms in TIMER.findall(m["timers"]) if _number(ms)}
        elif m := ITERATION.search(text):
            megatron.iteration = float(m["ms"]) if _number(m["ms"]) else None
        elif (m := MEGATRON.match(text)) and _number(m["high"] or m["low"]):
            megatron.held[m["name"]] = (float(m["high"] or m["low"]), line)
    return [*found, *_of_deepspeed(deepspeed), *_of_megatron(megatron)]


def _seconds(cells: list[str], table: _Table) -> float:
    """What a row of torch's table took in all, where it prints that: a span of a collective has time and no share."""
    at = table.columns.index("cpu total") if table.source == "torch" and "cpu total" in table.columns else None
    m = DURATION.fullmatch(cells[at]) if at is not None else None
    return _duration(m[1], m[2]) if m else 0.0


def _duration(number: str, unit: str) -> float:
    return float(number) * {"s": 1.0, "ms": 1e-3, "us": 1e-6}[unit]


def _number(text: str) -> bool:
    return text.count(".") <= 1 and any(c.isdigit() for c in text)


def _cells(text: str) -> list[str]:
    bar = text.strip().strip("|").split("|") if "|" in text else GAP.split(text.strip())
    return [c.strip() for c in bar]


def _table(text: str) -> _Table:
    comma = text.count(",") >= 4
    columns = [c.strip().lower() for c in (next(csv.reader([text]), []) if comma else _cells(text))]
    source = "nsys" if "time (%)" in columns else "lightning" if "percentage %" in columns else "torch"
    return _Table(source, columns, comma)


def _row(table: _Table, text: str, line: Line) -> Told | None:
    cells = table.cells(text)
    column = {"nsys": "time (%)", "lightning": "percentage %", "torch": "cpu total %"}[table.source]
    if len(cells) != len(table.columns) or column not in table.columns:
        return None
    share = PERCENT.match(cells[table.columns.index(column)])
    if not share:
        return None
    table.rows += 1
    name = cells[-1] if table.source == "nsys" else cells[0]
    calls = next((cells[i] for i, c in enumerate(table.columns) if c in ("# of calls", "num calls", "instances")), "")
    part = _part(table.source, name)
    if part is None:
        return None
    number = int(calls.replace(",", "")) if calls.replace(",", "").isdigit() else None
    if not float(share[1]) and (seconds := _seconds(cells, table)):
        table.spans.append((seconds, Told(part, 0.0, line, name[:160], table.source, number)))
    return Told(part, float(share[1]) / 100, line, name[:160], table.source, number)


def _part(source: str, name: str) -> str | None:
    if source == "nsys":
        return "nccl_kernels" if single("nccl").search(name) else "sync_calls" if single("sync").search(name) else None
    if source == "torch" and single("sync").search(name):
        return "sync_calls"
    return part_of(name.rpartition("].")[2] if source == "lightning" else name)


def _of_deepspeed(held: dict[str, tuple[float, Line]]) -> list[Told]:
    """`bwd` holds `bwd_inner` and `bwd_allreduce`: the step is forward, backward and optimizer together."""
    tail = "_microstep" if "fwd_microstep" in held else ""
    parts = [held.get(name + tail, (0.0, None))[0] for name in ("fwd", "bwd", "step")]
    own = {n: v for n, v in held.items() if n.endswith("_microstep") == bool(tail)}  # both forms are printed
    return _shares(own, sum(parts), "deepspeed") if all(parts[:2]) else []


def _of_megatron(timers: _Timers) -> list[Told]:
    total = timers.iteration or timers.held.get("forward-backward", (0.0, None))[0]
    return _shares(timers.held, total, "megatron") if timers.held else []


def _shares(held: dict[str, tuple[float, Line]], total: float, source: str) -> list[Told]:
    """Timers of one part are added up; the longest is quoted."""
    if total <= 0:
        return []
    parts: dict[str, list[tuple[float, str, Line]]] = {}
    for name, (ms, line) in held.items():
        part = part_of(name, "timers")
        if part and ms <= 1.05 * total:
            parts.setdefault(part, []).append((ms, name, line))
    found = []
    for part, rows in parts.items():
        _, name, line = max(rows, key=lambda r: r[0])
        found.append(Told(part, min(1.0, sum(r[0] for r in rows) / total), line, name, source))
    return found


# ----------
# Tables of cProfile: how much of the time goes into opening and reading many files.

_BYTES = 16 << 20
_TOTAL = re.compile(r"^\s*\d+ function calls .{0,80}in (?P<seconds>\d+(?:\.\d+)?) (?:CPU )?seconds")
_ROW = re.compile(r"^\s*(?P<calls>\d+)(?:/\d+)?\s+[\d.]+\s+[\d.]+\s+(?P<cumulative>[\d.]+)\s+[\d.]+\s+(?P<name>\S.*)$")
_OPENS = re.compile(
    r"\{built-in method (?:_?io\.)?open\}|method posix\.open\}|_?npyio(?:_impl)?\.py:\d+\(load\)|Image\.py:\d+\(open\)"
    r"|serialization\.py:\d+\(load\)|\{(?:built-in method )?(?:cv2\.)?imread\}|files\.py:\d+\(__init__\)|imread\w*\)"
    r"|\((?:dcmread|read_csv|read_parquet|read_file|read_image|load_file|safe_open|read_text|read_bytes|loadtxt|wavfile_read)\)"
    r"|(?:soundfile|torchaudio|librosa|nibabel|rasterio)\S*\.py:\d+\((?:read|load|open)\)|json/__init__\.py:\d+\(load\)"
)
MANY = 2000  # calls from which files count as many


@dataclass(frozen=True, slots=True)
class FileLoads:
    """Calls of the function that loads files, and its share of the profiled time."""

    file: RunFile
    line: Line
    calls: int
    share: float
    name: str


def file_loads(ws: Workspace) -> list[FileLoads]:
    """The costliest function that opens or loads files, of each profile in which it is called very often."""
    found = []
    for file in ws.by_role("log", "other", "capture"):
        if not file.good and file.size <= _BYTES and (loads := _loads(ws, file)) is not None:
            found.append(loads)
    return found


def _loads(ws: Workspace, file: RunFile) -> FileLoads | None:
    total, best = 0.0, None
    if not any(b"ncalls" in block for block in ws.blocks(file)):
        return None
    for line in ws.lines(file):
        text = line.text[:400]
        if m := _TOTAL.match(text):
            total = float(m["seconds"])
        elif total > 0 and (m := _ROW.match(text)) and _OPENS.search(m["name"]) and m["cumulative"].count(".") == 1:
            share = min(1.0, float(m["cumulative"]) / total)
            if int(m["calls"]) >= MANY and (best is None or share > best.share):
                best = FileLoads(file, line, int(m["calls"]), share, m["name"][:80])
    return best
