"""The safetensors format: 8 bytes of length, a JSON header, then the tensors back to back."""

from __future__ import annotations

import ast
import json
import zlib
from dataclasses import replace
from math import prod
from typing import Any

from ..elements import KINDS, SAFETENSORS, numpy_dtype, size_of
from ..parts import Damaged, Member, Opaque, Problem, State, Tensor, Window
from .placed import fortran_strides

HEADER_LIMIT = 100_000_000  # bytes, the format's own
_WEIGHT_LIMIT = 200 << 20  # bytes of Python objects that a header may turn into
_LARGEST = 1 << 62


def is_safetensors(head: bytes) -> bool:
    """Whether a file that starts so has a header in place."""
    return len(head) > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= HEADER_LIMIT


def read_safetensors(window: Window, state: State) -> None:
    """Fill `state` from the header.

    Raises:
        Damaged: no tensor can be placed.
    """
    if window.size < 8:
        raise Damaged("truncated", f"{window.size} bytes: the length of the header takes 8")
    length = int.from_bytes(window.read(0, 8), "little")
    if length > HEADER_LIMIT:
        raise Damaged("header_invalid", f"the header claims {length} bytes; the format allows {HEADER_LIMIT}")
    if 8 + length > window.size:
        raise Damaged("truncated", f"the header claims {length} bytes, the file has {window.size - 8} after its length")
    state.format = "safetensors"
    header = _parsed(window.read(8, length), state)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or any(not isinstance(v, str) for v in metadata.values()):
        state.problems.append(Problem("header_invalid", "__metadata__ must map text to text"))
    else:
        state.metadata = metadata
    begin = 8 + length
    for name, entry in header.items():
        if tensor := _tensor(name, entry, begin, state):
            state.tensors[name] = tensor
    state.tree = dict(state.tensors)
    _check_layout(begin, window.size, state)


def _parsed(raw: bytes, state: State) -> dict[str, Any]:
    if raw.lstrip()[:1] != b"{":  # the format wants it first; its own library passes over blanks
        raise Damaged("header_invalid", "the header does not start with {")
    if raw.count(b"{") * 500 + raw.count(b"[") * 100 + raw.count(b",") * 60 + 3 * len(raw) > _WEIGHT_LIMIT:
        raise Damaged("too_large", f"a header of {len(raw)} bytes with more entries than are read here")
    twice: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            seen: set[str] = set()
            twice.extend(k for k, _ in pairs if k in seen or seen.add(k))
        return made

    try:
        header = json.loads(raw.decode(), object_pairs_hook=unique, parse_constant=_refuse)
    except UnicodeDecodeError as e:
        raise Damaged("header_invalid", f"the header is not UTF-8 at byte {8 + e.start}") from None
    except (ValueError, RecursionError) as e:
        raise Damaged("header_invalid", f"the header is not JSON: {str(e)[:120]}") from None
    for name in twice[:8]:
        state.problems.append(Problem("duplicate_key", f"{name!r} stands twice in the header", name))
    return header


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _tensor(name: str, entry: Any, begin: int, state: State) -> Tensor | None:
    """The tensor of one header entry; None with a problem told where the entry makes no sense."""

    def wrong(kind: str, text: str) -> None:
        state.problems.append(Problem(kind, f"{name}: {text}"[:300], name))

    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
        return wrong("header_invalid", "needs dtype, shape and data_offsets")
    shape, offsets = entry["shape"], entry["data_offsets"]
    dtype = SAFETENSORS.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        return wrong("header_invalid", f"unknown dtype {str(entry['dtype'])[:40]!r}")
    if not isinstance(shape, list) or len(shape) > 64 or not all(map(_whole, shape)):
        return wrong("header_invalid", "the shape is not a list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_whole, offsets)) or offsets[0] > offsets[1]:
        return wrong("header_invalid", f"data_offsets {str(offsets)[:60]} are not a begin and an end")
    needed = prod(shape) * KINDS[dtype].bits
    if needed % 8 or needed // 8 != offsets[1] - offsets[0]:
        given = offsets[1] - offsets[0]
        return wrong("size_mismatch", f"{entry['dtype']} {shape} takes {needed / 8:.15g} bytes, {given} given")
    return Tensor(name, dtype, tuple(shape), state.file, begin + offsets[0], offsets[1] - offsets[0])


def _check_layout(begin: int, end: int, state: State) -> None:
    """The tensors must follow each other without hole or overlap and fill the file."""
    place = begin
    for tensor in sorted(state.tensors.values(), key=lambda t: (t.start, t.size)):
        if tensor.start < place:
            state.problems.append(Problem("overlap", f"{tensor.name} lies on the tensor before it", tensor.name))
        elif tensor.start > place:
            text = f"{tensor.start - place} bytes before {tensor.name} belong to no tensor"
            state.problems.append(Problem("hole", text, tensor.name))
        if tensor.start + tensor.size > end:
            text = f"{tensor.name} ends at byte {tensor.start + tensor.size}, the file at {end}"
            state.problems.append(Problem("truncated", text, tensor.name))
        place = max(place, tensor.start + tensor.size)
    if place < end and not state.problems:
        state.problems.append(Problem("hole", f"{end - place} bytes after the last tensor belong to none"))
    del state.problems[64:]
    if state.problems:
        state.readable = False


# ----------
# numpy's own files: one array (`.npy`) or a zip of them (`.npz`), whose entries may be deflated.

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
