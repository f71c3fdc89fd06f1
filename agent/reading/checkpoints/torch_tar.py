"""The first container of `torch.save` (before 0.1.10): a tar of storages, of tensors, and a pickle that names them."""

from __future__ import annotations

import struct
from typing import Any

from .dtypes import KINDS, STORAGES
from .parts import Damaged, State
from .pickled import Pickle
from .placed import Place, Placing
from .source import Window
from .symbols import Global, Storage, View
from .torch_files import note_globals

_BLOCK = 512
_ENTRIES = 64
_MOST = 1_000_000  # storages or tensors


def entries(window: Window) -> dict[str, Window]:
    """The files of a tar by name, up to the first header that is none; nothing where it is no tar."""
    found: dict[str, Window] = {}
    at = 0
    while at + _BLOCK <= window.size and len(found) < _ENTRIES:
        head = window.read(at, _BLOCK)
        size = _octal(head[124:136])
        checksum = sum(head[:148]) + 8 * 32 + sum(head[156:])
        if not head.strip(b"\0") or size is None or _octal(head[148:156]) != checksum:
            break
        name = head[:100].rstrip(b"\0").decode("latin1").removeprefix("./")
        at += _BLOCK
        found[name] = window.part(at, size)
        at += -(-size // _BLOCK) * _BLOCK
    return found


def _octal(field: bytes) -> int | None:
    text = field.strip(b" \0")
    return int(text, 8) if text and text.isdigit() and not set(text) & set(b"89") else None


def is_torch_tar(window: Window) -> bool:
    """Whether the first entry is one that `torch.save` wrote."""
    if window.size < _BLOCK:
        return False
    name = window.read(0, 100).rstrip(b"\0").removeprefix(b"./")
    return name in (b"sys_info", b"pickle", b"storages", b"tensors") and _octal(window.read(148, 8)) is not None


def read_torch_tar(window: Window, state: State) -> None:
    """Fill `state`.

    Raises:
        Damaged: an entry is missing or cut, or makes no sense.
    """
    state.format = "torch_tar"
    held = entries(window)
    for name in ("storages", "tensors", "pickle"):
        if name not in held:
            raise Damaged("truncated", f"the tar has no entry {name}, which torch.save writes")
    known: dict[Any, Storage] = {}
    places: dict[str, Place] = {}
    try:
        _storages(held["storages"], known, places)
        views = _tensors(held["tensors"], known)
    except (TypeError, ValueError, LookupError, struct.error):
        raise Damaged("corrupt", "the lists of storages and tensors make no sense") from None

    def resolve(identity: Any, _: dict[str, Storage]) -> Any:
        if isinstance(identity, tuple):
            return identity[0]
        if not isinstance(identity, int | str):
            raise TypeError("no number")
        number = int(identity)
        return views[number] if number in views else known[number]

    pickle = Pickle(held["pickle"], resolve=resolve)
    try:
        value = pickle.read()
    finally:
        note_globals(pickle, state)
    state.tree = Placing(state, lambda storage: places.get(storage.key)).tree(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError("no count")
    return value


def _next(window: Window, at: int) -> tuple[Any, int]:
    pickle = Pickle(window, at)
    return pickle.read(), pickle.end


def _storages(window: Window, known: dict[Any, Storage], places: dict[str, Place]) -> None:
    """Each storage: a pickle of (key, device, type), 8 bytes of count, the elements; then the views on them."""
    count, at = _next(window, 0)
    for number in range(_count(count)):
        (key, _, kind), at = _next(window, at)
        dtype = STORAGES[kind.name if type(kind) is Global else ""]
        size = int.from_bytes(window.read(at, 8), "little")
        part = window.part(at + 8, size * KINDS[dtype].bits // 8)
        known[key] = Storage(str(number), dtype, size)
        places[str(number)] = (part.start, part.size, f"storage {number}")
        at += 8 + part.size
    views, _ = _next(window, at)
    for target, root, offset, size in views:
        base = known[root]
        known[target] = Storage(base.key, base.dtype, _count(size), base.offset + _count(offset))


def _tensors(window: Window, known: dict[Any, Storage]) -> dict[Any, View]:
    """Each tensor: a pickle of (key, storage, type), its dimensions, sizes, strides and offset in elements."""
    views: dict[Any, View] = {}
    count, at = _next(window, 0)
    for _ in range(_count(count)):
        (key, storage, _kind), at = _next(window, at)
        dimensions = int.from_bytes(window.read(at, 4), "little")
        if dimensions > 64:
            raise ValueError("too many dimensions")
        numbers = struct.unpack(f"<{2 * dimensions + 1}q", window.read(at + 8, 16 * dimensions + 8))
        if min(numbers) < 0:
            raise ValueError("a negative size")
        at += 16 * dimensions + 16
        base = known[storage]
        views[key] = View(base, base.dtype, numbers[-1], numbers[:dimensions], numbers[dimensions:-1])
    return views
