"""A pass over one dataset file: every line looked at from outside, an even sample of records kept, within bounds."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core.errors import ParseError
from ...core.types import Evidence
from ..curves.anomalies.finding import groups
from ..curves.anomalies.learning import progress_findings
from ..curves.anomalies.loss_anomalies import loss_findings
from ..curves.curves import curves, point_evidence
from ..run.files import Line, RunFile
from ..settings.settings import plain_settings, read_settings
from .columnar import archive_rows, arrow_rows, parquet_rows
from .dataset_files import Fault, Row, Source
from .record_questions import body, ratio
from .text_rows import array_rows, json_rows, long_lines, plain_rows, table_rows

if TYPE_CHECKING:
    from ..run.workspace import Workspace

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


# ----------
# Some records out of many: at random, by length, by how much they repeat themselves, by odd characters.

_ODD = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\u0080-\u009f\ufffd\u200b-\u200f\u202a-\u202e\u2066-\u2069\ue000-\uf8ff]")


def picked(rows: Sequence[Row], where: str, count: int, seed: int) -> list[Row]:
    """`count` records: random, first, longest, shortest, repetitive or odd; fewer where fewer are so."""
    if where == "random":
        some = random.Random(seed).sample(list(rows), min(count, len(rows)))
        return sorted(some, key=lambda r: (r.file.name, r.number))
    if where == "first":
        return list(rows[:count])
    if where == "longest":
        return sorted(rows, key=lambda r: -len(body(r)))[:count]
    if where == "shortest":
        return sorted(rows, key=lambda r: len(body(r)))[:count]
    if where == "repetitive":
        judged = [(ratio(body(r)), r) for r in rows if len(body(r)) >= 200]
        return [r for value, r in sorted(judged, key=lambda pair: pair[0])[:count] if value < 0.25]
    return [r for r in rows if _ODD.search(body(r))][:count]


# ----------
# Which records a training step saw: its number, the samples of a step, and the order the data came in.

LOG = 256 << 20  # bytes of one file looked through for logged indices

_EVENTS = ("loss.first_nan_step", "loss.spike_step")
_CONSUMED = re.compile(r"consumed[_ ]samples['\"]?\s*[:=|]\s*(\d+)")
_INDICES = re.compile(
    r"""(?i)\b(?:sample_?|data_?|batch_?)?(?:indices|indexes|sample_ids|sample_idx|example_ids|doc_ids|idxs?)["']?\s*[:=]\s*"""
    r"""(?:tensor\()?\[([\d,\s]{1,20000})\]"""
)
_STEP = re.compile(r"""(?i)\b(?:global_?step|step|iteration|iter)["']?\s*[:=]?\s*(\d{1,9})\b""")
_SHUFFLES = re.compile(r"shuffle\s*=\s*True|RandomSampler|DistributedSampler|\.shuffle\(|randperm|random\.shuffle")
_IN_ORDER = re.compile(r"shuffle\s*=\s*False|SequentialSampler|shuffle:\s*false|--no-shuffle|\"shuffle\":\s*false")
_TRAINERS = frozenset({"hf", "trl", "axolotl", "llamafactory", "megatron", "nemo", "verl", "slime", "openrlhf"})


@dataclass(slots=True)
class StepRecords:
    """What is known of a step's records.

    Attributes:
        step: its number; None where nothing odd was seen and none was named.
        seen: evidence that the step is odd.
        numbers: the records, counted from 0, where that can be told.
        why: how they are known, or why they are not.
        cited: evidence for how they are known.
    """

    step: int | None = None
    seen: Evidence | None = None
    numbers: list[int] = field(default_factory=list)
    why: str = ""
    cited: Evidence | None = None


def records_of(ws: Workspace, step: int) -> StepRecords:
    """The records of a step, or of the first odd one of the loss where `step` is 0."""
    out = StepRecords(step or None)
    if not step:
        out.seen = next(_odd_steps(ws), None)
        out.step = out.seen.step if out.seen else None
    if out.step is None:
        out.why = "no step is known at which the loss was odd"
        return out
    for file, line, numbers in _logged(ws, out.step):
        out.numbers, out.why = numbers, "the run logged the indices of this step"
        out.cited = ws.cite(file, line, "sample.logged_indices", len(numbers))
        return out
    _counted(ws, out)
    return out


