"""The three containers of `torch.save`: zip (since 1.6), a row of pickles before, a tar in the beginning."""

from __future__ import annotations

import zlib

from .allowed import dangerous
from .archive import read_members
from .dtypes import KINDS, size_of
from .parts import Damaged, Member, Problem, State
from .pickled import Pickle
from .placed import Place, Placing
from .source import Window
from .symbols import Storage

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
