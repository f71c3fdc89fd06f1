"""CSV and TSV: metrics by step, several runs in one table, or a sweep of settings against results."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..files import Line, lines
from ..metric_names import Meaning, meaning, normal
from ..series import Track

_NUMBER = re.compile(
    r"^\s*[-+]?(?:\d+(?:_\d+)*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)\s*%?\s*$", re.I
)
_RUN_COLUMNS = {
    "run", "variant", "name", "run_name", "run_id", "experiment", "exp", "config", "setting", "group", "method",
    "model", "seed", "case", "branch", "build", "run_label", "label", "arm", "trial", "job",
}  # fmt: skip
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
    step = next((i for i, r in enumerate(roles) if r == "step"), None)
    if step is None:
        step = next((i for i, r in enumerate(roles) if r == "epoch"), None)
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