def _odd_steps(ws: Workspace) -> Iterator[Evidence]:
    """The first step with a loss that is not finite, else the first spike."""
    settings = plain_settings(ws)
    found: list[Evidence] = []
    for group in groups([s for s in curves(ws).series if not s.file.good]):
        for f in [*loss_findings(group, settings), *progress_findings(group)]:
            if f.key in _EVENTS and f.series is not None and f.step is not None:
                found.append(point_evidence(ws, f.series, f.index, "sample.step", f.step))
                if f.key != "loss.spike_step":
                    break
    nans = [e for e in found if not _finite(e)]
    yield from sorted(nans or found, key=lambda e: e.step or 0)


def _finite(e: Evidence) -> bool:
    return not re.search(r"(?i)\b(?:nan|inf)\b", e.text)


def _logged(ws: Workspace, step: int) -> Iterator[tuple[RunFile, Line, list[int]]]:
    """Lines that name the indices of this step."""
    for file in ws.by_role("log", "metrics", "data", "other"):
        if file.size > LOG or not _INDICES.search(ws.text(file, 256 << 10)):
            continue
        for line in ws.lines(file):
            text = line.text
            if (m := _INDICES.search(text)) and (s := _STEP.search(text)) and int(s[1]) == step:
                yield file, line, [int(n) for n in re.findall(r"\d+", m[1])][:100_000]


def _counted(ws: Workspace, out: StepRecords) -> None:
    """By arithmetic, where the data came in order."""
    assert out.step is not None
    size = batch_size(ws)
    if size is None:
        out.why = "the number of samples of a step is not known (micro-batch, accumulation and processes)"
        return
    consumed = _CONSUMED.search(out.seen.text) if out.seen else None
    last = int(consumed[1]) if consumed else out.step * size
    order, cited = _order(ws)
    first = max(0, last - size)
    if order != "in order":
        said = f"samples {first} to {last - 1} in the order of the sampler"
        out.why = f"the data are {order}: {said}, which does not say which records these are"
        out.cited = cited
        return
    out.numbers = list(range(first, min(last, first + 1_000_000)))
    out.why = f"read in order, {size} a step, steps counted from 1"
    out.cited = cited


def batch_size(ws: Workspace) -> int | None:
    """Samples of one optimizer step over all ranks; None where it cannot be told."""
    settings = read_settings(ws)

    def number(name: str) -> int | None:
        value = settings.value(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    if size := number("global_batch_size"):
        return size
    micro = number("micro_batch_size")
    if micro is None:
        return None
    world = number("world_size") or (number("nodes") or 1) * (number("gpus_per_node") or 1)
    for name in ("tensor_parallel", "pipeline_parallel", "context_parallel"):
        world = max(1, world // (number(name) or 1))
    return micro * (number("gradient_accumulation_steps") or 1) * world


def _order(ws: Workspace) -> tuple[str, Evidence | None]:
    """Whether the data are `in order`, `shuffled`, or in an order that nothing tells; and the line that says so."""
    asked = [s for s in read_settings(ws).asked("shuffle") if not s.file.good]
    if asked:
        word = "shuffled" if any(s.value is True for s in asked) else "in order"
        return word, ws.cite(asked[0].file, asked[0].line, "sample.order", word)
    for pattern, word in ((_SHUFFLES, "shuffled"), (_IN_ORDER, "in order")):
        for file in ws.by_role("code", "config"):
            if pattern.search(ws.text(file, 512 << 10)):
                line = next((x for x in ws.lines(file) if pattern.search(x.text)), None)
                if line is not None:
                    return word, ws.cite(file, line, "sample.order", word)
    if read_settings(ws).frameworks & _TRAINERS:
        return "shuffled by the trainer unless it is told not to", None
    return "in an order that nothing tells", None
