"""Elements as numpy arrays of plain numbers: the types that numpy lacks are made from their bits."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .dtypes import KINDS, Kind

Array = np.ndarray[Any, np.dtype[Any]]

# (bits of exponent, bits of mantissa, bias) of the types of one byte.
_SMALL = {
    "float8_e4m3fn": (4, 3, 7), "float8_e5m2": (5, 2, 15), "float8_e4m3fnuz": (4, 3, 8), "float8_e5m2fnuz": (5, 2, 16),
}  # fmt: skip


@cache
def small_values(dtype: str) -> Array:
    """float32[256]: the value of each bit pattern of a type of one byte."""
    patterns = np.arange(256, dtype=np.uint8)
    if dtype == "float8_e8m0fnu":
        values = np.ldexp(np.float64(1), patterns.astype(np.int32) - 127)
    else:
        exponent_bits, mantissa_bits, bias = _SMALL[dtype]
        exponent = (patterns >> mantissa_bits & ((1 << exponent_bits) - 1)).astype(np.int32)
        mantissa = (patterns & ((1 << mantissa_bits) - 1)).astype(np.float64) / (1 << mantissa_bits)
        values = np.ldexp(np.where(exponent > 0, 1 + mantissa, mantissa), np.maximum(exponent, 1) - bias)
        values = np.where(patterns >> 7, -values, values)
    kind = KINDS[dtype]
    for pattern in kind.nans:
        values[pattern] = np.nan
    if not kind.nans:
        values[kind.infinity] = np.inf
        values[kind.infinity | 0x80] = -np.inf
        values[kind.infinity + 1 : 0x80] = np.nan
        values[(kind.infinity | 0x80) + 1 :] = np.nan
    return values.astype(np.float32)


def decoded(raw: Array, dtype: str, swapped: bool = False) -> Array | None:
    """Values of elements as float32, float64 or int64; complex ones as pairs of floats.

    Args:
        raw: uint8, a whole number of elements.

    Returns:
        None for a type whose values are not known (packed quantized ones).
    """
    kind = KINDS[dtype]
    if kind.family == "other":
        return None
    if kind.family == "complex":
        half = np.dtype(f"{'>' if swapped else '<'}f{kind.bits // 16}")
        return raw.view(half).astype(half.newbyteorder("="), copy=False)
    if dtype == "bfloat16":
        return (raw.view(">u2" if swapped else "<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind.family == "float" and kind.bits == 8:
        return small_values(dtype)[raw]
    plain = raw.view(np.dtype(kind.plain).newbyteorder(">" if swapped else "<"))
    if kind.family == "float":
        return plain.astype(np.float64 if kind.bits == 64 else np.float32, copy=False)
    return plain.astype(np.float64 if kind.plain == "u8" else np.int64, copy=False)


def native(raw: Array, kind: Kind, swapped: bool) -> Array:
    """The same bytes in this machine's order."""
    if not swapped or kind.bits <= 8:
        return raw
    width = kind.bits // 8 // (2 if kind.family == "complex" else 1)
    return raw.view(f"u{width}").byteswap().view(np.uint8)
