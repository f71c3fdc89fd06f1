"""Distributed checkpoints of PyTorch: `.metadata` says which slice of which file holds which chunk of a tensor.

`.metadata` is a pickle and is followed like any other, without torch. Each slice is a small file of its own, as
`torch.save` or safetensors writes it. `.metadata` is written last: a folder without it is an unfinished save.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from pathlib import PurePosixPath
from typing import Any

from ....core import deadline
from ...run.files import RunFile
from ...run.workspace import Workspace
from ..parts import Damaged, Problem, State, Window, opened
from .pickled import Pickle
from .safetensors_header import is_safetensors, read_safetensors
from .symbols import Built
from .torch_files import note_globals, read_torch_zip

# ----------
# Whether the chunks of a distributed tensor cover it: every element in one chunk, no element in two.


Chunk = tuple[tuple[int, ...], tuple[int, ...]]  # offsets and sizes by dimension
_PAIRS = 64  # chunks up to which every pair is compared


def flaw(shape: tuple[int, ...], chunks: list[Chunk]) -> tuple[str, str] | None:
    """What is wrong as (kind of problem, words); None where the chunks are the tensor."""
    for offsets, sizes in chunks:
        if len(offsets) != len(shape) or len(sizes) != len(shape):
            return "corrupt", f"a chunk at {list(offsets)} has other dimensions than {list(shape)}"
        if any(o + n > whole for o, n, whole in zip(offsets, sizes, shape, strict=True)):
            return "out_of_bounds", f"a chunk of {list(sizes)} at {list(offsets)} reaches out of {list(shape)}"
    chunks = [c for c in chunks if 0 not in c[1]]
    have, want = sum(prod(sizes) for _, sizes in chunks), prod(shape)
    if have < want:
        return "missing_chunk", f"the chunks hold {have} of {want} elements"
    if have > want or _collide(shape, chunks):
        return "overlap", f"chunks overlap: they hold {have} elements, the tensor has {want}"
    return None


def _collide(shape: tuple[int, ...], chunks: list[Chunk]) -> bool:
    cut = [d for d, n in enumerate(shape) if any(sizes[d] != n for _, sizes in chunks)]
    if len(cut) <= 1:
        spans = sorted((o[cut[0]], o[cut[0]] + n[cut[0]]) for o, n in chunks) if cut else []
        return any(end > begin for (_, end), (begin, _) in pairwise(spans)) or (not cut and len(chunks) > 1)
    if len(chunks) > _PAIRS:
        return len({offsets for offsets, _ in chunks}) < len(chunks)
    return any(_meet(a, b) for i, a in enumerate(chunks) for b in chunks[:i])


def _meet(a: Chunk, b: Chunk) -> bool:
    return all(p < q + m and q < p + n for p, n, q, m in zip(a[0], a[1], b[0], b[1], strict=True))


# ----------

_PROBLEMS = 256


@dataclass(slots=True)
class DistributedState(State):
    """A distributed checkpoint.

    Attributes:
        shapes: the whole shape of each tensor. `tensors` holds its pieces, `name[offsets]` where there are several.
        sources: names of the files that hold slices.
        chunks: sizes of each chunk by its offsets, by tensor.
    """

    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    chunks: dict[str, dict[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Slice:
    """Bytes of a file that hold one chunk (`offsets`) of a tensor, or one object (None)."""

    key: str
    offsets: tuple[int, ...] | None
    path: str
    start: int
    size: int
    packed: bool


def distributed_state(ws: Workspace, file: RunFile) -> DistributedState:
    """What a distributed checkpoint holds.

    Args:
        file: its `.metadata`, or any file of its folder.
    """
    return ws.memo(("distributed state", file), lambda: _state(ws, file))


def _state(ws: Workspace, file: RunFile) -> DistributedState:
    beside = {f.path.name: f for f in ws.files if f.path.parent == file.path.parent}
    index = beside.get(".metadata")
    state = DistributedState(index or file, "dcp", tree={})
    if index is None:
        text = f"{PurePosixPath(file.name).parent} has no .metadata, which is written last: the save never ended"
        state.problems.append(Problem("unfinished_save", text))
        state.readable = False
        return state
    try:
        slices = _index(index, state)
    except Damaged as e:
        state.problems.append(e.problem)
        state.readable = False
        return state
    by_path: dict[str, list[_Slice]] = defaultdict(list)
    for piece in slices:
        by_path[piece.path].append(piece)
    state.sources = tuple(sorted(by_path))
    for path in state.sources:
        _read_file(ws, beside, path, by_path[path], state)
    state.readable = state.readable and not state.problems
    return state


def _tell(state: State, kind: str, text: str, member: str = "") -> None:
    if len(state.problems) < _PROBLEMS:
        state.problems.append(Problem(kind, text, member))


# what .metadata says


def _index(file: RunFile, state: DistributedState) -> list[_Slice]:
    """Slices in the order of the index; shapes and missing chunks go to `state`."""
    with opened(file) as window:
        if not window.size:
            raise Damaged("empty", ".metadata has no bytes")
        pickle = Pickle(window)
        try:
            value = pickle.read()
        finally:
            note_globals(pickle, state)
    told = _fields(value)
    entries, places = told.get("state_dict_metadata"), told.get("storage_data")
    if not isinstance(entries, dict) or not isinstance(places, dict):
        raise Damaged("header_invalid", ".metadata does not say what is saved and where")
    slices = [_slice(key, info) for key, info in places.items()]
    found: dict[str, set[tuple[int, ...] | None]] = defaultdict(set)
    for piece in slices:
        found[piece.key].add(piece.offsets)
    for name, entry in entries.items():
        deadline.check()
        _expect(str(name), _fields(entry), found.get(str(name), set()), state)
    return slices


def _fields(value: Any) -> dict[str, Any]:
    """Attributes of an object as they were pickled."""
    if type(value) is Built and isinstance(value.state, dict):
        return value.state
    return {}


def _sizes(value: Any) -> tuple[int, ...] | None:
    return value if isinstance(value, tuple) and all(type(n) is int and n >= 0 for n in value) else None


def _slice(key: Any, info: Any) -> _Slice:
    where, place = _fields(key), _fields(info)
    name, path = where.get("fqn"), place.get("relative_path")
    start, size = place.get("offset"), place.get("length")
    if type(start) is not int or type(size) is not int or start < 0 or size < 0 or not isinstance(name, str):
        raise Damaged("header_invalid", ".metadata places something at no place")
    if not isinstance(path, str) or path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path:
        raise Damaged("unsafe_name", f".metadata names the file {str(path)[:80]!r}")
    return _Slice(name, _sizes(where.get("offset")), path, start, size, bool(place.get("transform_descriptors")))


def _expect(name: str, entry: dict[str, Any], found: set[tuple[int, ...] | None], state: DistributedState) -> None:
    """Compare the chunks that a tensor should have with the places that are known."""
    listed = entry.get("chunks")
    if not isinstance(listed, list):
        if not found:
            _tell(state, "missing_chunk", f"{name}: no file is named for it", name)
        return
    shape = _sizes(entry.get("size"))
    chunks: list[Chunk] = []
    for chunk in map(_fields, listed):
        offsets, sizes = _sizes(chunk.get("offsets")), _sizes(chunk.get("sizes"))
        if offsets is None or sizes is None or shape is None:
            raise Damaged("header_invalid", f"{name}: a chunk without offsets and sizes", name)
        chunks.append((offsets, sizes))
    if shape is None:
        raise Damaged("header_invalid", f"{name} has no shape", name)
    state.shapes[name] = shape
    state.chunks[name] = dict(chunks)
    if wrong := flaw(shape, chunks):
        _tell(state, wrong[0], f"{name}: {wrong[1]}", name)
    lost = [o for o, sizes in chunks if o not in found and 0 not in sizes]
    if lost:
        text = f"{name}: no file is named for {len(lost)} of {len(chunks)} chunks, such as the one at {list(lost[0])}"
        _tell(state, "missing_chunk", text, name)


# what the files hold


def _read_file(
    ws: Workspace, beside: dict[str, RunFile], path: str, pieces: list[_Slice], state: DistributedState
) -> None:
    file = beside.get(path) or next((f for f in ws.files if f.path == state.file.path.parent / path), None)
    names = sorted({p.key for p in pieces})
    some = f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
    if file is None:
        _tell(state, "missing_file", f"{path} does not exist; it holds {len(pieces)} slices ({some})", path)
        return
    pieces.sort(key=lambda p: (p.start, p.size))
    for before, after in pairwise(pieces):
        if before.start + before.size > after.start:
            _tell(state, "overlap", f"{path}: {after.key} lies on the bytes of {before.key}", after.key)
    try:
        with opened(file) as window:
            past = [p for p in pieces if p.start + p.size > window.size]
            if past:
                end = max(p.start + p.size for p in past)
                text = f"{path} has {window.size} bytes, its slices reach to {end}: {len(past)} are cut or missing"
                _tell(state, "truncated", text, path)
            for piece in pieces:
                deadline.check()
                if piece.start + piece.size <= window.size:
                    _read_slice(window.part(piece.start, piece.size), piece, file, state)
    except Damaged as e:
        _tell(state, e.problem.kind, f"{path}: {e}", path)


def _read_slice(window: Window, piece: _Slice, file: RunFile, state: DistributedState) -> None:
    chunks = state.chunks.get(piece.key)
    name = piece.key if not chunks or len(chunks) == 1 else f"{piece.key}{list(piece.offsets or ())}"
    inner = State(file, "torch_zip")
    try:
        if piece.packed:
            raise Damaged("compressed_member", "it is compressed, which is not read here")
        if is_safetensors(window.read(0, min(16, window.size))):
            read_safetensors(window, inner)
        elif window.read(0, min(4, window.size)) == b"PK\x03\x04":
            read_torch_zip(window, inner, path=name)
        else:
            _tell(state, "corrupt", f"{name}: its slice of {piece.path} does not begin as a saved object does", name)
            return
    except Damaged as e:
        inner.problems.append(e.problem)
    for problem in inner.problems:
        _tell(state, problem.kind, f"{piece.path}: {name}: {problem.text}", name)
    state.globals = tuple(dict.fromkeys((*state.globals, *inner.globals)))
    prefix = f"{piece.path}@{piece.start}/"
    for member in inner.members.values():
        state.members[prefix + member.name] = replace(member, name=prefix + member.name, file=file)
    for tensor in inner.tensors.values():
        state.tensors[tensor.name] = replace(tensor, member=prefix + tensor.member)
    if chunks is None:
        state.tree[piece.key] = inner.tree
    elif not inner.problems:
        _compare(name, chunks.get(piece.offsets or (), ()), inner, state)


def _compare(name: str, sizes: tuple[int, ...], inner: State, state: State) -> None:
    """A slice must hold one tensor of the size that the index gives."""
    shapes = [t.shape for t in inner.tensors.values()]
    if shapes != [sizes]:
        held = f"a tensor of {list(shapes[0])}" if len(shapes) == 1 else f"{len(shapes)} tensors"
        _tell(state, "size_mismatch", f"{name} should be {list(sizes)}, its slice holds {held}", name)
