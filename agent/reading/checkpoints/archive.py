"""The directory of a zip file, read strictly: what two readers could understand differently is a problem."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise

from ... import deadline
from .parts import Damaged, Member, Problem, State
from .source import Window

_TAIL = 22 + 65535  # the end record and the longest comment
_DIRECTORY_LIMIT = 64 << 20
_STORED, _DEFLATED = 0, 8


def has_directory(window: Window) -> bool:
    """Whether a zip's end record stands near the end."""
    tail = window.read(window.size - min(window.size, _TAIL), min(window.size, _TAIL))
    return b"PK\x05\x06" in tail


def read_members(window: Window, state: State, *, packed: bool = False) -> dict[str, Member]:
    """Entries by name with the places of their bytes in the file; problems go to `state`.

    Args:
        packed: deflated entries are allowed, as in numpy archives.

    Raises:
        Damaged: no directory can be read.
    """
    start, size, count = _directory(window)
    if size > _DIRECTORY_LIMIT:
        raise Damaged("too_large", f"a zip directory of {size} bytes")
    members: dict[str, Member] = {}
    spans: list[tuple[int, int, str]] = []
    number = 0
    for number, (entry, flags, method) in enumerate(_entries(window.read(start, size)), 1):
        if number % 1024 == 0:
            deadline.check()
        placed = _placed(window, entry, flags, method, start, packed, state)
        if placed is None:
            continue
        member, begin = placed
        if member.name in members:
            state.problems.append(Problem("duplicate_member", f"two entries are named {member.name}", member.name))
        members[member.name] = member
        spans.append((begin, member.start - window.start + member.size, member.name))
    if number != count:
        state.problems.append(Problem("corrupt", f"the zip announces {count} entries and lists {number}"))
    _check_overlaps(spans, state)
    if state.problems:
        state.readable = False
    return members


def _directory(window: Window) -> tuple[int, int, int]:
    """(start, size, number of entries) of the central directory."""
    length = min(window.size, _TAIL)
    tail = window.read(window.size - length, length)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + 22 > length:
        raise Damaged("truncated", "no zip directory at the end: the file was cut, or writing it never ended")
    disk, first, here, count, size, start, comment = struct.unpack_from("<HHHHIIH", tail, at + 4)
    end = window.size - length + at
    if at + 22 + comment != length:
        raise Damaged("corrupt", f"{length - at - 22 - comment} bytes after the zip's end record")
    if at >= 20 and tail[at - 20 : at - 16] == b"PK\x06\x07":
        where = struct.unpack_from("<Q", tail, at - 12)[0]
        if where + 56 > end:
            raise Damaged("corrupt", "the zip64 end record is not where its locator says")
        record = window.read(where, 56)
        if record[:4] != b"PK\x06\x06":
            raise Damaged("corrupt", "the zip64 end record is not where its locator says")
        disk, first, here, count, size, start = struct.unpack_from("<IIQQQQ", record, 16)
        end = where
    if disk or first or here != count:
        raise Damaged("corrupt", "a zip in several volumes")
    if start + size != end:
        raise Damaged("corrupt", f"the zip directory should end at {start + size}, its end record is at {end}")
    return start, size, count


def _entries(raw: bytes) -> Iterator[tuple[Member, int, int]]:
    """(entry, flags, method) of each record of the directory; `start` is still that of the local header."""
    at = 0
    while at < len(raw):
        if raw[at : at + 4] != b"PK\x01\x02" or at + 46 > len(raw):
            raise Damaged("corrupt", f"the zip directory is broken at its byte {at}")
        flags, method = struct.unpack_from("<HH", raw, at + 8)
        crc, packed, size, name_length, extra_length, comment_length = struct.unpack_from("<IIIHHH", raw, at + 16)
        start = struct.unpack_from("<I", raw, at + 42)[0]
        after = at + 46 + name_length
        if after + extra_length + comment_length > len(raw):
            raise Damaged("corrupt", f"the zip directory is broken at its byte {at}")
        name = raw[at + 46 : after].decode("utf-8", "backslashreplace")
        if 0xFFFFFFFF in (packed, size, start):
            size, packed, start = _wide(raw[after : after + extra_length], size, packed, start)
        if method == _STORED and packed != size:
            raise Damaged("corrupt", f"{name} is stored, but its two lengths differ ({packed} and {size})", name)
        yield Member(name, start, packed, crc, method == _DEFLATED), flags, method
        at = after + extra_length + comment_length


def _wide(extra: bytes, size: int, packed: int, start: int) -> tuple[int, int, int]:
    """Sizes and offset with the 64-bit values of the zip64 field where 32 bits are not enough."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        if tag == 1:
            field = extra[at + 4 : at + 4 + length]
            values = [v for (v,) in struct.iter_unpack("<Q", field[: len(field) // 8 * 8])]
            wide = [values.pop(0) if v == 0xFFFFFFFF and values else v for v in (size, packed, start)]
            return wide[0], wide[1], wide[2]
        at += 4 + length
    return size, packed, start


def _placed(
    window: Window, entry: Member, flags: int, method: int, limit: int, packed: bool, state: State
) -> tuple[Member, int] | None:
    """The entry with the place of its bytes, and where its local header begins; None where it cannot be read."""
    name, begin = entry.name, entry.start

    def wrong(kind: str, text: str) -> None:
        if len(state.problems) < 64:
            state.problems.append(Problem(kind, text, name))

    if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or name[1:2] == ":" or "\0" in name:
        wrong("unsafe_name", f"an entry is named {name!r}")
    if flags & 0x41:
        return wrong("encrypted_member", f"{name} is encrypted")
    if method not in (_STORED, _DEFLATED) or (method == _DEFLATED and not packed):
        return wrong("compressed_member", f"{name} is compressed (method {method})")
    if begin + 30 > limit:
        return wrong("out_of_bounds", f"{name} begins at byte {begin}, the directory at {limit}")
    head = window.read(begin, 30)
    local_flags, local_method = struct.unpack_from("<HH", head, 6)
    crc, local_packed, _, name_length, extra_length = struct.unpack_from("<IIIHH", head, 14)
    if head[:4] != b"PK\x03\x04":
        return wrong("header_mismatch", f"no entry begins at byte {begin}, where {name} should")
    start = begin + 30 + name_length + extra_length
    if start + entry.size > limit:
        return wrong("out_of_bounds", f"{name} ends at byte {start + entry.size}, the directory begins at {limit}")
    local_name = window.read(begin + 30, name_length).decode("utf-8", "backslashreplace")
    later = local_flags & 8  # sizes and checksum follow the data
    differ = [
        word
        for word, is_it in (
            ("name", local_name != name),
            ("method", local_method != method),
            ("flags", (local_flags ^ flags) & 0x49),
            ("checksum", crc != entry.crc and not (later and crc == 0)),
            ("length", local_packed not in (entry.size, 0xFFFFFFFF) and not (later and local_packed == 0)),
        )
        if is_it
    ]
    if differ:
        wrong("header_mismatch", f"{name}: its own header and the directory differ in {', '.join(differ)}")
    return Member(name, window.start + start, entry.size, entry.crc, entry.packed), begin


def _check_overlaps(spans: list[tuple[int, int, str]], state: State) -> None:
    spans.sort()
    for (_, end, first), (begin, _, second) in pairwise(spans):
        if begin < end and len(state.problems) < 64:
            state.problems.append(Problem("overlap", f"{second} lies on the bytes of {first}", second))
