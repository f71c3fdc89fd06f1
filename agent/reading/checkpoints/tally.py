"""Statistics of a block of elements, from their bits where that is faster: IEEE numbers sort like their bits do."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bits import Array, decoded, native, small_values
from .dtypes import KINDS, Kind
from .parts import Numbers

_DOT = 8192  # elements a product is summed over at once: fewer than a BLAS would spread over threads
_SAFE = (1e-14, 1e15)  # magnitudes between which float32 squares neither overflow nor vanish


class Tally:
    """What has been seen of one tensor's elements, block by block in any order."""

    __slots__ = ("_deep", "_dtype", "_kind", "_seen", "_swapped", "numbers")

    def __init__(self, dtype: str, swapped: bool = False, deep: bool = True) -> None:
        self._dtype, self._kind, self._swapped, self._deep = dtype, KINDS[dtype], swapped, deep
        self._seen = False
        self.numbers = Numbers(read=self._kind.family != "other")

    def add(self, raw: Array) -> Tally:
        """Count a block: uint8, a whole number of elements."""
        if not self.numbers.read or not len(raw):
            return self
        raw = native(raw, self._kind, self._swapped)
        if self._kind.family == "float" and self._kind.infinity:
            self._by_bits(raw)
        else:
            values = decoded(raw, self._dtype)
            if values is not None:
                self._by_value(values)
        return self

    def merge(self, other: Tally) -> None:
        """Add what another tally of the same tensor has seen."""
        mine, its = self.numbers, other.numbers
        if other._seen:
            self._range(its.least, its.most)
        mine.count += its.count
        mine.nan += its.nan
        mine.inf += its.inf
        mine.zeros += its.zeros
        mine.squares += its.squares
        mine.read = mine.read and its.read

    def done(self) -> Numbers:
        """The numbers, with what only the whole can tell."""
        n = self.numbers
        n.constant = self._seen and n.least == n.most and not n.nan and not n.inf and n.count > 1
        return n

    def _range(self, least: float, most: float) -> None:
        n = self.numbers
        n.least = min(n.least, least) if self._seen else least
        n.most = max(n.most, most) if self._seen else most
        self._seen = True

    def _by_bits(self, raw: Array) -> None:
        """Signed, the bits of positive numbers sort upwards and those of negative ones downwards from -0."""
        kind, n = self._kind, self.numbers
        signed = raw.view(f"i{kind.bits // 8}")
        low, high = int(signed.min()), int(signed.max())
        sign = 1 << (kind.bits - 1)
        bits = raw.view(f"u{kind.bits // 8}")
        top = int(bits.max()) if low < 0 else 0  # the most negative number
        if high >= kind.infinity or top - sign >= kind.infinity:
            self._with_nonfinite(raw, bits)
            return
        n.count += len(bits)
        n.zeros += len(bits) - int(np.count_nonzero(bits))
        if low == -sign:
            n.zeros += int(np.count_nonzero(bits == sign))
        least = _value(top if low < 0 else low, self._dtype, kind)
        most = _value(high if high >= 0 else low + 2 * sign, self._dtype, kind)
        self._range(least, most)
        if self._deep and (least or most):
            n.squares += _squares(decoded(raw, self._dtype), max(-least, most))

    def _with_nonfinite(self, raw: Array, bits: Array) -> None:
        kind = self._kind
        magnitudes = bits & type(bits[0])((1 << (kind.bits - 1)) - 1)
        self.numbers.count += len(bits)
        odd = magnitudes >= kind.infinity
        if not kind.nans:
            infinite = int(np.count_nonzero(magnitudes == kind.infinity))
            self.numbers.inf += infinite
            self.numbers.nan += int(np.count_nonzero(odd)) - infinite
        else:
            self.numbers.nan += int(np.count_nonzero(odd))
        if values := self._finite(decoded(raw, self._dtype), ~odd):
            self._plain(*values)

    def _finite(self, values: Any, mask: Array) -> tuple[Array] | None:
        kept = values[mask]
        return (kept,) if len(kept) else None

    def _by_value(self, values: Array) -> None:
        n = self.numbers
        if self._kind.family == "complex":
            pairs = values.reshape(-1, 2)
            nan = np.isnan(pairs).any(axis=1)
            inf = np.isinf(pairs).any(axis=1) & ~nan
            n.count += len(pairs)
            n.nan += int(nan.sum())
            n.inf += int(inf.sum())
            n.zeros += int((~pairs.any(axis=1)).sum())
            kept = pairs[~(nan | inf)].reshape(-1)
            if len(kept):
                self._plain(kept, zeros=False)
            return
        n.count += len(values)
        if self._kind.family == "float":
            nan = np.isnan(values)
            n.nan += int(nan.sum())
            values = values[~nan]
        if len(values):
            self._plain(values)

    def _plain(self, values: Array, zeros: bool = True) -> None:
        """Finite values, whatever their type."""
        least, most = float(values.min()), float(values.max())
        self._range(least, most)
        if zeros:
            self.numbers.zeros += len(values) - int(np.count_nonzero(values))
        if self._deep and (least or most):
            self.numbers.squares += _squares(values, max(-least, most))


def _value(bits: int, dtype: str, kind: Kind) -> float:
    """The number that a bit pattern is."""
    if kind.bits == 8:
        return float(small_values(dtype)[bits])
    if dtype == "bfloat16":
        return float(np.array([bits << 16], np.uint32).view(np.float32)[0])
    return float(np.array([bits], f"u{kind.bits // 8}").view(kind.plain)[0])


def _squares(values: Array | None, largest: float) -> float:
    """Sum of squares of finite values, the largest magnitude known."""
    if values is None:
        return 0.0
    if values.dtype != np.float32 or not _SAFE[0] < largest < _SAFE[1]:
        wide = values.astype(np.float64, copy=False)
        with np.errstate(over="ignore"):  # beyond float64 the sum is infinite
            return sum(float(np.dot(wide[i : i + _DOT], wide[i : i + _DOT])) for i in range(0, len(wide), _DOT))
    return sum(float(np.dot(values[i : i + _DOT], values[i : i + _DOT])) for i in range(0, len(values), _DOT))
