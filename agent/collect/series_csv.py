"""Curves as small tables: thinned, with extremes kept and the stretch around the event whole.

A table of a file that cannot go in itself (event files, databases, one long JSON) stands among the run's files, so that
the curves of a bundle are read again when it is replayed.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..reading.files import RunFile

if TYPE_CHECKING:
    import numpy as np

    from ..reading.series import Series
    from ..workspace import Workspace

POINTS = 1000  # buckets of a curve: each keeps its first, least, greatest and last point
AROUND = 200  # points on each side of an event
COLUMNS = 100
TABLES = 300


def by_file(ws: Workspace) -> dict[str, list[Series]]:
    """Curves as they are printed, by file; what the readers derive (paces) is left to them."""
    from ..reading.curves import curves

    found: dict[str, list[Series]] = {}
    for series in curves(ws).series:
        kept = found.setdefault(series.file.name, [])
        if len(kept) < COLUMNS and not any(k.raw == series.raw and k.variant == series.variant for k in kept):
            kept.append(series)
    return dict(sorted(found.items())[:TABLES])


def table(series: list[Series], events: list[int]) -> str:
    """CSV with a row for each step that is kept, and a column for each curve; an empty cell where a curve has none.

    Args:
        events: steps around which every point is kept.
    """
    rows: dict[tuple[str, int, float], dict[str, float]] = {}
    named = [s for s in series if s.variant]
    for one in series:
        for turn, step, value in _points(one, events):
            rows.setdefault((one.variant or "", turn, step), {})[one.raw] = value
    columns = list(dict.fromkeys(s.raw for s in series))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*(["run"] if named else []), "step", *columns])
    for variant, turn, step in sorted(rows):
        cells = [_cell(rows[variant, turn, step].get(c)) for c in columns]
        writer.writerow([*([variant] if named else []), _cell(step), *cells])
    return out.getvalue()


def stands_in(file: RunFile, kept_whole: bool) -> bool:
    """Whether a file's curves can only be replayed from a table of them."""
    from ..reading.curves import is_binary

    return is_binary(file) or (file.path.suffix.lower() == ".json" and not kept_whole)


def _points(series: Series, events: list[int]) -> Iterator[tuple[int, float, float]]:
    """Kept points as (how often the steps had gone back before it, step, value)."""
    import numpy as np

    turns = np.concatenate(([0], np.cumsum(np.diff(series.steps) < 0)))
    for i in np.flatnonzero(_kept(series, events)):
        yield int(turns[i]), float(series.steps[i]), float(series.values[i])


def _kept(series: Series, events: list[int]) -> np.ndarray:
    import numpy as np

    from ..reading.series import extremes

    count = len(series)
    starts = np.unique(np.linspace(0, count, min(POINTS, count), endpoint=False).astype(int))
    keep = extremes(series.values, starts)
    finite = np.isfinite(series.values)
    changes = np.flatnonzero(finite[1:] != finite[:-1])
    keep[changes] = keep[changes + 1] = True
    for event in events:
        near = int(np.argmin(np.abs(series.steps - event)))
        keep[max(0, near - AROUND) : near + AROUND + 1] = True
    return keep


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
