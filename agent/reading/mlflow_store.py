"""MLflow's local stores: the file store (`mlruns/<experiment>/<run>/metrics/<name>`) and the SQLite one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePath

from ..errors import ParseError
from .files import lines, open_regular
from .metric_names import Meaning, meaning, normal
from .series import Track

_POINT = re.compile(rb"^(\d{10,16}) (\S+) (-?\d+)(?: .*)?$")
_SQLITE = b"SQLite format 3\0"
_POINTS = 5_000_000  # of one database that are read
_ROWS = "SELECT run_uuid, key, value, is_nan, step, rowid FROM metrics ORDER BY run_uuid, key, step, timestamp LIMIT ?"


def is_point(line: bytes) -> bool:
    """Whether a line is `timestamp value step`, as the file store writes it."""
    return _POINT.match(line) is not None


def read_metric(path: Path, name: str) -> list[Track]:
    """The one track of a file of the file store; its name is the metric's, folders included.

    Args:
        name: the file's path in the run, of which what follows `metrics/` counts.
    """
    parts = PurePath(name).parts
    at = max((i for i, p in enumerate(parts) if p == "metrics"), default=-1)
    track = _track("/".join(parts[at + 1 :]), parts[at - 1] if at > 0 else None)
    factor = _factor(track.raw)
    for line in lines(path):
        if m := _POINT.match(line.data):
            try:
                track.add(float(m[3]), float(m[2]) * factor, line.number, line.offset)
            except ValueError:
                continue
    return [] if track.empty else [track]


def read_database(path: Path) -> list[Track]:
    """Tracks of the SQLite store, one for each run and metric; `line` is the row's number, `offset` the same.

    Raises:
        ParseError: not such a database, or a damaged one.
    """
    with open_regular(path) as stream:
        if (stream.read(16) or b"") != _SQLITE:
            raise ParseError("not a SQLite database")
    tracks: dict[tuple[str, str], Track] = {}
    count: dict[str, int] = defaultdict(int)
    for run, key, value, is_nan, step, row in _rows(path):
        count[run] += 1
        track = tracks.get((run, key))
        if track is None:
            if len(tracks) >= 4096:
                continue
            track = tracks[run, key] = _track(key, run)
        number = float("nan") if is_nan else float(value)
        track.add(float(step), number * _factor(key), int(row), int(row))
    if len(count) == 1:
        for track in tracks.values():
            track.variant = None
    return list(tracks.values())


def _rows(path: Path) -> Iterator[tuple[str, str, float, int, int, int]]:
    import sqlite3

    try:
        # immutable: no lock and no journal are made beside the user's file
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as base:
            base.execute("PRAGMA trusted_schema=OFF")
            base.execute("PRAGMA cell_size_check=ON")
            kind = base.execute("SELECT type FROM sqlite_master WHERE name='metrics'").fetchone()
            if kind is None or kind[0] != "table":
                return
            for row in base.execute(_ROWS, (_POINTS,)):
                if isinstance(row[0], str) and isinstance(row[1], str) and isinstance(row[4], int):
                    yield row
    except (sqlite3.Error, ValueError, OverflowError) as e:
        raise ParseError(f"not a readable MLflow database: {e}") from None


def _track(name: str, run: str | None) -> Track:
    found: Meaning | None = meaning(name, True)
    track = Track(found.metric if found else normal(name), name, variant=run)
    track.known = found is not None
    return track


def _factor(name: str) -> float:
    found = meaning(name, True)
    return found.factor if found else 1.0
