"""Rows of JSON lines with all their numbers, also those whose names no vocabulary knows: one for each layer, expert.

`metric_formats` keeps what it knows by name; a tracker's `grad_norm/layers.7.weight` is not among that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import deadline
from .files import Line, RunFile

if TYPE_CHECKING:
    from ..workspace import Workspace

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
