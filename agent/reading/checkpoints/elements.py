"""Element types: how wide they are, how each format spells them, and how their bits say "not a number"."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Kind:
    """An element type.

    Attributes:
        bits: width of an element; 4 and 6 are packed.
        plain: numpy's name for it, or for its bits where numpy has no such type.
        family: float, complex, int, bool or other.
        infinity: bits of +infinity without the sign; larger magnitudes are NaN. 0: the type has none.
        nans: bit patterns that are NaN where that rule does not hold.
    """

    bits: int
    plain: str
    family: str
    infinity: int = 0
    nans: tuple[int, ...] = ()


KINDS: dict[str, Kind] = {
    "float64": Kind(64, "f8", "float", 0x7FF0_0000_0000_0000),
    "float32": Kind(32, "f4", "float", 0x7F80_0000),
    "float16": Kind(16, "f2", "float", 0x7C00),
    "bfloat16": Kind(16, "u2", "float", 0x7F80),
    "float8_e5m2": Kind(8, "u1", "float", 0x7C),
    "float8_e4m3fn": Kind(8, "u1", "float", 0, (0x7F, 0xFF)),
    "float8_e4m3fnuz": Kind(8, "u1", "float", 0, (0x80,)),
    "float8_e5m2fnuz": Kind(8, "u1", "float", 0, (0x80,)),
    "float8_e8m0fnu": Kind(8, "u1", "float", 0, (0xFF,)),
    "complex64": Kind(64, "c8", "complex"),
    "complex128": Kind(128, "c16", "complex"),
    "complex32": Kind(32, "f2", "other"),
    **{f"int{n}": Kind(n, f"i{n // 8}", "int") for n in (8, 16, 32, 64)},
    **{f"uint{n}": Kind(n, f"u{n // 8}", "int") for n in (8, 16, 32, 64)},
    "bool": Kind(8, "u1", "bool"),
    "qint8": Kind(8, "i1", "int"),
    "quint8": Kind(8, "u1", "int"),
    "qint32": Kind(32, "i4", "int"),
    "quint4x2": Kind(8, "u1", "other"),
    "quint2x4": Kind(8, "u1", "other"),
    "float4_e2m1fn_x2": Kind(8, "u1", "other"),
    "float4": Kind(4, "u1", "other"),
    "float6_e2m3": Kind(6, "u1", "other"),
    "float6_e3m2": Kind(6, "u1", "other"),
    "bytes": Kind(8, "u1", "other"),
}

SAFETENSORS: dict[str, str] = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F4": "float4", "F6_E2M3": "float6_e2m3", "F6_E3M2": "float6_e3m2", "C64": "complex64",
}  # fmt: skip

STORAGES: dict[str, str] = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128", "QInt8Storage": "qint8", "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32", "QUInt4x2Storage": "quint4x2", "QUInt2x4Storage": "quint2x4",
    "UntypedStorage": "bytes",
}  # fmt: skip

_ALIASES = {
    "float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32", "short": "int16",
    "cfloat": "complex64", "cdouble": "complex128", "chalf": "complex32",
}  # fmt: skip
_NUMPY = {
    "f2": "float16", "f4": "float32", "f8": "float64", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64", "b1": "bool", "c8": "complex64",
    "c16": "complex128", "?": "bool",
}  # fmt: skip


def torch_dtype(name: str) -> str | None:
    """`float32` of `float32` or `float`; None where torch has no such type."""
    name = _ALIASES.get(name, name)
    return name if name in KINDS and name != "bytes" else None


def numpy_dtype(descr: str) -> tuple[str, bool] | None:
    """(`float32`, big-endian) of `<f4`, `>f4` or `f4`; None for a type that is not plain numbers."""
    name = _NUMPY.get(descr.lstrip("<>|="))
    return (name, descr[:1] == ">") if name else None


def size_of(dtype: str, count: int) -> int:
    """Bytes that `count` elements take; a last byte partly filled counts."""
    return (KINDS[dtype].bits * count + 7) // 8


# ----------
# Elements as numpy arrays of plain numbers: the types that numpy lacks are made from their bits.

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
