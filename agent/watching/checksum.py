"""The checksum of TensorBoard's records: CRC-32C, masked as TFRecord has it. For records of some hundred bytes."""

from __future__ import annotations

import struct

_POLYNOMIAL = 0x82F63B78
_MASK = 0xA282EAD8


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(_entry(byte) for byte in range(256))


def masked(data: bytes) -> bytes:
    """The four bytes that stand behind `data` in a record."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF)
