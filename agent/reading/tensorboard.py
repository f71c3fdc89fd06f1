"""TensorBoard event files, read without TensorFlow: records, the Event message, scalar values.

Record: length uint64 LE, masked crc uint32, data, masked crc uint32. Event: wall_time 1 (double), step 2 (varint),
summary 5; Summary.Value: tag 1, simple_value 2 (float), tensor 8 (dtype 1, tensor_content 4, float_val 5,
double_val 6).
A record cut at the end of a file that is still written ends the reading.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from .files import blocks
from .metric_names import meaning, normal
from .protobuf import fields
from .series import Track

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
