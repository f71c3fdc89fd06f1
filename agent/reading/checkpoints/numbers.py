"""Statistics and values of tensors, streamed: every byte is read once, memory does not grow with the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ...errors import ToolError
from ...workspace import Workspace
from .bits import Array, decoded
from .dtypes import KINDS
from .parts import Damaged, Numbers, Problem, State, Tensor
from .source import opened
from .strided import dense, runs
from .tally import Tally
from .units import Pass, units_of

_RUN = 1 << 20


@dataclass(slots=True)
class Examined:
    """What one pass over a file's bytes found. `problems`: entries with a wrong checksum, or that cannot be read."""

    numbers: dict[str, Numbers] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def numbers_of(ws: Workspace, tensors: Iterable[Tensor], *, deep: bool = True) -> dict[str, Numbers]:
    """Statistics by tensor name. Counts of NaN and infinities are exact; a tensor not read has `read=False`.

    Args:
        deep: sum the squares too.
    """
    return _pass(ws, list(tensors), [], deep).numbers


def examine(ws: Workspace, state: State, *, deep: bool = False) -> Examined:
    """Statistics of every tensor of a file and the checksums of its archive's entries, each byte read once."""
    return _pass(ws, list(state.tensors.values()), [state], deep)


def chunks(ws: Workspace, tensor: Tensor, elements: int = 1 << 20) -> Iterator[Array]:
    """Values in order: float32, float64 or int64 in arrays of about `elements`. Nothing for packed types.

    Raises:
        ToolError: the bytes cannot be read.
    """
    if KINDS[tensor.dtype].family == "other":
        return
    try:
        with opened(tensor.file) as window:
            for raw in runs(window, tensor, elements * KINDS[tensor.dtype].bits // 8):
                values = decoded(raw, tensor.dtype, tensor.swapped)
                if values is not None:
                    for at in range(0, len(values), elements):
                        yield values[at : at + elements]
    except Damaged as e:
        raise ToolError(f"{tensor.file.name}: {tensor.name} cannot be read: {e}") from None


def _pass(ws: Workspace, tensors: list[Tensor], states: list[State], deep: bool) -> Examined:
    plain = [t for t in tensors if dense(t)]
    units = units_of(plain, [(m.file or s.file, m) for s in states for m in s.members.values() if not m.packed])
    work = Pass(units, deep)
    work.run()
    found = Examined()
    for unit in units:
        name = unit.member.name if unit.member else unit.tensors[0].name
        if unit.missing:
            found.problems.append(Problem("unreadable", f"{name}: its bytes could not be read", name))
            for tensor in unit.tensors:
                work.tallies[id(tensor)].numbers.read = False
        elif unit.member is not None and unit.checksum() != unit.member.crc:
            text = f"{name}: its bytes do not have the checksum written with them"
            found.problems.append(Problem("crc_mismatch", text, name))
    for tensor in plain:
        found.numbers[tensor.name] = work.tallies[id(tensor)].done()
    for tensor in tensors:
        if tensor.name not in found.numbers:
            found.numbers[tensor.name] = _scattered(tensor, deep)
    return found


def _scattered(tensor: Tensor, deep: bool) -> Numbers:
    """A tensor that is not one run of bytes, read by itself."""
    tally = Tally(tensor.dtype, tensor.swapped, deep)
    if not tally.numbers.read:
        return tally.numbers
    try:
        with opened(tensor.file) as window:
            for raw in runs(window, tensor, _RUN):
                tally.add(np.ascontiguousarray(raw))
    except Damaged:
        tally.numbers.read = False
    return tally.done()
