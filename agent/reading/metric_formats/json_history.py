"""JSON that holds a history: `trainer_state.json`, lists of records. Every entry keeps its line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..files import blocks
from ..metric_names import meaning, normal
from ..series import Track

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
