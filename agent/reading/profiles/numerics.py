"""Numbers that a run printed about its own tensors: activation dumps, printed tensors, exact against reduced sums."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..run.files import Line

FP16_MAX = 65504.0
_NUMBER = rb"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
_DUMP_ROW = re.compile(rb"^\s*(" + _NUMBER + rb")\s+(" + _NUMBER + rb")\s+(\S.{0,120})$", re.IGNORECASE)
_DUMP_HEAD = re.compile(rb"abs\s?min\s+abs\s?max", re.IGNORECASE)
_DUMP_MODULE = re.compile(rb"^\s{6,}([A-Za-z_][\w.]*(?:\s[\w.]+)?)\s*$")
_TENSOR = re.compile(rb"^(.{0,200}?)\btensor\(\s*(\[.*)$")
_VALUE = re.compile(rb"(?<![\w.=:])[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)(?![\w:])")
_BEFORE_AFTER = re.compile(
    r"\b(?:before|after|initial(?:ly)?|final(?:ly)?|start|end|pre|post|old|new)\b", re.IGNORECASE
)
_AFTER = re.compile(r"\b(?:after|final(?:ly)?|end|post|new)\b", re.IGNORECASE)
_LABELLED = re.compile(
    rb"^\s*([A-Za-z][\w ./\-\[\]]{1,60}?)\s*(?:[:=]\s*|\s{2,})([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*$"
)
_EXACT = re.compile(r"exact|expected|reference|true|fp64|float64|int64|ground|should", re.IGNORECASE)
_REDUCED = re.compile(r"reduc|result|actual|computed|got|observed|measured|bf16|bfloat16|fp16|gathered", re.IGNORECASE)
_LOW_PRECISION = re.compile(
    rb"^\s*['\"]?([\w.]*(?:count|tokens_per|num_|steps?|total|_sum|index|idx|counter|position)[\w.]*)['\"]?\b.{0,60}?\b(?:torch\.)?(bfloat16|float16|half)\b"
)


@dataclass(frozen=True)
class DumpRow:
    """A row of an activation dump: least and greatest absolute value of one tensor of a module."""

    module: str
    tensor: str
    least: float
    greatest: float
    line: Line


@dataclass(frozen=True)
class PrintedTensor:
    """A tensor printed with a label. `same` holds its one value when all shown elements are equal."""

    label: str
    text: bytes
    same: float | None
    line: Line

    @property
    def subject(self) -> str:
        """The label without its before or after: two prints of one thing share it."""
        return " ".join(_BEFORE_AFTER.sub("", self.label).lower().split())

    @property
    def after(self) -> bool:
        """Whether the label says that this is the later state."""
        return bool(_AFTER.search(self.label))


def dump_rows(lines: Iterable[Line]) -> Iterator[DumpRow]:
    """Rows of `abs min / abs max / metadata` tables in a text."""
    inside, module = False, ""
    for line in lines:
        data = line.data
        if _DUMP_HEAD.search(data):
            inside = True
        elif inside:
            row = _DUMP_ROW.match(data)
            if row:
                yield DumpRow(module, row[3].decode(errors="replace").strip(), float(row[1]), float(row[2]), line)
            elif head := _DUMP_MODULE.match(data):
                module = head[1].decode(errors="replace")
            elif data.startswith(b"Traceback"):
                inside = False


def overflow(rows: Sequence[DumpRow]) -> tuple[list[DumpRow], DumpRow | None]:
    """Rows near the FP16 limit before the first one that is not finite, and that one."""
    for i, row in enumerate(rows):
        if not math.isfinite(row.greatest) or not math.isfinite(row.least):
            near = [r for r in rows[:i] if 0.45 * FP16_MAX <= r.greatest <= 40 * FP16_MAX]
            return near, row
    return [r for r in rows if 0.45 * FP16_MAX <= r.greatest <= 1.1 * FP16_MAX], None


def growth(rows: Sequence[DumpRow]) -> tuple[DumpRow, DumpRow] | None:
    """First and last finite output when activations grow a hundredfold on the way."""
    outputs = [r for r in rows if r.tensor.startswith("output") and math.isfinite(r.greatest) and r.greatest > 0]
    if len(outputs) < 2:
        return None
    least, most = min(outputs, key=lambda r: r.greatest), max(outputs, key=lambda r: r.greatest)
    later = least.line.number < most.line.number
    return (least, most) if later and most.greatest > 100 * least.greatest else None


def printed_tensors(lines: Iterable[Line]) -> Iterator[PrintedTensor]:
    """Tensors printed by `print(label, tensor)` or in a dictionary, over as many lines as they take."""
    open_label, open_line, text, depth = "", None, b"", 0
    for line in lines:
        data = line.data
        if open_line is None:
            found = _TENSOR.match(data) if b"tensor(" in data else None
            if not found:
                continue
            open_label = found[1].decode(errors="replace").strip(" \t:={}'\",")
            open_line, text = line, found[2]
            depth = text.count(b"[") - text.count(b"]")
        else:
            text += b" " + data.strip()
            depth += data.count(b"[") - data.count(b"]")
        if depth <= 0 or len(text) > 1 << 16:
            yield _printed(open_label, text, open_line)
            open_line = None


def _printed(label: str, text: bytes, line: Line) -> PrintedTensor:
    body = text[: text.rfind(b"]") + 1]
    values = {float(v) for v in _VALUE.findall(body)}
    return PrintedTensor(label, b" ".join(body.split()), values.pop() if len(values) == 1 else None, line)


@dataclass(frozen=True)
class Sums:
    """An exact number beside what a reduction made of it."""

    exact: float
    reduced: float
    exact_line: Line
    reduced_line: Line

    @property
    def rounded(self) -> str | None:
        """The 16-bit format whose rounding explains the difference, if one does."""
        for name, bits in (("bfloat16", 8), ("float16", 11)):
            if _fits(self.reduced, bits) and not _fits(self.exact, bits):
                return name
        return None


def _fits(value: float, bits: int) -> bool:
    """Whether a number has at most `bits` significant bits."""
    if value == 0 or not math.isfinite(value):
        return True
    mantissa, _ = math.frexp(abs(value))
    return float(mantissa * 2**bits).is_integer()


def compared_sums(lines: Iterable[Line]) -> Iterator[Sums]:
    """Pairs of an exact and a reduced number that differ a little, printed within a few lines of each other."""
    exact: tuple[float, Line] | None = None
    for line in lines:
        found = _LABELLED.match(line.data) if len(line.data) < 200 else None
        if not found:
            if not line.data.strip():
                exact = None
            continue
        label, value = found[1].decode(errors="replace"), float(found[2])
        if _EXACT.search(label):
            exact = (value, line)
        elif exact and _REDUCED.search(label) and exact[1].number < line.number <= exact[1].number + 6:
            base = exact[0]
            if base and value != base and abs(value / base - 1) < 0.05:
                yield Sums(base, value, exact[1], line)


def low_precision_counters(lines: Iterable[Line]) -> Iterator[tuple[str, str, Line]]:
    """(name, dtype, line) of buffers that count and are kept in 16 bits."""
    for line in lines:
        if (b"float16" in line.data or b"half" in line.data) and (found := _LOW_PRECISION.match(line.data)):
            yield found[1].decode(errors="replace"), found[2].decode(), line
