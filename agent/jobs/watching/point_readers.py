"""What makes points of what a file gained: text lines, tables, TensorBoard records, the trainer's state."""

from __future__ import annotations

import math
import re
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...reading.curves.formats.metric_lines import Wordings
from ...reading.curves.formats.metric_tables import number
from ...reading.curves.formats.metric_text import Reading
from ...reading.curves.stores import event_of
from ...reading.run.metric_names import Meaning, meaning
from ..growing import line_end

_LABEL = re.compile(
    rb"\[\s{0,2}[Rr]ank[ :]?\s?(\d{1,6})\]:?|\[default(\d{1,5})\]:|^(\d{1,5}): |\[rank=(\d{1,6})\]|\[RANK (\d{1,6})\]"
)
# Ranks that write to one pipe at once share a line: what follows such a label is another rank's.
_NEXT = re.compile(rb"(?=\[(?:[Rr]ank\s?|default)\d{1,6}\]:)")
_LINE = 1 << 14  # bytes of a line that are looked at
_WORDINGS = 200_000  # lines after which the wordings are learned anew: the memory of them stays bounded
_KEPT = 12  # last lines of a file
_SHOWN = 400  # bytes of each of them
_SUMMED = 4096  # bytes of a record whose checksum is computed: one of scalars is smaller
_RECORD = 1 << 20  # bytes of a TensorBoard record; images are larger


@dataclass(frozen=True, slots=True)
class Point:
    """One value as a file has it. `step` is None where none is named; `epoch` says which count the step is of."""

    metric: str
    raw: str
    value: float
    step: float | None
    rank: int | None
    line: int | None


OnPoint = Callable[[Point], None]
OnStep = Callable[[float, int | None], None]  # the step that a line names, and its rank
OnLine = Callable[[bytes, int | None, int | None], None]  # a line without metrics, its number, its rank


class Shared:
    """The wordings of all text files of a run: a line without its rank is worded alike on every rank."""

    def __init__(self) -> None:
        self.wordings = Wordings()
        self._left = _WORDINGS

    def read(self, line: bytes) -> Reading | None:
        """The metrics of a line; None where it has none."""
        self._left -= 1
        if self._left <= 0:
            self.wordings, self._left = Wordings(), _WORDINGS
        return self.wordings.read(line)


class TextReader:
    """Lines of a log or of JSON lines; what is drawn over with `\\r` counts as it comes."""

    whole = False

    def __init__(self, shared: Shared, point: OnPoint, line: OnLine, step: OnStep) -> None:
        self._shared, self._point, self._other, self._step = shared, point, line, step
        self._base = self._last = 0.0
        self._epoch: float | None = None
        self.ending: deque[bytes] = deque(maxlen=_KEPT)

    def begin(self, rewritten: bool) -> None:
        self._base = self._last = 0.0
        self._epoch = None
        self.ending.clear()

    def take(self, data: bytes, line: int | None, last: bool) -> int:
        end = len(data) if last else line_end(data, _RECORD)
        for text in data[:end].split(b"\n"):
            line = None if line is None else line + 1
            if len(text) > 5:
                for piece in text[: 4 * _LINE].split(b"\r") if b"\r" in text else (text,):
                    self._shared_line(piece[:_LINE], line)
        return end

    def _shared_line(self, text: bytes, line: int | None) -> None:
        if text.count(b"]:") < 2:
            return self._piece(text, line)
        for piece in _NEXT.split(text):
            if piece:
                self._piece(piece, line)
        return None

    def _piece(self, text: bytes, line: int | None) -> None:
        rank, bare = None, text
        if m := _LABEL.search(text[:200]):
            rank = int(next(g for g in m.groups() if g is not None))
            bare = text[: m.start()] + text[m.end() :].lstrip()
        reading = self._shared.read(bare)
        if reading is None or not (reading.values or reading.step is not None):
            if text.strip():
                self.ending.append(text[:_SHOWN])
                self._other(text, line, rank)
            return
        self.ending.append(text[:_SHOWN])
        rank = rank if rank is not None else reading.rank
        step = None
        if reading.step is not None:
            if reading.epoch is not None:
                if self._epoch is not None and reading.epoch == self._epoch + 1 and reading.step < self._last:
                    self._base += max(reading.total or 0.0, self._last)
                elif self._epoch is not None and reading.epoch < self._epoch:
                    self._base = 0.0
                self._epoch = reading.epoch
            self._last = reading.step
            step = reading.step + self._base
            self._step(step, rank)
        for meant, raw, value, _, _ in reading.values:
            self._point(Point(meant.metric, raw, value, step, rank, line))


