"""Parts of a long file that are worth keeping, cut at lines, with exact words about what lies between them.

A secret may be told by what stands around it, and a cut may go through a key. So a part is cleaned together with what
stands before and after it, and cut afterwards: cleaning keeps lines, which makes that exact.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ..errors import ParseError
from ..reading.files import BLOCK, RunFile, blocks, head, open_regular
from ..reading.inflate import packing_of, utf16
from .cleaning import Cleaning

MARGIN = 8 << 10  # bytes within which a cut finds a line's end, and that are cleaned with a part beyond it
NEAR = 256  # bytes between two stretches that are not worth leaving out
PACKED_LIMIT = 4 << 30  # unpacked bytes that are gone through for the end of a packed file
_NULS = re.compile(rb"\0+")
_CONTROLS = bytes((*range(1, 8), *range(14, 27), *range(28, 32)))  # ESC begins a colour
_FEW_NULS = 200  # bytes of text for each stretch of NUL bytes that a text may have

Span = tuple[int, int]


class NotText(Exception):
    """Secrets could not be taken out of it."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What is kept of a file. `kept` and `size` are bytes before cleaning; `nuls` were taken out."""

    text: str
    kept: int
    size: int
    nuls: int = 0

    @property
    def whole(self) -> bool:
        return self.kept >= self.size


class _Source(Protocol):
    size: int

    def get(self, start: int, end: int) -> bytes: ...


def excerpt(file: RunFile, cleaning: Cleaning, room: int, focus: Iterable[Span] = ()) -> Excerpt:
    """A file whole, or its start, the parts in focus and its end.

    Args:
        room: bytes for start and end together; parts in focus come on top of it.
        focus: stretches of bytes (unpacked) that must be in it.

    Raises:
        ParseError: it cannot be opened any more.
        NotText: it is no text.
    """
    spans = sorted((max(0, a), b) for a, b in focus if b > a)
    with open_regular(file.path) as stream:
        first = stream.read(4096) or b""
        if packing_of(first) or utf16(first):
            return _cut(_Packed(file, room, spans), cleaning, room, spans)
        return _cut(_Plain(stream.fileno()), cleaning, room, spans)


def span(file: RunFile, start: int, end: int) -> bytes:
    """The (unpacked) bytes of a stretch; none where the file is gone."""
    try:
        with open_regular(file.path) as stream:
            first = stream.read(4096) or b""
            if not packing_of(first) and not utf16(first):
                return os.pread(stream.fileno(), end - start, start)
        return head(file.path, end)[start:]
    except (ParseError, OSError):
        return b""


class _Plain:
    """An open file by position. Its size is the one it has now: what a growing log gets later is not of it."""

    def __init__(self, handle: int) -> None:
        self._handle, self.size = handle, os.fstat(handle).st_size

    def get(self, start: int, end: int) -> bytes:
        parts = []
        while start < end and (part := os.pread(self._handle, min(end - start, BLOCK), start)):
            parts.append(part)
            start += len(part)
        return b"".join(parts)


class _Packed:
    """The wanted stretches of a packed file and its end, kept while it is unpacked once."""

    def __init__(self, file: RunFile, room: int, spans: list[Span]) -> None:
        wide = 2 * MARGIN
        wanted = _merged([(0, room + 1 + wide), *((max(0, a - wide), b + wide) for a, b in spans)], 0)
        self._held: list[tuple[int, bytearray]] = [(a, bytearray()) for a, _ in wanted]
        tail, self.size = bytearray(), 0
        for block in blocks(file.path):
            for (a, b), (_, held) in zip(wanted, self._held, strict=True):
                if a < self.size + len(block) and b > self.size:
                    held += block[max(0, a - self.size) : b - self.size]
            tail += block
            self.size += len(block)
            del tail[: -(room + wide)]
            if self.size > PACKED_LIMIT:
                break
        self._held.append((self.size - len(tail), tail))

    def get(self, start: int, end: int) -> bytes:
        out = bytearray(max(0, min(end, self.size) - start))
        for at, held in self._held:
            low, high = max(start, at), min(end, at + len(held))
            if low < high:
                out[low - start : high - start] = held[low - at : high - at]
        return bytes(out)


def _cut(source: _Source, cleaning: Cleaning, room: int, focus: list[Span]) -> Excerpt:
    size = source.size
    half = room // 2
    ends = [(0, size)] if size <= room else [(0, half), (size - (room - half), size)]
    spans = _merged([*ends, *((a, min(b, size)) for a, b in focus if a < size)], NEAR)
    out, at, kept, nuls = [], 0, 0, 0
    for number, part in enumerate(spans, 1):
        until = spans[number][0] if number < len(spans) else size
        text, start, end, taken = _part(source, cleaning, part, (at, until))
        if end <= start:
            continue
        if start > at:
            out.append(f"[{start - at} bytes left out]\n")
        out.append(text)
        at, kept, nuls = end, kept + end - start, nuls + taken
    if at < size:
        out.append(("" if not out or out[-1].endswith("\n") else "\n") + f"[{size - at} bytes left out]\n")
    return Excerpt("".join(out), kept, size, nuls)


def _part(source: _Source, cleaning: Cleaning, part: Span, bounds: Span) -> tuple[str, int, int, int]:
    """Whole lines of a stretch, cleaned with what stands around them, where they begin and end, and NULs taken out.

    Args:
        bounds: up to where the stretch may grow to begin and end with a line.
    """
    start, end = part
    low, high = max(0, start - 2 * MARGIN), min(source.size, end + 2 * MARGIN)
    data = source.get(low, high)
    s, e = start - low, min(end - low, len(data))
    if start > 0:
        at = data.rfind(b"\n", max(0, s - MARGIN, bounds[0] - 1 - low), s)
        s = at + 1 if at >= 0 else (data.find(b"\n", s, e) + 1 or e)
    if low + e < source.size and s < e:
        at = data.find(b"\n", e - 1, min(e + MARGIN, bounds[1] - low))
        e = at + 1 if at >= 0 else (data.rfind(b"\n", s, e) + 1 or e)
    if s >= e:
        return "", low + e, low + e, 0
    before, within = data.count(b"\n", 0, s), data.count(b"\n", s, e)
    plain, nuls = _without_nuls(data)
    lines = cleaning.text(plain.decode(errors="replace")).split("\n")
    if data[e - 1] == 10:
        text = "\n".join(lines[before : before + within]) + "\n"
    elif e == len(data):
        text = "\n".join(lines[before : before + within + 1])
    else:  # one line longer than the stretch: its start, without what a cut might have kept from being judged
        text = lines[before][: max(0, min(e - s, len(lines[before]) - MARGIN))] + "\n"
    return text, low + s, low + e, nuls


def _without_nuls(data: bytes) -> tuple[bytes, int]:
    """Text without the holes that rotated and preallocated logs have.

    Raises:
        NotText: NULs or other control characters stand all over it.
    """
    if len(data.translate(None, _CONTROLS)) * 50 < len(data) * 49:
        raise NotText
    nuls = data.count(b"\0")
    if not nuls:
        return data, 0
    rest, holes = _NULS.subn(b"", data)
    if holes * _FEW_NULS > len(rest) + _FEW_NULS:
        raise NotText
    return rest, nuls


def _merged(spans: Iterable[Span], gap: int) -> list[Span]:
    """Sorted stretches, those joined that overlap or stand nearer than `gap`."""
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1] + gap:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out
