"""From what a pickle builds to a tree of plain values with tensors where they lie in the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....core import deadline
from ..elements import KINDS, size_of
from ..parts import Damaged, Opaque, Problem, State, Tensor
from .symbols import Array, Blob, Built, Global, NumpyType, Storage, View

Place = tuple[int, int, str]  # start in the file, bytes, name of the member
_NODES = 1_000_000  # containers and objects, shared ones each time; plain values weigh a sixteenth
_DEPTH = 150
_PLAIN = frozenset((str, int, float, bool, type(None), bytes, complex))
_MODULE = {"_modules", "_parameters", "_buffers"}
_SPREAD = ("_local_tensor",)
_PROBLEMS = 64


class Placing:
    """One walk over what a pickle built. Containers are changed in place; tensors are told to the state by name.

    Args:
        where: the bytes of a storage in the file; None where they are missing (a problem is told).
    """

    def __init__(self, state: State, where: Callable[[Storage], Place | None], swapped: bool = False) -> None:
        self._state, self._where, self._swapped = state, where, swapped
        self._left = _NODES
        self._open: set[int] = set()
        # Containers without tensors: themselves, what they became, and what a walk through them costs.
        self._done: dict[int, tuple[Any, Any, int]] = {}
        self._met_open = False  # there are cycles: what is seen depends on where one comes from
        self._mute = 0  # inside of what describes a distributed tensor: its tensors are no part of the model

    def tree(self, value: Any, path: str = "") -> Any:
        """The tree below `value`, which itself stands at `path`.

        Raises:
            Damaged: it is nested too deeply, or shares its parts so often that it cannot be walked.
        """
        made = self._any(value, path, 0)
        if self._state.problems:
            self._state.readable = False
        return made

    def _any(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is View:
            return self._view(value, path)
        if kind is Tensor:
            return self._told(replace(value, name=path))
        if kind is Storage:
            return self._view(View(value, value.dtype, 0, (value.count,), (1,)), path)
        if kind is Array:
            return self._array(value, path)
        if kind is Global:
            return Opaque(value.full)
        if kind is Blob:
            return Opaque("bytes", value.size)
        if kind is NumpyType:
            return Opaque("numpy.dtype", value.order + value.descr)
        if kind is Opaque:
            return value
        return self._nested(value, path, depth)

    def _nested(self, value: Any, path: str, depth: int) -> Any:
        if depth > _DEPTH:
            raise Damaged("too_large", f"nested deeper than {_DEPTH} levels at {path[:80]}")
        known = self._done.get(id(value))
        if known is not None:
            self._count(known[2] * 16)  # who reads the tree will walk through it again
            return known[1]
        if id(value) in self._open:
            self._met_open = True
            return Opaque("cycle")
        self._open.add(id(value))
        before, left = len(self._state.tensors), self._left
        made = self._parts(value, path, depth)
        self._open.discard(id(value))
        if len(self._state.tensors) == before and not self._met_open:
            self._done[id(value)] = value, made, left - self._left
        return made

    def _parts(self, value: Any, path: str, depth: int) -> Any:
        if type(value) is dict:
            return self._dict(value, path, depth)
        if type(value) is list:
            self._count(len(value))
            for i, item in enumerate(value):
                if type(item) not in _PLAIN:
                    value[i] = self._any(item, f"{path}.{i}" if path else str(i), depth + 1)
            return value
        if type(value) is tuple:
            self._count(len(value))
            if all(type(item) in _PLAIN for item in value):
                return value
            return tuple(self._any(v, f"{path}.{i}" if path else str(i), depth + 1) for i, v in enumerate(value))
        return self._object(value, path, depth)

    def _count(self, values: int) -> None:
        self._left -= values // 16 + 1
        if self._left < 0:
            raise Damaged("too_large", "more values than are held here, or the same ones again and again")
        if not self._left & 0xFFF:
            deadline.check()

    def _dict(self, value: dict[Any, Any], path: str, depth: int) -> dict[Any, Any]:
        self._count(len(value))
        inner = f"{path}." if path else ""
        silent = _MODULE if "_modules" in value and "_parameters" in value else _SPREAD if "_spec" in value else ()
        odd = False
        for key, item in value.items():
            if type(item) not in _PLAIN:
                below = path if key in silent else f"{inner}{_word(key)}"
                self._mute += key == "_spec"
                value[key] = self._any(item, below, depth + 1)
                self._mute -= key == "_spec"
            odd = odd or (type(key) not in _PLAIN and type(key) is not tuple)
        return {_word(k) if type(k) not in _PLAIN else k: v for k, v in value.items()} if odd else value

    def _object(self, value: Any, path: str, depth: int) -> Any:
        if type(value) is not Built:
            return Opaque(type(value).__name__)
        self._count(1)
        state = value.state
        if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
            state = state[1] if not state[0] else state  # what a class with slots leaves
        if value.entries:
            inner: Any = value.entries
        elif value.items:
            inner = value.items
        elif state is not None:
            inner = state
        else:
            inner = value.args[0] if len(value.args) == 1 else list(value.args) or None
        return Opaque(value.name, self._any(inner, path, depth + 1))

    # tensors

    def _wrong(self, kind: str, text: str, member: str = "") -> None:
        if len(self._state.problems) < _PROBLEMS:
            self._state.problems.append(Problem(kind, text, member))

    def _told(self, tensor: Tensor) -> Tensor:
        self._count(1)
        if not self._mute:
            self._state.tensors[tensor.name] = tensor
        return tensor

    def _view(self, view: View, path: str) -> Any:
        path = path or "tensor"
        if view.storage is None:
            return Opaque("torch.Tensor", {"dtype": view.dtype, "shape": list(view.shape), "device": "meta"})
        place = self._where(view.storage)
        if place is None:
            return Opaque("torch.Tensor", {"dtype": view.dtype, "shape": list(view.shape)})
        start, available, member = place
        width = KINDS[view.dtype].bits // 8
        first = (view.offset + view.storage.offset) * width
        reach = extent(view.shape, view.strides)
        if reach and first + reach * width > available:
            text = f"{path} reaches to byte {first + reach * width} of a storage of {available} bytes"
            self._wrong("out_of_bounds", text, member)
            return Opaque("torch.Tensor", {"dtype": view.dtype, "shape": list(view.shape)})
        plain = is_contiguous(view.shape, view.strides)
        return self._told(
            Tensor(
                path, view.dtype, view.shape, self._state.file, start + first, reach * width, member,
                None if plain else view.strides, self._swapped and width > 1,
            )
        )  # fmt: skip

    def _array(self, array: Array, path: str) -> Any:
        path = path or "array"
        note = {"dtype": array.dtype, "shape": list(array.shape)}
        if array.dtype not in KINDS or not isinstance(array.data, Blob | bytes):
            return Opaque("numpy.ndarray", note)
        inline = array.data if isinstance(array.data, bytes) else None
        size = len(inline) if inline is not None else array.data.size  # type: ignore[union-attr]
        count = 1
        for n in array.shape:
            count *= n
        if size != size_of(array.dtype, count):
            self._wrong("size_mismatch", f"{path}: {array.dtype} {list(array.shape)} does not take {size} bytes")
            return Opaque("numpy.ndarray", note)
        strides = fortran_strides(array.shape) if array.fortran and len(array.shape) > 1 else None
        start = array.data.start if isinstance(array.data, Blob) else 0
        return self._told(
            Tensor(
                path, array.dtype, array.shape, self._state.file, start, size, "pickle", strides, array.swapped, inline
            )
        )


def _word(key: Any) -> str:
    if type(key) is str:
        return key
    if type(key) is Built:
        return key.name
    return str(key)[:200]


def fortran_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements where the first dimension is the one that runs fastest."""
    strides, step = [], 1
    for n in shape:
        strides.append(step)
        step *= n
    return tuple(strides)


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last one of a view, both counted; 0 for an empty one."""
    reach = 1
    for n, step in zip(shape, strides, strict=True):
        if n == 0:
            return 0
        reach += (n - 1) * step
    return reach


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the elements follow each other in order."""
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != step:
            return 0 in shape
        step *= n
    return True
