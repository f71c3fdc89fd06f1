"""Joining checksums of neighbouring pieces, so that pieces of one entry can be read in any order by any thread.

A CRC is the remainder of a polynomial over two elements; appending n bytes multiplies it by x to the 8n. Bits are
kept reflected as zip does: the highest bit is the power 0.
"""

from __future__ import annotations

from functools import lru_cache

_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
_X_8 = 1 << 23  # x to the 8th


def joined(first: int, second: int, length: int) -> int:
    """Checksum of two pieces from the checksum of each.

    Args:
        length: bytes of the second piece.
    """
    return _times(first, _power(length)) ^ second


def _times(a: int, b: int) -> int:
    """Product of two remainders."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return product


@lru_cache(maxsize=4096)
def _power(length: int) -> int:
    """x to the 8 * length, by repeated squaring."""
    result, square = _ONE, _X_8
    while length:
        if length & 1:
            result = _times(result, square)
        square = _times(square, square)
        length >>= 1
    return result
