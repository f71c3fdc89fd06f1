"""CSV and TSV: metrics by step, several runs in one table, or a sweep of settings against results."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...run.files import Line, blocks, lines
from ...run.metric_names import Meaning, meaning, normal
from ..series import Track

_NUMBER = re.compile(
    r"^\s*[-+]?(?:\d+(?:_\d+)*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)\s*%?\s*$", re.I
)
_RUN_COLUMNS = {
    "run", "variant", "name", "run_name", "run_id", "experiment", "exp", "config", "setting", "group", "method",
    "model", "seed", "case", "branch", "build", "run_label", "label", "arm", "trial", "job",
}  # fmt: skip
_TURNS = {"episode", "episodes", "episode_num", "game", "games", "round", "generation"}  # count what a run goes through
_MAX_COLUMNS = 2_000
_MAX_ROWS_KEPT = 200  # rows of a sweep


@dataclass
class SweepRow:
    """One row of a table that is not over time: settings and results of one try, by column name."""

    line: Line
    cells: dict[str, float | str]


@dataclass
class Table:
    """What a delimited file holds: tracks over steps, or sweep rows. Either may be empty."""

    tracks: list[Track]
    sweep: list[SweepRow]
    columns: list[str]


def read_table(path: Path) -> Table:
    """Read a delimited file with a header line; comment and ragged lines are passed over."""
    rows = _rows(path)
    header = next(rows, None)
    if header is None or len(header[1]) < 2 or any(_NUMBER.match(c) for c in header[1][:3] if c):
        return Table([], [], [])
    columns = header[1][:_MAX_COLUMNS]
    roles = [_role(c) for c in columns]
    step = next((i for name in ("step", "epoch", "turn") for i, r in enumerate(roles) if r == name), None)
    groups = [i for i, r in enumerate(roles) if r == "run"]
    if step is None:
        return Table([], _sweep(rows, columns), columns)
    return Table(_tracks(rows, columns, roles, step, groups), [], columns)


def _role(column: str) -> str | Meaning:
    name = normal(column)
    found = meaning(column, True)
    if found and found.metric in ("step", "epoch"):
        return found.metric
    if name in _RUN_COLUMNS:
        return "run"
    if name in _TURNS:
        return "turn"
    return found or "other"


def _rows(path: Path) -> Iterator[tuple[Line, list[str]]]:
    delimiter: str | None = None
    for line in lines(path):
        text = line.text.rstrip("\r").lstrip("\ufeff")
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        if delimiter is None:
            delimiter = max(",\t;", key=text.count)
        if '"' in text:
            try:
                cells = next(csv.reader([text], delimiter=delimiter), [])
            except csv.Error:
                continue
        else:
            cells = text.split(delimiter)
        yield line, [c.strip() for c in cells]


def number(cell: str) -> float | None:
    """A cell as a number, or None. A percent sign is dropped, not applied."""
    if not cell or not _NUMBER.match(cell):
        return None
    return float(cell.strip().rstrip("%"))


def _tracks(
    rows: Iterator[tuple[Line, list[str]]], columns: list[str], roles: list[str | Meaning], step: int, groups: list[int]
) -> list[Track]:
    tracks: dict[tuple[str, int], Track] = {}
    constants: dict[str, dict[str, set[str]]] = {}
    for line, cells in rows:
        if len(cells) <= step:
            continue
        at = number(cells[step])
        if at is None:
            continue
        variant = "/".join(cells[i] for i in groups if i < len(cells)) or ""
        if variant not in constants and len(constants) > 256:
            continue
        seen = constants.setdefault(variant, {})
        for i, cell in enumerate(cells[: len(columns)]):
            if i == step or i in groups or not cell:
                continue
            value = number(cell)
            if value is None or len(seen.setdefault(columns[i], set())) <= 1:
                seen.setdefault(columns[i], set()).add(cell)
            if value is None:
                continue
            track = tracks.get((variant, i))
            if track is None:
                track = tracks[(variant, i)] = _new_track(columns[i], roles[i], variant)
                track.by_epoch = roles[step] == "epoch"
            role = roles[i]
            track.add(at, value * (role.factor if isinstance(role, Meaning) else 1.0), line.number, line.offset)
    return _with_attributes(tracks, constants, columns)


def _new_track(column: str, role: str | Meaning, variant: str) -> Track:
    known = isinstance(role, Meaning)
    track = Track(role.metric if isinstance(role, Meaning) else normal(column), column, variant=variant or None)
    track.known = known
    return track


def _with_attributes(
    tracks: dict[tuple[str, int], Track], constants: dict[str, dict[str, set[str]]], columns: list[str]
) -> list[Track]:
    """Columns constant within each run but not across runs are attributes of the run, not series."""
    names = {
        c for c in columns
        if len(constants) > 1 and all(len(v.get(c, ())) <= 1 for v in constants.values())
        and len({next(iter(v.get(c, {""})), "") for v in constants.values()}) > 1
    }  # fmt: skip
    kept = []
    for (variant, i), track in tracks.items():
        if columns[i] in names and not track.known:
            continue
        for c in names:
            cell = next(iter(constants[variant].get(c, ())), "")
            value = number(cell)
            track.attributes[c] = cell if value is None else value
        kept.append(track)
    return kept


def _sweep(rows: Iterator[tuple[Line, list[str]]], columns: list[str]) -> list[SweepRow]:
    found = []
    for line, cells in rows:
        if len(cells) < 2:
            continue
        values: dict[str, float | str] = {}
        for column, cell in zip(columns, cells, strict=False):
            if cell:
                value = number(cell)
                values[column] = cell if value is None else value
        found.append(SweepRow(line, values))
        if len(found) >= _MAX_ROWS_KEPT:
            break
    return found


# ----------
# JSON that holds a history: `trainer_state.json`, lists of records. Every entry keeps its line.

_LIMIT = 64 << 20  # bytes of a JSON document that is parsed
_HISTORIES = ('"log_history"', '"history"', '"metrics"', '"logs"', '"records"', '"entries"', '"steps"')
_LINES = re.compile(r"\{[^\n]*\}[ \t\r]*\n\s*\{")
_DECODER = json.JSONDecoder()


def read_history(path: Path) -> list[Track]:
    """Tracks of a JSON document, or none when it holds no list of records."""
    data = b""
    for block in blocks(path):
        data += block
        if len(data) > _LIMIT:
            return []
    if b"[" not in data and data.count(b"{") < 2:
        return []
    text = data.decode(errors="replace")
    ends = np.flatnonzero(np.frombuffer(text.encode("utf-8", "replace"), np.uint8) == 10) if text.isascii() else None
    newlines = ends if ends is not None else np.array([i for i, c in enumerate(text) if c == "\n"], dtype=np.int64)
    tracks: dict[str, Track] = {}
    for start in _lists(text):
        for at, end, record in _records(text, start):
            _add(tracks, text, at, end, record, newlines)
    return list(tracks.values())


def _lists(text: str) -> Iterator[int]:
    """Where a list of records may begin."""
    head = text.lstrip()
    if head.startswith("["):
        yield text.index("[")
        return
    if head.startswith("{") and _LINES.match(head):  # JSON lines under the name of a JSON document
        yield text.index("{") - 1
        return
    for name in _HISTORIES:
        at = text.find(name)
        if at >= 0 and (bracket := text.find("[", at, at + len(name) + 16)) >= 0:
            yield bracket


def _records(text: str, start: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
    at = start + 1
    while at < len(text):
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at >= len(text) or text[at] != "{":
            return
        try:
            record, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield at, end, record
        at = end


def _add(tracks: dict[str, Track], text: str, at: int, end: int, record: dict[str, Any], newlines: np.ndarray) -> None:
    step = _step(record)
    for name, value in _numbers(record):
        found = meaning(name, True)
        if found is not None and found.metric in ("step", "epoch"):
            continue
        place = text.find(f'"{name.rpartition(chr(0))[2]}"', at, end)
        place = at if place < 0 else place
        line = int(np.searchsorted(newlines, place)) + 1
        offset = int(newlines[line - 2]) + 1 if line > 1 else 0
        track = tracks.get(name)
        if track is None:
            if len(tracks) >= 1024:
                continue
            track = tracks[name] = Track(found.metric if found else normal(name), name)
            track.known = found is not None
        track.add(step, value * (found.factor if found else 1.0), line, offset)


def _step(record: dict[str, Any]) -> float:
    for name, value in record.items():
        found = meaning(name, True) if isinstance(value, int | float) and not isinstance(value, bool) else None
        if found and found.metric == "step":
            return float(value)
    return math.nan


def _numbers(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, dict):
            for inner, number in value.items():
                if (parsed := as_number(number)) is not None:
                    yield f"{name}/{inner}", parsed
        elif (parsed := as_number(value)) is not None:
            yield name, parsed


def as_number(value: Any) -> float | None:
    """A JSON value as a number: HF writes floats as strings since version 5."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e300 or not isinstance(value, int) else None
    if isinstance(value, str) and len(value) < 40:
        try:
            return float(value)
        except ValueError:
            return None
    return None
