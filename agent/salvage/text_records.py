"""Records of a text file as the bytes they are: lines, rows of a table that span lines, elements of a JSON array."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError

MARK = b"\xef\xbb\xbf"
ARRAY = 512 << 20  # bytes of a JSON array that is held in memory
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|"|[{}\[\]]', re.DOTALL)
_BETWEEN = re.compile(rb"\s*,\s*")


@dataclass(slots=True)
class Piece:
    """A stretch of the file. `number` counts records from 0; None where it is none (a header, a blank line)."""

    data: bytes
    number: int | None
    line: int
    torn: bool = False


def lines(blocks: Iterator[bytes | None]) -> Iterator[Piece]:
    """Lines with their ends; blank ones are no records.

    Args:
        blocks: as `packing.unpacked` gives them.
    """
    number = 0
    for line, (data, torn) in enumerate(_raw_lines(blocks), start=1):
        content = data.strip(b" \t\r\n\xef\xbb\xbf" if line == 1 else b" \t\r\n")
        yield Piece(data, number if content else None, line, torn)
        number += bool(content)


def rows(blocks: Iterator[bytes | None], separator: str) -> Iterator[Piece]:
    """Rows of a table with a header, each with all of its lines.

    Raises:
        UsageError: its rows cannot be told apart.
    """
    feed = _Feed(blocks)
    number, header = 0, False
    csv.field_size_limit(sys.maxsize)
    try:
        for cells in csv.reader(feed, delimiter=separator):
            data, line, torn = feed.take()
            if not cells or not header:
                header = header or bool(cells)
                yield Piece(data, None, line, torn)
                continue
            yield Piece(data, number, line, torn)
            number += 1
    except csv.Error as e:
        raise UsageError(f"line {feed.line}: its rows cannot be told apart: {e}") from None
    finally:
        csv.field_size_limit(131072)


class _Feed:
    """Text lines for a CSV reader; their bytes are kept until the row is complete."""

    def __init__(self, blocks: Iterator[bytes | None]) -> None:
        self._lines = _raw_lines(blocks)
        self._held: list[bytes] = []
        self._torn = False
        self.line = 0  # of the row under way
        self._count = 0

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        data, self._torn = next(self._lines)
        self._count += 1
        if not self._held:
            self.line = self._count
        self._held.append(data)
        text = data.decode(errors="replace").replace("\0", "\ufffd")
        return text.removeprefix("\ufeff") if self._count == 1 else text

    def take(self) -> tuple[bytes, int, bool]:
        """Bytes of the row, its first line, whether the file ends within it."""
        data, self._held = b"".join(self._held), []
        return data, self.line, self._torn


def elements(path: Path, data: bytes) -> tuple[bytes, list[Piece], bytes]:
    """The objects of the first array of objects: what stands before them, each with what parts it from the one
    before, what stands after.

    Raises:
        UsageError: there is no such array, or something else stands between its objects.
    """
    spans = _spans(data)
    if not spans:
        raise UsageError(f"{path}: no array of records", "nothing was written")
    found: list[Piece] = []
    end = line_at = 0
    line = 1
    for number, (start, stop) in enumerate(spans):
        if number and not _BETWEEN.fullmatch(data[end:start]):
            raise UsageError(f"{path}: something else than objects stands in the array", "nothing was written")
        line += data.count(b"\n", line_at, start)
        found.append(Piece(data[end if number else start : stop], number, line))
        end, line_at = stop, start
    return data[: spans[0][0]], found, data[end:]


def _spans(data: bytes) -> list[tuple[int, int]]:
    """Start and end of each object that stands directly in the first array of objects."""
    stack: list[bytes] = []
    spans: list[tuple[int, int]] = []
    level = start = 0
    for m in _TOKEN.finditer(data):
        token = m[0]
        if token in (b"{", b"["):
            if token == b"{" and stack[-1:] == [b"["] and not level:
                level = len(stack)
            if token == b"{" and level == len(stack):
                start = m.start()
            stack.append(token)
        elif token in (b"}", b"]"):
            if not stack:
                return []
            stack.pop()
            if level and len(stack) == level and token == b"}":
                spans.append((start, m.end()))
            elif level and len(stack) < level:
                return spans
    return []


def _raw_lines(blocks: Iterator[bytes | None]) -> Iterator[tuple[bytes, bool]]:
    """Lines with their ends; the second is set for what stands at the end of a file that was cut off."""
    parts: list[bytes] = []
    for block in blocks:
        if block is None:
            yield b"".join(parts), True
            return
        first, newline, rest = block.partition(b"\n")
        parts.append(first + newline)
        if not newline:
            continue
        yield b"".join(parts), False
        whole = rest.rfind(b"\n") + 1
        for line in io.BytesIO(rest[:whole]):
            yield line, False
        parts = [rest[whole:]]
    if any(parts):
        yield b"".join(parts), False
