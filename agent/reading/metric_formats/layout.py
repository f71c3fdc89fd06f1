"""Lines printed with fixed widths, read as columns: one example line tells where every digit stands.

Logs of the big frameworks pad their numbers, so millions of lines share a handful of layouts. Rows of the same
length are compared with the example in one numpy pass; what differs in anything but digits goes back to the
line reader.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..metric_names import Meaning
from .said import Reading
from .text import NUMBER

_DIGITS = b"0123456789"
_POWERS = np.array([float(f"1e{i}") for i in range(301)])


@dataclass(frozen=True)
class Field:
    """A number at fixed columns `start:end`: a weight for each column (0 for the point), its decimals and exponent."""

    start: int
    end: int
    weights: np.ndarray
    sign: float
    decimals: int
    exponent: tuple[int, int] | None
    exponent_sign: int

    def read(self, rows: np.ndarray) -> np.ndarray:
        """The values in rows of digits 0 to 9, rounded as the line reader would (up to 15 digits are exact)."""
        whole = (rows[:, self.start : self.end] @ self.weights) * self.sign
        if self.exponent is None:
            return whole / _POWERS[self.decimals]
        low, high = self.exponent
        power = (rows[:, low:high] @ (10.0 ** np.arange(high - low - 1, -1, -1))) * self.exponent_sign - self.decimals
        power = np.clip(power, -300, 300).astype(np.int64)
        return np.where(power < 0, whole / _POWERS[np.abs(power)], whole * _POWERS[np.abs(power)])


@dataclass(frozen=True)
class Layout:
    """Where an example line of `length` bytes has its numbers.

    A row fits when each byte lies between `lowest` and `lowest + span`: digits where the example has digits, the
    very same byte elsewhere.
    """

    length: int
    lowest: np.ndarray
    span: np.ndarray
    step: Field | None
    values: list[tuple[Meaning, str, Field]]
    rank: int | None

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, list[np.ndarray]]:
        """Mask of the rows of this layout; steps and values of those. `rows`: uint8 (n, length), used up."""
        rows -= self.lowest  # digits become their value, the rest 0; what is below wraps around
        same = np.asarray((rows <= self.span).all(axis=1))
        if not same.all():
            rows = rows[same]
        steps = self.step.read(rows) if self.step else None
        return same, steps, [f.read(rows) * m.factor for m, _, f in self.values]


def learn(line: bytes, reading: Reading) -> Layout | None:
    """The layout of a line that was read, or None when its numbers cannot be taken by column."""
    if not reading.values or b"\r" in line or b"\x1b" in line or not reading.learnable or reading.total is not None:
        return None
    if reading.step is not None and reading.epoch is not None:
        return None  # steps may count anew in each epoch, which only the line reader follows
    values = []
    for meant, raw, _, start, end in reading.values:
        field = _field(line, start, end)
        if field is None or meant.metric == "bar_step_time":
            return None
        values.append((meant, raw, field))
    step = _field(line, *reading.step_span) if reading.step_span else None
    if reading.step is not None and step is None:
        return None
    lowest = np.frombuffer(line, np.uint8).copy()
    span = np.zeros(len(line), dtype=np.uint8)
    for m in NUMBER.finditer(line, _prefix_length(line, reading)):
        for i in range(m.start(), m.end()):
            if line[i] in _DIGITS:
                lowest[i], span[i] = 48, 9
    return Layout(len(line), lowest, span, step, values, reading.rank)


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
    figures = [c in _DIGITS for c in mantissa]
    first = next((i for i, f in enumerate(figures) if f), None)
    if first is None or sum(figures) > 15:
        return None
    places = np.cumsum(figures[first:][::-1])[::-1] - 1
    weights = np.where(figures[first:], 10.0**places, 0.0)
    point = mantissa.find(b".")
    decimals = len(mantissa) - point - 1 if point >= 0 else 0
    tail, power_sign = None, 1
    if exponent:
        power_sign = -1 if exponent[:1] == b"-" else 1
        base = start + len(mantissa) + 1
        tail = (base + len(exponent) - len(exponent.lstrip(b"+-")), base + len(exponent))
    return Field(start + first, start + len(mantissa), weights, sign, decimals, tail, power_sign)
