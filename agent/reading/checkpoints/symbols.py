"""What a pickle's opcodes make when nothing is executed: names, calls that never happen, views on storages."""

from __future__ import annotations

from typing import Any


class Global:
    """A class or function by name."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}"


class Built:
    """An object that a call would make: what was called, with what, and what was put into it afterwards."""

    __slots__ = ("args", "entries", "items", "name", "state")

    def __init__(self, name: str, args: tuple[Any, ...] = ()) -> None:
        self.name, self.args = name, args
        self.state: Any = None
        self.items: list[Any] | None = None
        self.entries: dict[Any, Any] | None = None


class Storage:
    """A run of elements that lies outside the pickle. `count` is in elements of `dtype`."""

    __slots__ = ("count", "dtype", "key", "offset")

    def __init__(self, key: str, dtype: str, count: int, offset: int = 0) -> None:
        self.key, self.dtype, self.count, self.offset = key, dtype, count, offset


class View:
    """A tensor on a storage: offset and strides in elements of `dtype`. Storage None: no data (a meta tensor)."""

    __slots__ = ("dtype", "offset", "shape", "storage", "strides")

    def __init__(
        self, storage: Storage | None, dtype: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.storage, self.dtype, self.offset, self.shape, self.strides = storage, dtype, offset, shape, strides


class Blob:
    """Many bytes inside the pickle, left where they lie: `start` counts from the beginning of the file."""

    __slots__ = ("size", "start")

    def __init__(self, start: int, size: int) -> None:
        self.start, self.size = start, size


class Array:
    """A numpy array inside the pickle; `data` is None until its state has come."""

    __slots__ = ("data", "dtype", "fortran", "shape", "swapped")

    def __init__(self) -> None:
        self.dtype, self.fortran, self.swapped = "", False, False
        self.shape: tuple[int, ...] = ()
        self.data: Blob | bytes | list[Any] | None = None


class NumpyType:
    """numpy's dtype: `descr` such as `f8`, byte order `<`, `>`, `|` or `=`."""

    __slots__ = ("descr", "order")

    def __init__(self, descr: str) -> None:
        self.descr, self.order = descr, "="


_PLAIN_KEYS = (str, int, float, bytes, bool, type(None))


def as_key(key: Any, depth: int = 0) -> Any:
    """A key of a dict whose hash is cheap and cannot be made to collide or to nest without end.

    Raises:
        ValueError: it cannot be one.
    """
    if isinstance(key, int) and not -(1 << 63) <= key < 1 << 64:
        return f"{key:x}"
    if isinstance(key, _PLAIN_KEYS) or type(key) in (Built, View, Blob, Storage):
        return key
    if isinstance(key, tuple) and depth < 3 and len(key) <= 64:
        return tuple(as_key(k, depth + 1) for k in key)
    if type(key) is Global:
        return key.full
    raise ValueError("something that cannot be a key")
