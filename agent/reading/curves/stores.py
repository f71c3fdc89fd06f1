"""TensorBoard event files, read without TensorFlow: records, the Event message, scalar values.

Record: length uint64 LE, masked crc uint32, data, masked crc uint32. Event: wall_time 1 (double), step 2 (varint),
summary 5; Summary.Value: tag 1, simple_value 2 (float), tensor 8 (dtype 1, tensor_content 4, float_val 5,
double_val 6).
A record cut at the end of a file that is still written ends the reading.
"""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePath
from typing import Any

from ...core.errors import ParseError
from ..run.files import blocks, lines, open_regular
from ..run.metric_names import Meaning, meaning, normal
from .formats.metric_tables import as_number
from .series import Track

# ----------
# The wire form of protobuf messages: fields by number, without a schema.


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """`(field number, wire type, value)` of a message: varints as int, everything else as bytes.

    Raises:
        IndexError: the message is cut.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, wire, value
        elif wire == 1:
            yield number, wire, data[at : at + 8]
            at += 8
        elif wire == 2:
            size, at = _varint(data, at)
            yield number, wire, data[at : at + size]
            at += size
        elif wire == 5:
            yield number, wire, data[at : at + 4]
            at += 4
        else:
            return


def messages(data: bytes, number: int) -> Iterator[bytes]:
    """The embedded messages (or strings) of one field."""
    for found, wire, value in fields(data):
        if found == number and wire == 2 and isinstance(value, bytes):
            yield value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80 or shift > 63:
            return value, at
        shift += 7


# ----------

_RECORD_LIMIT = 1 << 20  # images and graphs are larger and are passed over
_MAX_TAGS = 2_000


def read_events(path: Path) -> list[Track]:
    """Scalar tracks of an event file. `line` counts records from 1, `offset` is the record's first byte."""
    tracks: dict[str, Track] = {}
    for number, (offset, data) in enumerate(_records(path), 1):
        try:
            step, scalars = event_of(data)
        except (IndexError, struct.error):
            continue
        for tag, value in scalars:
            track = tracks.get(tag)
            if track is None:
                if len(tracks) >= _MAX_TAGS:
                    continue
                found = meaning(tag, True)
                track = tracks[tag] = Track(found.metric if found else normal(tag), tag)
                track.known = found is not None
            found = meaning(tag, True)
            track.add(float(step), value * (found.factor if found else 1.0), number, offset)
    return list(tracks.values())


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    stream = blocks(path)
    buffer, base, skip = b"", 0, 0
    for block in stream:
        if skip:
            taken = min(skip, len(block))
            skip, base, block = skip - taken, base + taken, block[taken:]
        buffer += block
        at = 0
        while len(buffer) - at >= 12:
            (length,) = struct.unpack_from("<Q", buffer, at)
            if length > 1 << 40:
                return
            whole = 12 + length + 4
            if length > _RECORD_LIMIT and len(buffer) - at < whole:
                skip = whole - (len(buffer) - at)
                at = len(buffer)
                break
            if len(buffer) - at < whole:
                break
            if length <= _RECORD_LIMIT:
                yield base + at, buffer[at + 12 : at + 12 + length]
            at += whole
        base, buffer = base + at, buffer[at:]


def event_of(data: bytes) -> tuple[int, list[tuple[str, float]]]:
    """The step of one record and its scalars by tag."""
    step, scalars = 0, []
    for number, wire, value in fields(data):
        if number == 2 and isinstance(value, int):
            step = value - (1 << 64) if value >> 63 else value
        elif number == 5 and isinstance(value, bytes) and wire == 2:
            for inner, kind, message in fields(value):
                if inner == 1 and kind == 2 and isinstance(message, bytes):
                    scalars += _scalar(message)
    return step, scalars


def _scalar(message: bytes) -> list[tuple[str, float]]:
    tag, found = "", None
    for number, wire, value in fields(message):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            tag = value.decode(errors="replace")
        elif number == 2 and wire == 5:
            (found,) = struct.unpack("<f", value)
        elif number == 8:
            found = _tensor(value)
    return [(tag, found)] if tag and found is not None else []


def _tensor(data: bytes) -> float | None:
    dtype, content = 0, b""
    for number, wire, value in fields(data):
        if number == 1 and isinstance(value, int):
            dtype = value
        elif isinstance(value, bytes):
            if number == 5:
                return struct.unpack("<f", value[:4])[0]
            if number == 6:
                return struct.unpack("<d", value[:8])[0]
            if number == 4:
                content = value
            elif number == 2 and wire == 2 and value:
                continue
    shapes = {1: ("<f", 4), 2: ("<d", 8)}
    if dtype in shapes and len(content) == shapes[dtype][1]:
        return struct.unpack(shapes[dtype][0], content)[0]
    return None


