"""The nouns of a saved state: tensors where they lie, a tree of plain values around them, problems found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ...core.errors import ParseError
from ..run.files import RunFile, open_regular

KINDS: dict[str, str] = {
    "unreadable": "the file could not be opened or read",
    "empty": "the file has no bytes, or holds nothing but zero bytes",
    "unknown_format": "the bytes belong to no format that is read here",
    "truncated": "the file ends before what its own structure announces",
    "header_invalid": "a header breaks the rules of its format",
    "corrupt": "the structure contradicts itself",
    "too_large": "a count or length is beyond what is read here",
    "duplicate_key": "the same key stands twice",
    "overlap": "two parts lie on the same bytes",
    "hole": "bytes that no part accounts for",
    "size_mismatch": "a length does not fit the shape and type",
    "out_of_bounds": "a tensor reaches past the end of its storage",
    "missing_member": "a storage that is named is not in the file",
    "duplicate_member": "two entries of an archive have the same name",
    "unsafe_name": "an entry's name would leave the folder it is unpacked to",
    "compressed_member": "an entry is compressed where it must be stored",
    "encrypted_member": "an entry is encrypted",
    "header_mismatch": "an entry's own header contradicts the directory",
    "crc_mismatch": "the bytes do not have the checksum that was written with them",
    "pickle_invalid": "the pickle is not a valid program",
    "dangerous_globals": "the pickle names functions that run commands or code",
    "unfinished_save": "what is written last is not there",
    "missing_file": "a file that is named does not exist",
    "missing_chunk": "the pieces do not cover the tensor",
}


class Damaged(ParseError):
    """A file breaks the rules of its format; carries the problem."""

    def __init__(self, kind: str, text: str, member: str = "") -> None:
        super().__init__(text)
        self.problem = Problem(kind, text, member)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor on disk, not read.

    Attributes:
        name: the path to it, keys joined by dots (`model.layers.0.weight`, `optimizer.state.3.exp_avg`).
        dtype: torch's spelling without `torch.` (`float32`, `bfloat16`, `float8_e4m3fn`, `int64`).
        shape: sizes of the dimensions; `()` is a scalar.
        file: the file that holds its bytes.
        start: offset of its first element in that file.
        size: bytes of its elements, where they lie together.
        member: entry of the archive or storage that holds it.
        strides: in elements, where they are not those of a contiguous tensor.
        swapped: the bytes are big-endian.
        inline: its bytes, where they do not lie in the file as they are (arrays inside an old pickle).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: RunFile
    start: int
    size: int
    member: str = ""
    strides: tuple[int, ...] | None = None
    swapped: bool = False
    inline: bytes | None = None

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Member:
    """An entry of an archive: where its bytes lie, and their checksum.

    Attributes:
        packed: they are deflated.
        file: where that is not the state's own file (slices of a distributed checkpoint).
    """

    name: str
    start: int
    size: int
    crc: int
    packed: bool = False
    file: RunFile | None = None


@dataclass(frozen=True, slots=True)
class Opaque:
    """An object whose class is not read: `module.Class`, with its state where that is plain."""

    name: str
    state: Any = None


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a file. `kind` is one of `KINDS`; `member` the part it is about."""

    kind: str
    text: str
    member: str = ""


@dataclass(slots=True)
class State:
    """What one file holds.

    Attributes:
        format: safetensors, torch_zip, torch_legacy, pickle, npy, npz, dcp, unknown.
        tree: dicts, lists and scalars as they were saved, with `Tensor` and `Opaque` as leaves.
        tensors: every tensor by name.
        metadata: free text of the header (safetensors `__metadata__`).
        globals: pickle globals that are named, as `module.name`; `allowed.verdict` says what to think of them.
        members: entries of an archive by name, whose checksums `examine` verifies.
        problems: what is wrong with its structure.
        readable: the whole structure was understood; otherwise nothing may be called clean.
    """

    file: RunFile
    format: str
    tree: Any = None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    globals: tuple[str, ...] = ()
    members: dict[str, Member] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    readable: bool = True


@dataclass(slots=True)
class Numbers:
    """What a pass over one tensor's elements found. Minimum, maximum and squares are over finite elements."""

    count: int = 0
    nan: int = 0
    inf: int = 0
    zeros: int = 0
    least: float = 0.0
    most: float = 0.0
    squares: float = 0.0
    constant: bool = False
    read: bool = True  # False: the bytes could not be read, or hold a type without known layout

    @property
    def norm(self) -> float:
        """Euclidean norm of the finite elements."""
        return self.squares**0.5


# ----------
# Bytes of an open file by position. Never mapped: a mapped file that shrinks kills the process that reads it.


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes `start` to `start + size` of an open file; positions within it count from 0."""

    fd: int
    start: int
    size: int

    def read(self, at: int, count: int) -> bytes:
        """Exactly `count` bytes.

        Raises:
            Damaged: they lie outside the window, or the file shrank or failed.
        """
        if at < 0 or count < 0 or at + count > self.size:
            raise Damaged("truncated", f"bytes {at} to {at + count} are past the end ({self.size} bytes)")
        parts: list[bytes] = []
        place = self.start + at
        while count > 0:
            try:
                part = os.pread(self.fd, min(count, 1 << 26), place)
            except OSError as e:
                raise Damaged("unreadable", f"reading failed: {e.strerror}") from None
            if not part:
                raise Damaged("truncated", f"the file ends at {place}: it became shorter while it was read")
            parts.append(part)
            place += len(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def part(self, at: int, size: int) -> Window:
        """A window inside this one."""
        if at < 0 or size < 0 or at + size > self.size:
            raise Damaged("truncated", f"bytes {at} to {at + size} are past the end ({self.size} bytes)")
        return Window(self.fd, self.start + at, size)


@contextmanager
def opened(file: RunFile) -> Iterator[Window]:
    """The whole file, closed afterwards.

    Raises:
        Damaged: it cannot be opened.
    """
    try:
        handle = open_regular(file.path)
    except ParseError as e:
        raise Damaged("unreadable", str(e)) from None
    with handle:
        yield Window(handle.fileno(), 0, os.fstat(handle.fileno()).st_size)
