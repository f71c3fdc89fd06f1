"""Settings of a sweep table: each row of a small CSV is a variant, its columns that name settings are asked values."""

from __future__ import annotations

import csv

from .settings_leaf import Leaf, Sheet
from .settings_values import parse

ROWS, COLUMNS = 400, 200
_SERIES = {"step", "epoch", "iteration", "iter", "global_step", "time", "timestamp", "wall_time"}


def read_table(text: str) -> Sheet:
    """Leaves of a table whose rows are runs; of a time series (many rows, a step column) nothing."""
    sheet = Sheet()
    rows = text.split("\n", ROWS + 1)[: ROWS + 1]
    delimiter = "\t" if rows and rows[0].count("\t") > rows[0].count(",") else ","
    header = _cells(rows[0], delimiter) if rows else []
    if len(header) < 2 or len(header) > COLUMNS:
        return sheet
    if len(rows) > 60 or {h.strip().lower() for h in header} & _SERIES:
        return sheet
    for number, row in enumerate(rows[1:], 2):
        cells = _cells(row, delimiter)
        for name, cell in zip(header, cells, strict=False):
            if cell.strip():
                sheet.add(Leaf(name.strip()[:80], parse(cell), number, "table", group=f"row {number - 1}"))
    return sheet


def _cells(row: str, delimiter: str) -> list[str]:
    if len(row) > 20_000:
        return []
    try:
        return next(csv.reader([row.rstrip("\r")], delimiter=delimiter), [])
    except csv.Error:
        return []