class TableReader:
    """CSV and TSV by a header line, which may come again with more columns."""

    whole = True

    def __init__(self, point: OnPoint) -> None:
        self._point = point
        self._columns: list[tuple[str, Meaning | None]] = []
        self._at: int | None = None
        self._by = ","
        self._seen: dict[str, float] = {}
        self._past = False

    def begin(self, rewritten: bool) -> None:
        self._columns, self._past = [], rewritten
        if not rewritten:
            self._seen.clear()

    def take(self, data: bytes, line: int | None, last: bool) -> int:
        end = len(data) if last else data.rfind(b"\n") + 1
        for text in data[:end].decode(errors="replace").splitlines():
            line = None if line is None else line + 1
            if text.strip() and not text.startswith("#"):
                self._row(text.lstrip("\ufeff"), line)
        return end

    def _row(self, text: str, line: int | None) -> None:
        if not self._columns or self._is_header(text):
            self._by = max(",\t;", key=text.count)
            names = [c.strip().strip('"') for c in text.split(self._by)[:2000]]
            self._columns = [(n, meaning(n, True)) for n in names]
            roles = [m.metric if m else "" for _, m in self._columns]
            self._at = next((roles.index(r) for r in ("step", "epoch") if r in roles), None)
            return
        cells = text.split(self._by)
        step = number(cells[self._at].strip()) if self._at is not None and self._at < len(cells) else None
        for (name, meant), cell in zip(self._columns, cells, strict=False):
            if meant is None or meant.metric in ("step", "epoch") or (value := number(cell.strip())) is None:
                continue
            if step is not None:
                if self._past and step <= self._seen.get(name, -math.inf):
                    continue  # told before the file was written anew
                self._seen[name] = max(step, self._seen.get(name, -math.inf))
            self._point(Point(meant.metric, name, value * meant.factor, step, None, line))

    def _is_header(self, text: str) -> bool:
        first = text.split(self._by, 1)[0].strip().strip('"')
        return any(first == name for name, _ in self._columns) and number(first) is None


# The checksum of TensorBoard's records: CRC-32C, masked as TFRecord has it. For records of some hundred bytes.

_POLYNOMIAL, _MASK = 0x82F63B78, 0xA282EAD8


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(_entry(byte) for byte in range(256))


def masked(data: bytes) -> bytes:
    """The four bytes that stand behind `data` in a record."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF)


class EventReader:
    """TensorBoard records. One that is half written waits, with zeros in its place too: so remote file systems show
    it. One too large or with a wrong checksum is passed over; a header that stays wrong ends it.
    """

    whole = True

    def __init__(self, point: OnPoint) -> None:
        self._point = point
        self._skip = 0
        self._number = 0
        self.broken = False

    def begin(self, rewritten: bool) -> None:
        self._skip = self._number = 0
        self.broken = False

    def take(self, data: bytes, line: int | None, last: bool) -> int:
        if self.broken:
            return len(data)
        at = min(self._skip, len(data))
        self._skip -= at
        while len(data) - at >= 12:
            (length,) = struct.unpack_from("<Q", data, at)
            if masked(data[at : at + 8]) != data[at + 8 : at + 12]:
                self.broken = len(data) - at >= _RECORD // 2
                return len(data) if self.broken else at
            whole = 16 + length
            if len(data) - at < whole:
                if length > _RECORD - 64:
                    self._skip = whole - (len(data) - at)
                    at = len(data)
                break
            self._number += 1
            record = data[at + 12 : at + 12 + length]
            if length > _SUMMED or masked(record) == data[at + 12 + length : at + whole]:
                self._record(record)
            at += whole
        return at

    def _record(self, data: bytes) -> None:
        try:
            step, scalars = event_of(data)
        except (IndexError, struct.error, ValueError):
            return
        for tag, value in scalars:
            if meant := meaning(tag, True):
                self._point(Point(meant.metric, tag, value * meant.factor, float(step), None, self._number))


class StateReader:
    """`trainer_state.json`: written whole at each checkpoint; only steps that are new count."""

    whole = True
    LIMIT = 8 << 20

    def __init__(self, path: Path, point: OnPoint, seen: dict[str, float]) -> None:
        self._path, self._point, self._seen = path, point, seen  # each checkpoint has a copy: one count for all

    def begin(self, rewritten: bool) -> None:
        return None

    def take(self, data: bytes, line: int | None, last: bool) -> int:
        from ...reading.curves.formats.metric_tables import read_history
        from ...reading.run.files import RunFile

        if not data or self._path.stat().st_size > self.LIMIT:
            return len(data)
        for track in read_history(self._path):
            series = track.finish(RunFile(self._path.name, self._path, "metrics", 0))
            if series is None or not series.stepped:
                continue
            before = self._seen.get(series.raw, -math.inf)
            for step, value, at in zip(
                series.steps.tolist(), series.values.tolist(), series.lines.tolist(), strict=True
            ):
                if step > before and track.known:
                    self._point(Point(series.metric, series.raw, value, step, None, int(at)))
            self._seen[series.raw] = max(before, float(series.steps.max()))
        return len(data)
