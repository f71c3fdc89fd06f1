"""A pass over one dataset file: every line looked at from outside, an even sample of records kept, within bounds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import ParseError
from ..files import Line
from .archives import archive_rows
from .array_rows import array_rows
from .columnar import arrow_rows, parquet_rows
from .rows import Fault, Row, Source
from .text_rows import json_rows, long_lines, plain_rows, table_rows

if TYPE_CHECKING:
    from ...workspace import Workspace

COST = 40 << 20  # bytes of records kept, of all files together
NUMBERS = 4  # how much dearer lists of numbers are in memory than the text they stand in
HASHES = 400_000  # lines remembered at a time
FAULTS = 20  # of one kind kept; all are counted


@dataclass(slots=True)
class Look:
    """What one pass over a file gave.

    Attributes:
        rows: the records kept: every `every`-th one.
        seen: records that passed by, kept or not.
        faults: what is broken, at most `FAULTS` of a kind; `counts` has how many there were.
        within: numbers of the records that are wanted; all where it is None.
        repeated: estimated share of lines that occurred before; None where lines are no records.
        stopped: why the rest of the file was not read; empty where all was.
    """

    source: Source
    rows: list[Row] = field(default_factory=list)
    seen: int = 0
    every: int = 1
    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    repeated: float | None = None
    again: list[Line] = field(default_factory=list)
    undecodable: list[Line] = field(default_factory=list)
    undecoded: int = 0
    stopped: str = ""
    within: range | None = None
    _cost: int = 0

    @property
    def whole(self) -> bool:
        """Every record was looked at closely."""
        return self.every == 1 and not self.stopped and not self.counts["not_read"] and not self.counts["corrupt"]

    def tell(self, fault: Fault) -> None:
        """Note a fault."""
        self.counts[fault.kind] += 1
        if self.counts[fault.kind] <= FAULTS:
            self.faults.append(fault)

    def wanted(self, number: int) -> bool:
        """Whether the record of that number belongs to the sample, as it is now."""
        self.seen = max(self.seen, number + 1)
        if self.within is not None:
            return number in self.within
        return number % self.every == 0

    def keep(self, row: Row, limit: int, cost: int) -> None:
        """Take a record; where they become too many, every other one goes."""
        self.rows.append(row)
        self._cost += _cost(row)
        while len(self.rows) > limit or (self._cost > cost and len(self.rows) > 8):
            self.every *= 2
            self.rows = [r for r in self.rows if r.number % self.every == 0]
            self._cost = sum(_cost(r) for r in self.rows)


def _cost(row: Row) -> int:
    numbers = any(isinstance(v, list) and len(v) > 16 and isinstance(v[0], int | float) for v in row.fields.values())
    return (row.size or 1000) * (NUMBERS if numbers else 1) + 500


def look(ws: Workspace, source: Source, limit: int, cost: int, seconds: float) -> Look:
    """Read one file.

    Args:
        limit: records kept.
        cost: bytes of them.
        seconds: after which the rest is left and told.
    """
    out = Look(source)
    ends = time.monotonic() + seconds
    try:
        for n, row in enumerate(stream(ws, source, out)):
            if row.number % out.every == 0:
                out.keep(row, limit, cost)
            if n % 64 == 0 and time.monotonic() > ends:
                out.stopped = f"stopped after {out.seen} records, at its share of the time"
                break
    except ParseError as e:
        out.tell(Fault(source.file, "corrupt", str(e), "file"))
    said = [why for name, why in ws.skipped if name == source.file.name]
    if said and not out.stopped:
        out.stopped = said[0]
    return out


def stream(ws: Workspace, source: Source, out: Look) -> Iterator[Row]:
    """The records that `out` wants, one after the other; it hears of what is broken."""
    file, tell, wanted = source.file, out.tell, out.wanted
    if source.kind == "jsonl":
        return json_rows(_watched(long_lines(ws, file), out), file, tell, wanted)
    if source.kind == "json":
        return _json(ws, source, out)
    if source.kind in ("csv", "tsv"):
        separator = "\t" if source.kind == "tsv" else ","
        return table_rows(_watched(long_lines(ws, file), out), file, tell, wanted, separator)
    if source.kind == "text":
        return plain_rows(_watched(long_lines(ws, file), out, 40), file, wanted)
    if source.kind == "parquet":
        return parquet_rows(file, tell, wanted)
    if source.kind == "arrow":
        return arrow_rows(file, tell, wanted)
    return archive_rows(ws, file, tell, wanted)


def _json(ws: Workspace, source: Source, out: Look) -> Iterator[Row]:
    """A .json may be an array or, in spite of its name, one object a line."""
    head = ws.read(source.file, 64 << 10).strip()
    first = head.split(b"\n", 1)[0].rstrip()
    if head[:1] == b"{" and first[-1:] == b"}" and b"\n" in head:
        return json_rows(_watched(long_lines(ws, source.file), out), source.file, out.tell, out.wanted)
    return array_rows(ws.blocks(source.file), source.file, out.tell, out.wanted)


def _watched(lines: Iterator[Line], out: Look, least: int = 2) -> Iterator[Line]:
    """The lines, while repeats and damaged bytes among them are counted.

    A line takes part in the count of repeats where its hash falls into the share that is remembered, which is
    halved when there are too many: the same line always falls on the same side.
    """
    seen: set[int] = set()
    modulus, counted, again = 1, 0, 0
    for line in lines:
        data = line.data
        if not data.isascii() and not line.cut and not _decodes(data):
            out.undecoded += 1
            if len(out.undecodable) < 3:
                out.undecodable.append(Line(line.number, line.offset, data[:4097], len(data) > 4096))
        if len(data) >= least:
            mark = hash(data)
            if mark % modulus == 0:
                counted += 1
                if mark in seen:
                    again += 1
                    if len(out.again) < 3:
                        out.again.append(Line(line.number, line.offset, data[:4097], line.cut or len(data) > 4096))
                else:
                    seen.add(mark)
                    if len(seen) > HASHES:
                        modulus *= 2
                        seen = {m for m in seen if m % modulus == 0}
                        counted, again = counted // 2, again // 2
            out.repeated = again / counted if counted else 0.0
        yield line


def _decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
