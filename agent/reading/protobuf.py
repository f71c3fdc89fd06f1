"""The wire form of protobuf messages: fields by number, without a schema."""

from __future__ import annotations

from collections.abc import Iterator


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """`(field number, wire type, value)` of a message: varints as int, everything else as bytes.

    Raises:
        IndexError: the message is cut.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, wire, value
        elif wire == 1:
            yield number, wire, data[at : at + 8]
            at += 8
        elif wire == 2:
            size, at = _varint(data, at)
            yield number, wire, data[at : at + size]
            at += size
        elif wire == 5:
            yield number, wire, data[at : at + 4]
            at += 4
        else:
            return


def messages(data: bytes, number: int) -> Iterator[bytes]:
    """The embedded messages (or strings) of one field."""
    for found, wire, value in fields(data):
        if found == number and wire == 2 and isinstance(value, bytes):
            yield value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80 or shift > 63:
            return value, at
        shift += 7
