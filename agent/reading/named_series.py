"""Curves by the names that a run gave them, also those that no vocabulary knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from .curves import curves
from .json_rows import Row, json_rows
from .series import Series

if TYPE_CHECKING:
    from ..workspace import Workspace

_MOST = 50_000  # rows of one file


def named_series(ws: Workspace, name: re.Pattern[str], word: bytes) -> list[Series]:
    """Every curve of the run itself whose name `name` finds; `word` stands in each such name."""
    found = [s for s in curves(ws).series if not s.file.good and name.search(s.raw)]
    known = {(s.file.name, s.raw) for s in found}
    rows: dict[tuple[str, str], list[tuple[Row, float]]] = {}
    for row in json_rows(ws, word, ("metrics", "log")):
        for key, value in row.numbers.items():
            if name.search(key) and not known & {(row.file.name, key), (row.file.name, key.rpartition("/")[2])}:
                held = rows.setdefault((row.file.name, key), [])
                if len(held) < _MOST:
                    held.append((row, value))
    return found + [_series(key, held) for (_, key), held in rows.items()]


def _series(name: str, held: list[tuple[Row, float]]) -> Series:
    stepped = all(row.step is not None for row, _ in held)
    steps = [row.step or 0 for row, _ in held] if stepped else list(range(1, len(held) + 1))
    file = held[0][0].file
    return Series(
        name, name, file, np.array(steps, dtype=float), np.array([value for _, value in held]),
        np.array([row.line.number for row, _ in held]), np.array([row.line.offset for row, _ in held]),
        np.ones(len(held), dtype=bool), stepped, len(held), rank=file.rank, variant=file.variant, known=False,
    )  # fmt: skip


def paired(a: Series, b: Series) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of two curves of one file at their common steps, and where these stand in the first."""
    steps, i, j = np.intersect1d(a.steps, b.steps, return_indices=True)
    del steps
    good = np.isfinite(a.values[i]) & np.isfinite(b.values[j])
    return a.values[i][good], b.values[j][good], i[good]