# ----------
# Offline runs of Weights & Biases: `run-<id>.wandb`, read without the package.
#
# The file is a LevelDB log: a header of 7 bytes (`:W&B`, 0xBEE1, version 0), blocks of 32 KiB, records of crc uint32,
# length uint16, type (1 whole, 2 first, 3 middle, 4 last) and a protobuf `Record`. History is Record.history 2, its
# items 1 with key 1, nested_key 2 and value_json 16; the step is history.step 2, num 1. A record that is cut at the
# end of a file still being written ends the reading.

_BLOCK = 32 << 10
_MAGIC = b":W&B\xe1\xbe\x00"
_WANDB_RECORD_LIMIT = 4 << 20
_MAX_NAMES = 2_000
_OWN = ("_step", "_runtime", "_timestamp", "_wandb")


def read_wandb(path: Path) -> list[Track]:
    """Tracks of an offline run. `line` counts records from 1, `offset` is the record's first byte.

    Raises:
        ParseError: not such a file.
    """
    tracks: dict[str, Track] = {}
    for number, (offset, record) in enumerate(_wandb_records(path), 1):
        try:
            for history in messages(record, 2):
                _add(tracks, history, number, offset)
        except (IndexError, struct.error, ValueError, RecursionError):
            continue
    return list(tracks.values())


def _add(tracks: dict[str, Track], history: bytes, number: int, offset: int) -> None:
    step, values = float("nan"), []
    for found, _, value in fields(history):
        if found == 2 and isinstance(value, bytes):
            step = next((float(v) for n, _, v in fields(value) if n == 1 and isinstance(v, int)), 0.0)
        elif found == 1 and isinstance(value, bytes):
            values += _item(value)
    for name, value in values:
        found = meaning(name, True)
        if name.startswith(_OWN) or (found is not None and found.metric in ("step", "epoch")):
            continue
        track = tracks.get(name)
        if track is None:
            if len(tracks) >= _MAX_NAMES:
                continue
            track = tracks[name] = Track(found.metric if found else normal(name), name)
            track.known = found is not None
        track.add(step, value * (found.factor if found else 1.0), number, offset)


def _item(item: bytes) -> list[tuple[str, float]]:
    """Numbers of one history item; nested mappings are flattened with `/`."""
    keys = [k.decode(errors="replace") for k in messages(item, 1)]
    keys += [k.decode(errors="replace") for k in messages(item, 2)]
    text = next(messages(item, 16), b"null")
    return list(_flat("/".join(keys), json.loads(text), 0))


def _flat(name: str, value: Any, depth: int) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict) and depth < 4:
        if "_type" not in value:
            for key, inner in value.items():
                yield from _flat(f"{name}/{key}", inner, depth + 1)
    elif (number := as_number(value)) is not None:
        yield name, number


def _wandb_records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Offset and payload of every record that is whole."""
    start, held, at = 0, b"", 0
    for block, base in _pages(path):
        place = 7 if base == 0 else 0
        while place + 7 <= len(block):
            _, length, kind = struct.unpack_from("<IHB", block, place)
            piece = block[place + 7 : place + 7 + length]
            if kind not in (1, 2, 3, 4) or len(piece) < length:
                break  # padding at the end of a page, or the end of a file still written
            at = base + place
            place += 7 + length
            if kind in (1, 2):
                start, held = at, piece
            elif len(held) <= _WANDB_RECORD_LIMIT:
                held += piece
            if kind in (1, 4):
                yield start, held
                held = b""


def _pages(path: Path) -> Iterator[tuple[bytes, int]]:
    """Pages of 32 KiB with their offset."""
    rest, base, first = b"", 0, True
    for block in blocks(path):
        rest += block
        if first and len(rest) >= 7:
            first = False
            if not rest.startswith(_MAGIC):
                raise ParseError("not an offline run of W&B")
        while len(rest) >= _BLOCK:
            yield rest[:_BLOCK], base
            rest, base = rest[_BLOCK:], base + _BLOCK
    if rest and not first:
        yield rest, base


# ----------
# MLflow's local stores: the file store (`mlruns/<experiment>/<run>/metrics/<name>`) and the SQLite one.

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
