"""Lines printed with fixed widths, read as columns: one example line tells where every digit stands.

Logs of the big frameworks pad their numbers, so millions of lines share a handful of layouts. Rows of the same
length are compared with the example in one numpy pass; what differs in anything but digits goes back to the
line reader.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..metric_names import Meaning
from .text import NUMBER, Reading

_PLAIN = frozenset(b"0123456789 ")
_POWERS = 10.0 ** np.arange(-40, 41)


@dataclass(frozen=True)
class Field:
    """A number at fixed columns: digit columns of the mantissa, its scale, and digit columns of an exponent."""

    digits: np.ndarray
    weights: np.ndarray
    sign: float
    exponent: np.ndarray | None
    exponent_sign: int


@dataclass(frozen=True)
class Layout:
    """Where an example line of `length` bytes has its numbers. `fixed` masks the bytes every row must share."""

    length: int
    example: np.ndarray
    fixed: np.ndarray
    step: Field | None
    values: list[tuple[Meaning, str, Field]]
    rank: int | None

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, list[np.ndarray]]:
        """Mask of the rows of this layout; steps and values of those. `rows`: uint8 (n, length)."""
        same = ((rows == self.example) | ~self.fixed).all(axis=1)
        for field in self._fields():
            columns = rows[:, field.digits] if field.exponent is None else rows[:, np.r_[field.digits, field.exponent]]
            same &= ((columns - 48) < 10).all(axis=1)
        if not same.all():
            rows = rows[same]
        steps = _numbers(rows, self.step) if self.step else None
        return same, steps, [_numbers(rows, f) * m.factor for m, _, f in self.values]

    def _fields(self) -> list[Field]:
        return [f for _, _, f in self.values] + ([self.step] if self.step else [])


def _numbers(rows: np.ndarray, field: Field) -> np.ndarray:
    value = (rows[:, field.digits] - 48).astype(np.float64) @ field.weights
    if field.exponent is not None:
        width = len(field.exponent)
        power = (rows[:, field.exponent] - 48).astype(np.int64) @ (10 ** np.arange(width - 1, -1, -1))
        # Dividing by a power of ten is correctly rounded where multiplying by its inverse is not.
        big = _POWERS[40 + np.minimum(power, 40)]
        value = value * big if field.exponent_sign > 0 else value / big
    return value * field.sign


def learn(line: bytes, reading: Reading) -> Layout | None:
    """The layout of a line that was read, or None when its numbers cannot be taken by column."""
    if not reading.values or b"\r" in line or b"\x1b" in line or reading.total is not None:
        return None
    values = []
    for meant, raw, _, start, end in reading.values:
        field = _field(line, start, end)
        if field is None or meant.metric == "bar_step_time":
            return None
        values.append((meant, raw, field))
    step = _field(line, *reading.step_span) if reading.step_span else None
    if reading.step is not None and step is None:
        return None
    fixed = np.ones(len(line), dtype=bool)
    body = _prefix_length(line, reading)
    for m in NUMBER.finditer(line, body):
        fixed[m.start() : m.end()] = [c not in b"0123456789" for c in line[m.start() : m.end()]]
    return Layout(len(line), np.frombuffer(line, np.uint8), fixed, step, values, reading.rank)


def _prefix_length(line: bytes, reading: Reading) -> int:
    """Bytes that must stay as they are: a rank in front tells whose line it is."""
    if reading.rank is None:
        return 0
    at = line.find(str(reading.rank).encode())
    return at + len(str(reading.rank)) if at >= 0 else 0


def _field(line: bytes, start: int, end: int) -> Field | None:
    token = line[start:end]
    if token[:1].isalpha() or token[1:2].isalpha():
        return None
    sign = -1.0 if token[:1] == b"-" else 1.0
    mantissa, _, exponent = token.lower().partition(b"e")
    digits = [start + i for i, c in enumerate(mantissa) if c in b"0123456789"]
    if not digits or len(digits) > 17:
        return None
    point = mantissa.find(b".")
    decimals = len(mantissa) - point - 1 if point >= 0 else 0
    weights = 10.0 ** np.arange(len(digits) - 1, -1, -1) / 10.0**decimals
    tail, power_sign = None, 1
    if exponent:
        power_sign = -1 if exponent[:1] == b"-" else 1
        base = start + len(mantissa) + 1
        tail = np.array([base + i for i, c in enumerate(exponent) if c in b"0123456789"])
    return Field(np.array(digits), weights, sign, tail, power_sign)
