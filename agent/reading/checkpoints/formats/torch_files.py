"""The two containers of `torch.save`: zip (since 1.6), and a row of pickles before (since 0.1.10)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from ....core import deadline
from ..elements import KINDS, size_of
from ..parts import Damaged, Member, Problem, State, Window
from .pickled import Pickle
from .placed import Place, Placing
from .symbols import Storage, dangerous

# ----------
# The directory of a zip file, read strictly: what two readers could understand differently is a problem.


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


# ----------

MAGIC = 0x1950A86A20F9469CFC6C
_PICKLE_LIMIT = 1 << 30
_SMALL = 64 << 20


def read_torch_zip(window: Window, state: State, members: dict[str, Member] | None = None, path: str = "") -> None:
    """Fill `state` from a zip that `torch.save` wrote.

    Args:
        members: its entries, where they are known.
        path: name of what was saved; names of tensors begin with it.

    Raises:
        Damaged: its pickle cannot be followed.
    """
    state.format = "torch_zip"
    state.members = read_members(window, state) if members is None else members
    root = next((n.removesuffix("data.pkl") for n in state.members if n.rpartition("/")[2] == "data.pkl"), None)
    if root is None:
        raise Damaged("missing_member", "the zip has no data.pkl")
    main = state.members[f"{root}data.pkl"]
    body = window.part(main.start - window.start, main.size)
    if main.size <= _SMALL and zlib.crc32(body.read(0, body.size)) != main.crc:
        state.problems.append(Problem("crc_mismatch", f"{main.name} does not have its checksum", main.name))
        state.readable = False
    if main.size > _PICKLE_LIMIT:
        raise Damaged("too_large", f"{main.name} has {main.size} bytes")
    pickle = Pickle(body)
    try:
        value = pickle.read()
    finally:
        note_globals(pickle, state)
    order = state.members.get(f"{root}byteorder")
    swapped = order is not None and order.size == 3 and window.read(order.start - window.start, 3) == b"big"
    told: set[str] = set()

    def where(storage: Storage) -> Place | None:
        name = f"{root}data/{storage.key}"
        member = state.members.get(name)
        if member is None:
            text = f"the storage {storage.key} is named and is not in the zip"
        elif storage.offset == 0 and member.size != size_of(storage.dtype, storage.count):
            text = f"{name} has {member.size} bytes, its storage takes {size_of(storage.dtype, storage.count)}"
        else:
            return member.start, member.size, name
        if name not in told and len(told) < 16:
            kind = "missing_member" if member is None else "size_mismatch"
            state.problems.append(Problem(kind, text, name))
        told.add(name)
        return None if member is None else (member.start, member.size, name)

    state.tree = Placing(state, where, swapped).tree(value, path)


def is_torch_legacy(window: Window) -> bool:
    """Whether the file starts with the magic number of the format before 1.6."""
    head = window.read(0, min(window.size, 32))
    if head[:1] != b"\x80":
        return False
    body = head[11:] if head[2:3] == b"\x95" else head[2:]  # protocol 4 puts the pickle into a frame
    return body[:13] == b"\x8a\x0a" + MAGIC.to_bytes(10, "little") + b"."


def read_torch_legacy(window: Window, state: State) -> None:
    """Fill `state` from a row of pickles: magic, version, system, object, keys; then the storages one by one.

    Raises:
        Damaged: the pickles cannot be followed.
    """
    state.format = "torch_legacy"
    at, system, value = 0, None, None
    pickle = Pickle(window)
    for part in ("magic", "version", "system", "object"):
        pickle = Pickle(window, at)
        try:
            value = pickle.read()
        finally:
            note_globals(pickle, state)
        at = pickle.end
        if part == "version" and value != 1001:
            raise Damaged("header_invalid", f"the version of the format is {str(value)[:20]}, not 1001")
        system = value if part == "system" else system
    storages = pickle.storages
    listing = Pickle(window, at)
    keys = listing.read()
    if not isinstance(keys, list) or any(not isinstance(k, str) for k in keys):
        raise Damaged("pickle_invalid", "the list of storages is not a list of names")
    swapped = isinstance(system, dict) and system.get("little_endian") is False
    places = _storages(window, listing.end, keys, storages, state)
    told: set[str] = set()

    def where(storage: Storage) -> Place | None:
        if storage.key not in places and storage.key not in told and len(told) < 16:
            told.add(storage.key)
            text = f"the bytes of storage {storage.key} are not in the file"
            state.problems.append(Problem("missing_member", text, storage.key))
        return places.get(storage.key)

    state.tree = Placing(state, where, swapped).tree(value)


def _storages(window: Window, at: int, keys: list[str], storages: dict[str, Storage], state: State) -> dict[str, Place]:
    """Places of the storages that follow the pickles: 8 bytes of count, then the elements."""
    places: dict[str, Place] = {}
    for key in keys:
        if at + 8 > window.size:
            missing = len(keys) - len(places)
            text = f"the file ends at byte {window.size}: {missing} of {len(keys)} storages are missing"
            state.problems.append(Problem("truncated", text, key))
            return places
        count = int.from_bytes(window.read(at, 8), "little", signed=True)
        storage = storages.get(key)
        width = KINDS[storage.dtype].bits // 8 if storage else 1
        if storage is None or count != storage.count:
            claimed = storage.count if storage else "no"
            text = f"storage {key} has {count} elements where the pickle says {claimed}"
            raise Damaged("size_mismatch", text, key)
        at += 8
        if at + count * width > window.size:
            text = f"storage {key} should end at byte {at + count * width}, the file has {window.size}"
            state.problems.append(Problem("truncated", text, key))
            return places
        places[key] = (window.start + at, count * width, key)
        at += count * width
    if at < window.size:
        state.problems.append(Problem("hole", f"{window.size - at} bytes after the last storage belong to none"))
    return places


def note_globals(pickle: Pickle, state: State) -> None:
    """Put into `state` what a pickle names, whether it was read to its end or not."""
    state.globals = tuple(dict.fromkeys((*state.globals, *pickle.globals)))
    bad = [name for name in pickle.globals if dangerous(name)]
    if bad:
        text = f"names {', '.join(bad[:4])}: loading it would run that"
        state.problems.append(Problem("dangerous_globals", text[:300]))
    for key in pickle.twice:
        state.problems.append(Problem("duplicate_key", f"{key!r} is set twice", key))


# ----------
# Joining checksums of neighbouring pieces, so that pieces of one entry can be read in any order by any thread.
#
# A CRC is the remainder of a polynomial over two elements; appending n bytes multiplies it by x to the 8n. Bits are
# kept reflected as zip does: the highest bit is the power 0.

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
