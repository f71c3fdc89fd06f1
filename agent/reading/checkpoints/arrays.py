"""numpy's own files: one array (`.npy`) or a zip of them (`.npz`), whose entries may be deflated."""

from __future__ import annotations

import ast
import zlib
from dataclasses import replace
from math import prod
from typing import Any

from .dtypes import numpy_dtype, size_of
from .parts import Damaged, Member, Opaque, State, Tensor
from .placed import fortran_strides
from .source import Window

MAGIC = b"\x93NUMPY"
_HEADER_LIMIT = 10_000  # bytes; numpy refuses longer ones too
_INFLATED_LIMIT = 1 << 20  # bytes of a deflated array that are kept in memory


def read_npy(window: Window, state: State) -> None:
    """Fill `state` from a file with one array.

    Raises:
        Damaged: its header makes no sense, or its elements are cut.
    """
    state.format = "npy"
    state.tree = _array(window, state, "array")
    if isinstance(state.tree, Tensor):
        state.tensors["array"] = state.tree
        end = state.tree.start - window.start + state.tree.size
        if end < window.size:
            raise Damaged("hole", f"{window.size - end} bytes after the array belong to none")


def read_npz(window: Window, state: State, members: dict[str, Member]) -> None:
    """Fill `state` from an archive of arrays.

    Raises:
        Damaged: an array makes no sense.
    """
    state.format = "npz"
    state.members = members
    state.tree = {}
    for member in members.values():
        name = member.name.removesuffix(".npy")
        body = window.part(member.start - window.start, member.size)
        made = _deflated(body, state, name) if member.packed else _array(body, state, name)
        if isinstance(made, Tensor):
            made = replace(made, member=member.name)
            state.tensors[name] = made
        state.tree[name] = made


def is_npz(members: dict[str, Member]) -> bool:
    """Whether every entry is an array."""
    return bool(members) and all(name.endswith(".npy") for name in members)


def _header(head: bytes) -> tuple[dict[str, Any], int]:
    """(description, length of the header) of an array that begins with these bytes."""
    if head[:6] != MAGIC or len(head) < 12:
        raise Damaged("header_invalid", "does not begin as an array of numpy does")
    wide = head[6] > 1
    length = int.from_bytes(head[8 : 12 if wide else 10], "little")
    begin = 12 if wide else 10
    if length > _HEADER_LIMIT:
        raise Damaged("header_invalid", f"a header of {length} bytes")
    if begin + length > len(head):
        raise Damaged("truncated", "the file ends inside of the header")
    try:
        told = ast.literal_eval(head[begin : begin + length].decode("utf-8").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        raise Damaged("header_invalid", "the header is no description of an array") from None
    shape = told.get("shape") if isinstance(told, dict) else None
    if not isinstance(shape, tuple) or len(shape) > 64 or any(type(n) is not int or n < 0 for n in shape):
        raise Damaged("header_invalid", "the header gives no shape")
    return told, begin + length


def _array(window: Window, state: State, name: str) -> Tensor | Opaque:
    told, begin = _header(window.read(0, min(window.size, _HEADER_LIMIT + 12)))
    shape = told["shape"]
    found = numpy_dtype(told["descr"]) if isinstance(told.get("descr"), str) else None
    if found is None:
        return Opaque("numpy.ndarray", {"dtype": str(told.get("descr"))[:200], "shape": list(shape)})
    size = size_of(found[0], prod(shape))
    if begin + size > window.size:
        raise Damaged(
            "truncated", f"{name}: {told['descr']} {list(shape)} takes {size} bytes, {window.size - begin} left"
        )
    strides = fortran_strides(shape) if told.get("fortran_order") and len(shape) > 1 else None
    start = window.start + begin
    return Tensor(name, found[0], shape, state.file, start, size, strides=strides, swapped=found[1])


def _deflated(window: Window, state: State, name: str) -> Tensor | Opaque:
    """An array inside a deflated entry: with its elements where they are few, otherwise by its description alone."""
    unpack = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = unpack.decompress(window.read(0, min(window.size, _INFLATED_LIMIT)), _INFLATED_LIMIT + _HEADER_LIMIT)
    except zlib.error as e:
        raise Damaged("corrupt", f"{name} cannot be inflated: {e}", name) from None
    told, begin = _header(data[: _HEADER_LIMIT + 12])
    found = numpy_dtype(told["descr"]) if isinstance(told.get("descr"), str) else None
    shape = told["shape"]
    note = {"dtype": str(told.get("descr"))[:200], "shape": list(shape), "compressed": True}
    size = size_of(found[0], prod(shape)) if found else 0
    if found is None or size > _INFLATED_LIMIT or len(data) - begin < size:
        return Opaque("numpy.ndarray", note)
    strides = fortran_strides(shape) if told.get("fortran_order") and len(shape) > 1 else None
    inline = data[begin : begin + size]
    return Tensor(name, found[0], shape, state.file, 0, size, strides=strides, swapped=found[1], inline=inline)
