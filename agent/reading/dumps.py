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
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
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
    """A printed tensor: its name, the line it starts on, its numbers."""

    name: str
    line: Line
    numbers: list[float]


def dumps(lines: list[Line]) -> Iterator[Dump]:
    """Printed tensors, in order. One that does not end within `SPAN` lines is given as far as it goes."""
    for number, line in enumerate(lines):
        text = line.text
        for m in _TENSOR.finditer(text):
            yield Dump(m[1], line, _numbers(lines, number, m.end() - 1))


def _numbers(lines: list[Line], number: int, start: int) -> list[float]:
    """Numbers up to the bracket that closes the one at `start`; none where the middle was left out in printing."""
    depth = 0
    found: list[float] = []
    for line in lines[number : number + SPAN]:
        text = line.text
        for end in range(start, len(text)):
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            if depth == 0:
                if "..." in text[start:end]:
                    return []
                return found + [float(n) for n in _NUMBER.findall(text[start:end])]
        if "..." in text[start:]:
            return []
        found += [float(n) for n in _NUMBER.findall(text[start:])]
        start = 0
    return found


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
