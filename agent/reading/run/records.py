"""Samples of training data and completions: JSON lines, JSON arrays and CSV as records, each with its line."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core import deadline
from .files import Line, RunFile

if TYPE_CHECKING:
    from .workspace import Workspace

RECORDS = 5000  # of one file
BYTES = 8 << 20  # of one file

TEXT = ("prompt", "completion", "response", "text", "content", "instruction", "output", "answer", "chosen", "rejected",
        "question", "target", "value", "solution", "generated_text", "prediction", "generation", "query")  # fmt: skip
OPTIONAL = frozenset({"input", "system", "history", "context", "tools", "name", "reasoning", "thinking", "tool_calls"})
MEDIA = ("images", "image", "videos", "video", "audio", "audios", "pixel_values", "image_path", "image_url")
COMPLETIONS = ("completion", "response", "generated_text", "generation", "output", "answer", "prediction", "text")
_MEDIA_TOKEN = re.compile(r"<(?:image|video|audio|\|image_pad\||img)>?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Record:
    """One sample: the line it starts on, and its fields."""

    line: Line
    fields: dict[str, Any]

    def texts(self) -> Iterator[str]:
        """Every text in it, also those inside messages."""
        yield from _texts(self.fields, 0)

    @property
    def turns(self) -> list[dict[str, Any]]:
        """Messages of a conversation, or nothing."""
        for name in ("messages", "conversations", "conversation", "prompt", "dialog"):
            value = self.fields.get(name)
            if isinstance(value, list) and value and all(isinstance(t, dict) for t in value):
                return value
        return []

    @property
    def media(self) -> str:
        """The field (or token) that carries an image, video or sound; empty for text alone."""
        for name in MEDIA:
            if self.fields.get(name):
                return name
        for text in self.texts():
            if m := _MEDIA_TOKEN.search(text):
                return m[0]
        return ""

    @property
    def completion(self) -> str:
        """What a model wrote, or nothing."""
        return next((v for name in COMPLETIONS if isinstance(v := self.fields.get(name), str)), "")


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and value and isinstance(value[0], int | float):
        return  # token ids: no text among them
    elif depth < 6 and isinstance(value, list | dict):
        for part in list(value.values() if isinstance(value, dict) else value)[:2000]:
            yield from _texts(part, depth + 1)


def records(ws: Workspace, file: RunFile) -> list[Record]:
    """The first records of a file; empty where it holds none. Lines that do not parse are passed over."""
    return ws.memo(("records", file.name), lambda: _read(ws, file))


def _read(ws: Workspace, file: RunFile) -> list[Record]:
    lines: list[Line] = []
    size = 0
    for line in ws.lines(file):
        size += len(line.data)
        if size > BYTES or len(lines) >= 40 * RECORDS:
            ws.tell(file.name, f"only the first {len(lines)} lines were read as samples")
            break
        lines.append(line)
    base = file.name.lower().removesuffix(".gz").removesuffix(".zst")
    if base.endswith((".csv", ".tsv")):
        return _table(lines, "\t" if base.endswith(".tsv") else ",")
    found = _json_lines(lines)
    return found if len(found) > 1 or not base.endswith(".json") else _array(lines) or found


def _json_lines(lines: list[Line]) -> list[Record]:
    found = []
    for line in lines:
        if len(found) >= RECORDS:
            break
        if line.data.lstrip()[:1] != b"{":
            continue
        if isinstance(fields := _json(line.text), dict):
            found.append(Record(line, fields))
    return found


def _array(lines: list[Line]) -> list[Record]:
    """Objects of one JSON array, each with the line it starts on."""
    text = "\n".join(line.text for line in lines)
    at = text.find("[") + 1
    decoder = json.JSONDecoder()
    found: list[Record] = []
    number, counted = 0, 0
    while at and len(found) < RECORDS:
        start = text.find("{", at)
        if start < 0:
            break
        number += text.count("\n", counted, start)
        counted = start
        try:
            value, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        if isinstance(value, dict):
            found.append(Record(lines[number], value))
    return found


def _table(lines: list[Line], separator: str) -> list[Record]:
    """Rows of a CSV. A cell with line breaks keeps the line its row starts on."""
    text = "\n".join(line.text for line in lines)
    reader = csv.DictReader(io.StringIO(text), delimiter=separator)
    found: list[Record] = []
    start = 1
    try:
        for row in reader:
            if len(found) >= RECORDS or start >= len(lines):
                break
            found.append(Record(lines[start], {str(k): v for k, v in row.items() if k is not None}))
            start = reader.line_num
    except csv.Error:
        pass
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def tokens(text: str) -> int:
    """A rough number of tokens: four characters each, one for a character of a script without spaces."""
    wide = sum(1 for c in text[:20000] if "\u2e80" <= c <= "\uffdc")
    share = wide / max(1, min(len(text), 20000))
    return round(len(text) * (share + (1 - share) / 4))


# ----------
# Rows of JSON lines with all their numbers, also those whose names no vocabulary knows: one for each layer, expert.
#
# `metric_formats` keeps what it knows by name; a tracker's `grad_norm/layers.7.weight` is not among that.

_FILE_LIMIT = 1 << 30
_STEPS = ("step", "global_step", "_step", "iteration", "iter", "train/global_step", "trainer/global_step")
_KEYS = 20_000  # of one row


@dataclass(frozen=True, slots=True)
class Row:
    """One line: its step where it names one, and its numbers; keys of nested objects are joined by `/`.

    `empty` are the keys whose value is null.
    """

    file: RunFile
    line: Line
    step: int | None
    numbers: dict[str, float]
    empty: tuple[str, ...] = ()


_ROLES = ("metrics", "data", "log", "other")


def json_rows(ws: Workspace, word: bytes, roles: tuple[str, ...] = _ROLES) -> Iterator[Row]:
    """Rows of every JSON-lines file of the run that hold `word`; `roles` says which files are looked into."""
    for file in ws.by_role(*roles):
        if file.good or ".json" not in file.path.name:
            continue
        head = ws.head(file)
        if not head.lstrip().startswith(b"{") or word not in ws.read(file, 1 << 20):
            continue
        if not small_enough(ws, file, _FILE_LIMIT):
            continue
        for line in ws.lines(file):
            if word in line.data and (row := _row(file, line)) is not None:
                yield row


def small_enough(ws: Workspace, file: RunFile, limit: int) -> bool:
    """Whether a file is one to be read line by line; it is told where it is not."""
    if file.size > limit:
        ws.tell(file.name, f"{file.size >> 20} MiB, over the {limit >> 20} MiB that are read of such a file")
    return file.size <= limit


def _row(file: RunFile, line: Line) -> Row | None:
    if line.number % 1024 == 0:
        deadline.check()
    try:
        data = json.loads(line.data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    flat = dict(_flat(data))
    numbers = {key: value for key, value in flat.items() if value is not None}
    step = next((numbers[k] for k in _STEPS if k in numbers), None)
    return Row(
        file,
        line,
        int(step) if step is not None and abs(step) < 1e15 else None,
        numbers,
        tuple(flat.keys() - numbers.keys()),
    )


def _flat(data: dict[str, Any], before: str = "", depth: int = 4) -> Iterator[tuple[str, float | None]]:
    for i, (key, value) in enumerate(data.items()):
        if i >= _KEYS:
            return
        if isinstance(value, dict) and depth:
            yield from _flat(value, f"{before}{key}/", depth - 1)
        elif value is None:
            yield f"{before}{key}", None
        elif isinstance(value, int | float) and not isinstance(value, bool):
            try:
                yield f"{before}{key}", float(value)
            except OverflowError:
                yield f"{before}{key}", float("inf")
