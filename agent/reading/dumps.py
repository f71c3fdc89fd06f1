"""Printed tensors and statistics of data in text files: labels, token ids, lengths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .files import Line

SPAN = 400  # lines of one printed tensor

_TENSOR = re.compile(
    r"""['"]?\b(labels?|input_ids|target_ids|loss_mask|completion_mask)['"]?\]?\s*[:=]\s*(?:tensor|array)?\(?\s*\["""
)
_PART = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[\[\]]|\.\.\.")
_STATISTIC = re.compile(
    r"(?i)\b(characters?|chars|tokens?|words)\b[^:=\n]{0,60}[:=]\s*(?:about|approx\.?|~|around|up to)?\s*"
    r"(\d[\d,._]*)\s*(k)?\b"
)
_ROWS = re.compile(
    r"(?i)^\s*(?:number of |num[_ ]|total )?(rows|samples|examples|records|documents)\s*[:=]\s*([\d][\d,._]*)\s*$"
)
_PER_TOKEN = {"c": 0.25, "t": 1.0, "w": 1.3}


@dataclass(frozen=True, slots=True)
class Dump:
    """A printed tensor.

    Attributes:
        name: as it is printed.
        line: where it starts.
        numbers: all of them, in order.
        width: of its rows where they are printed in brackets of their own and are of one length; else 0.
    """

    name: str
    line: Line
    numbers: list[float]
    width: int = 0

    @property
    def rows(self) -> list[list[float]]:
        """The numbers by row."""
        wide = self.width or len(self.numbers) or 1
        return [self.numbers[n : n + wide] for n in range(0, len(self.numbers), wide)]


def dumps(lines: list[Line]) -> Iterator[Dump]:
    """Printed tensors, in order. One that does not end within `SPAN` lines is given as far as it goes."""
    for number, line in enumerate(lines):
        text = line.text
        for m in _TENSOR.finditer(text):
            rows = _rows_at(lines, number, m.end() - 1)
            wide = {len(r) for r in rows}
            yield Dump(m[1], line, [n for r in rows for n in r], wide.pop() if len(rows) > 1 and len(wide) == 1 else 0)


def _rows_at(lines: list[Line], number: int, start: int) -> list[list[float]]:
    """Numbers up to the bracket that closes the one at `start`, by the innermost brackets they stand in; none where
    the middle was left out in printing."""
    depth = 0
    rows: list[list[float]] = [[]]
    for line in lines[number : number + SPAN]:
        for m in _PART.finditer(line.text, start):
            part = m[0]
            if part == "...":
                return []
            if part == "[":
                depth += 1
                rows.append([])
            elif part == "]":
                depth -= 1
                if depth == 0:
                    return [r for r in rows if r]
                rows.append([])
            else:
                rows[-1].append(float(part))
        start = 0
    return [r for r in rows if r]


def lengths(lines: list[Line]) -> Iterator[tuple[Line, int]]:
    """Lines that state a length of samples, with the tokens it comes to."""
    for line in lines:
        if m := _STATISTIC.search(line.text[:400]):
            value = float(re.sub(r"[,_]", "", m[2]).rstrip(".") or 0) * (1000 if m[3] else 1)
            yield line, round(value * _PER_TOKEN[m[1][0].lower()])


def rows(lines: list[Line]) -> Iterator[tuple[Line, int]]:
    """Lines that state a number of samples."""
    for line in lines:
        if m := _ROWS.match(line.text[:200]):
            yield line, int(float(re.sub(r"[,_]", "", m[2]).rstrip(".") or 0))
