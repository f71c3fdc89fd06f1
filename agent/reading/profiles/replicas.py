"""Replicas that ought to agree: losses and parameter sums of ranks over the steps, and checkpoints of each rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core import deadline
from ..curves.rank_series import RankTable
from ..run.files import RunFile

if TYPE_CHECKING:
    from ..checkpoints.parts import State
    from ..run.workspace import Workspace

FEWEST = 8  # steps needed to judge losses
EXACT = 1e-6  # relative difference of parameter sums that rounding explains
BYTES = 4 << 30  # of one checkpoint that are compared
# Words of files that hold a part of the state, not a replica of it.
_PARTS = re.compile(
    r"zero|mp_rank|tp_?rank|pp_?rank|shard|\.distcp|optim_states|rng|fsdp|expp_rank|expert|layer_\d|random_states"
    r"|scaler|-of-|dataloader|sampler|data_state",
    re.IGNORECASE,
)
_RANK = re.compile(r"(rank[-_.]?)\d+", re.IGNORECASE)
_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".npz")


@dataclass(slots=True)
class Losses:
    """How the losses of ranks relate.

    Attributes:
        spread: (largest - least) / middle of a step, middle over the steps.
        growth: spread of the last quarter over that of the first.
        together: share of the windows in which all ranks' losses move in one direction; 0.5 is chance for two ranks.
        identical: every rank prints the same number at every step.
        apart: a rank whose mean differs from the middle by more than its steps vary, with the relative difference.
    """

    spread: float
    growth: float
    together: float
    identical: bool
    apart: list[tuple[int, float]]
    steps: int


def losses(table: RankTable) -> Losses | None:
    """Judge a table of losses; None where there are too few steps."""
    values = table.values
    if len(values) < FEWEST:
        return None
    middle = np.maximum(np.abs(np.median(values, axis=1)), 1e-12)
    spread = (values.max(axis=1) - values.min(axis=1)) / middle
    quarter = max(2, len(values) // 4)
    first, last = float(np.median(spread[:quarter])), float(np.median(spread[-quarter:]))
    window = max(1, len(values) // 10)
    coarse = values[: len(values) // window * window].reshape(-1, window, values.shape[1]).mean(axis=1)
    moves = np.sign(np.diff(coarse, axis=0))
    moving = moves[(moves != 0).all(axis=1)]
    together = float((np.abs(moving.sum(axis=1)) == moving.shape[1]).mean()) if len(moving) else 1.0
    return Losses(
        float(np.median(spread)), last / first if first > 0 else 1.0, together, bool((spread == 0).all()),
        _apart(table, values[len(values) // 2 :]), len(values),
    )  # fmt: skip


def _apart(table: RankTable, late: np.ndarray) -> list[tuple[int, float]]:
    """Ranks whose loss in the second half stays off the others' by more than chance."""
    means, count = late.mean(axis=0), len(late)
    middle = float(np.median(means))
    noise = float(np.median(late.std(axis=0))) / max(1.0, count**0.5)
    off = [(r, (float(m) - middle) / max(abs(middle), 1e-12)) for r, m in zip(table.ranks, means, strict=True)]
    return sorted(
        (x for x, m in zip(off, means, strict=True) if abs(m - middle) > 6 * noise and abs(x[1]) > 0.2),
        key=lambda x: -abs(x[1]),
    )


def first_difference(table: RankTable) -> tuple[int, int, int] | None:
    """(row, rank, other) of the first step at which sums of parameters that should be equal are not."""
    values = table.values
    scale = np.maximum(np.abs(values).max(axis=1), 1e-12)
    off = (values.max(axis=1) - values.min(axis=1)) / scale > EXACT
    if not off.any():
        return None
    row = int(np.argmax(off))
    middle = np.median(values[row])
    odd = int(np.argmax(np.abs(values[row] - middle)))
    other = int(np.argmin(np.abs(values[row] - middle)))
    if odd == other:
        odd, other = int(np.argmax(values[row])), int(np.argmin(values[row]))
    return row, table.ranks[odd], table.ranks[other]


@dataclass(slots=True)
class Pair:
    """Two checkpoints of one moment. `off` are tensors that differ, with the largest relative difference of norms."""

    one: RunFile
    other: RunFile
    tensors: int
    off: list[tuple[str, float]]
    why: str = ""  # it could not be compared


PAIRS = 8  # that are compared


def pairs(ws: Workspace) -> Iterator[Pair]:
    """Checkpoints whose names differ in the rank alone and that hold the same tensors, each against the first."""
    for first, other in _candidates(ws)[:PAIRS]:
        deadline.check()
        found = _compare(ws, first, other)
        if found is not None:
            yield found


def pairs_left(ws: Workspace) -> int:
    """How many pairs are not compared."""
    return max(0, len(_candidates(ws)) - PAIRS)


def _candidates(ws: Workspace) -> list[tuple[RunFile, RunFile]]:
    """Pairs of all checkpoints of several ranks, those of the last moment first."""
    sets: dict[tuple, list[RunFile]] = {}
    for file in ws.by_role("checkpoint"):
        named = _RANK.search(file.name) and file.path.suffix.lower() in _SUFFIXES
        if named and file.rank is not None and not file.good and not _PARTS.search(file.name):
            sets.setdefault((file.run, _RANK.sub(r"\1#", file.name)), []).append(file)
    ordered = [sorted(files, key=lambda f: f.rank or 0) for files in reversed(sets.values())]
    return [(first, other) for first, *rest in ordered for other in rest]


def _compare(ws: Workspace, one: RunFile, other: RunFile) -> Pair | None:
    """Two files tensor by tensor; None where they do not hold the same tensors, hence are no replicas."""
    from ..checkpoints.numbers import numbers_of
    from ..checkpoints.weights import state_of

    left, right = state_of(ws, one), state_of(ws, other)
    if not (left.readable and right.readable):
        return Pair(one, other, 0, [], "one of the two cannot be read wholly")
    mine, theirs = _weights(left), _weights(right)
    if not mine or {n: t.shape for n, t in mine.items()} != {n: t.shape for n, t in theirs.items()}:
        return None
    if sum(t.size for t in mine.values()) > BYTES:
        return Pair(one, other, len(mine), [], f"larger than {BYTES >> 30} GiB: not compared")
    a, b = numbers_of(ws, mine.values()), numbers_of(ws, theirs.values())
    if any(not n.read for n in (*a.values(), *b.values())):
        return Pair(one, other, len(mine), [], "a tensor cannot be read")
    off = []
    for name in mine:
        scale = max(a[name].norm, b[name].norm, 1e-12)
        parts = [abs(a[name].norm - b[name].norm), abs(a[name].least - b[name].least), abs(a[name].most - b[name].most)]
        if (gap := max(parts) / scale) > EXACT or a[name].nan != b[name].nan:
            off.append((name, gap))
    return Pair(one, other, len(mine), sorted(off, key=lambda x: -x[1]))


def _weights(state: State) -> dict:
    """Floating-point tensors, without the random state."""
    return {
        n: t for n, t in state.tensors.items() if t.dtype.startswith(("float", "bfloat")) and "rng" not in n.lower()
    }  # fmt: skip
