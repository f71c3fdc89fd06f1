"""Offline runs of Weights & Biases: `run-<id>.wandb`, read without the package.

The file is a LevelDB log: a header of 7 bytes (`:W&B`, 0xBEE1, version 0), blocks of 32 KiB, records of crc uint32,
length uint16, type (1 whole, 2 first, 3 middle, 4 last) and a protobuf `Record`. History is Record.history 2, its
items 1 with key 1, nested_key 2 and value_json 16; the step is history.step 2, num 1. A record that is cut at the
end of a file still being written ends the reading.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import ParseError
from .files import blocks
from .metric_formats.json_history import as_number
from .metric_names import meaning, normal
from .protobuf import fields, messages
from .series import Track

_BLOCK = 32 << 10
_MAGIC = b":W&B\xe1\xbe\x00"
_RECORD_LIMIT = 4 << 20
_MAX_NAMES = 2_000
_OWN = ("_step", "_runtime", "_timestamp", "_wandb")


def read_wandb(path: Path) -> list[Track]:
    """Tracks of an offline run. `line` counts records from 1, `offset` is the record's first byte.

    Raises:
        ParseError: not such a file.
    """
    tracks: dict[str, Track] = {}
    for number, (offset, record) in enumerate(_records(path), 1):
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


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
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
            elif len(held) <= _RECORD_LIMIT:
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
