"""The nouns of a saved state: tensors where they lie, a tree of plain values around them, problems found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..files import RunFile


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


@dataclass(frozen=True, slots=True)
class Opaque:
    """An object whose class is not read: `module.Class`, with its state where that is plain."""

    name: str
    state: Any = None


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a file. `kind` is one of the keys below `checkpoint.` that `verify_checkpoint` emits."""

    kind: str
    text: str
    member: str = ""


@dataclass(slots=True)
class State:
    """What one file holds.

    Attributes:
        format: safetensors, torch_zip, torch_legacy, torch_tar, pickle, npy, npz, unknown.
        tree: dicts, lists and scalars as they were saved, with `Tensor` and `Opaque` as leaves.
        tensors: every tensor by name.
        metadata: free text of the header (safetensors `__metadata__`).
        globals: pickle globals that are named, as `module.name`.
        problems: what is wrong with its structure.
        readable: the whole structure was understood; otherwise nothing may be called clean.
    """

    file: RunFile
    format: str
    tree: Any = None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    globals: tuple[str, ...] = ()
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
