"""What the numbers in a checkpoint tell: NaN and infinity, weights of zero, constants, values nobody trains to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ..layouts import Checkpoint
from ..numbers import chunks, examine
from ..parts import Numbers, State, Tensor
from ..weights import SLOTS, is_adapter, whole
from .checks import Flaw, flaw_of, states_of_checkpoint

if TYPE_CHECKING:
    from ...run.workspace import Workspace


# ----------
# Blocks of zeros inside a weight: pages that a crashed node never wrote. The file has its length, but not its content.
#
# Trained matrices have next to no element that is exactly zero. Where most matrices of a file have none and one has
# many of them in a row, pages of the file were lost, or rows of it are dead; where the stretch begins and ends tells
# which.


PAGE = 4096
_SPARSE = 1e-6  # share of zeros up to which a matrix has none to speak of
_LOOKED = 8  # suspicious tensors of a file that are read again


def hole_flaws(ws: Workspace, state: State, numbers: dict[str, Numbers], wanted: list[Tensor]) -> Iterator[Flaw]:
    """Stretches of zeros of a page or more.

    Args:
        wanted: the matrices of the file that training fills everywhere.
    """
    seen = [(t, n) for t in wanted if (n := numbers.get(t.name)) is not None and n.read and n.count]
    dense = sum(1 for _, n in seen if n.zeros <= _SPARSE * n.count)
    if 2 * dense < len(seen):
        return  # a sparse model
    suspects = [(t, n) for t, n in seen if PAGE // _width(t) <= n.zeros < n.count and t.strides is None]
    for tensor, _ in suspects[:_LOOKED]:
        first, end = _longest(ws, tensor)
        width = _width(tensor)
        if (end - first) * width < PAGE:
            continue
        begin, stop = tensor.start + first * width, tensor.start + end * width
        pages = (begin % PAGE == 0 or first == 0) and (stop % PAGE == 0 or end == tensor.count)
        text = f"{tensor.name} {list(tensor.shape)} is zero from element {first} to {end}, other matrices nowhere"
        if pages:
            text += f"; these are whole pages of the file from byte {begin}: never written"
        yield Flaw("checkpoint.zero_block", text, end - first, tensor.file, tensor.name, "damage" if pages else "note")


def _width(tensor: Tensor) -> int:
    return max(1, tensor.size // max(1, tensor.count))


def _longest(ws: Workspace, tensor: Tensor) -> tuple[int, int]:
    """First and end of the longest run of zeros, in elements."""
    best, at, open_since = (0, 0), 0, -1
    for values in chunks(ws, tensor):
        zero = np.concatenate(([open_since >= 0], values == 0, [False]))
        edges = np.flatnonzero(np.diff(zero.astype(np.int8)))
        starts, ends = list(edges[zero[edges + 1]]), list(edges[~zero[edges + 1]])
        if open_since >= 0:
            starts.insert(0, open_since - at)
        for start, end in zip(starts, ends, strict=True):
            if end == len(values):
                open_since = at + int(start)
            elif end - start > best[1] - best[0]:
                best = (at + int(start), at + int(end))
        if not ends or ends[-1] != len(values):
            open_since = -1
        at += len(values)
        if open_since >= 0 and at - open_since > best[1] - best[0]:
            best = (open_since, at)
    return best


# ----------

HUGE = 1e6  # a weight or a moment beyond this is no result of training
_SMALL = 64  # elements up to which a matrix may be constant by chance
_MASK = re.compile(r"mask|attn\.bias$|callbacks|best_|kth_value|score|amax|_extra_state|monitor", re.IGNORECASE)
_SCALE = re.compile(
    r"running_|inv_freq|position|num_batches|logit_scale|freqs|loss|tokens|samples|cur_scale|scaler", re.I
)
_NORM = re.compile(r"(norm\w*|ln_\w+|ln\d|layernorm\w*)\.(weight|scale|gamma)$|layer_norm_weight$", re.IGNORECASE)
# Matrices that training starts from zero on purpose.
_FROM_ZERO = re.compile(
    r"lora_B|lora_up|lora_embedding_B|ada_?ln|adaln|modulation|zero_conv|zero_init|(^|\.)(gate|router)\.|scale_shift|proj_out|final_layer"
    r"|relative|residual_scale|ia3|position|controlnet|bias|connector|sink",
    re.IGNORECASE,
)
_EMBEDDED = re.compile(r"embed|wte|wpe|lm_head|shared|score|classifier", re.IGNORECASE)
_FLAT = re.compile(r"fp32_flat_groups|single_partition_of_fp32_groups")  # ZeRO's master weights, all in one
_MOMENTS = re.compile(r"optim|exp_avg|\.state\.\d+|moment", re.IGNORECASE)
_WHOLE_NUMBERS = ("int", "uint", "bool")


@dataclass(slots=True)
class Numbered:
    """The statistics of a save, by file and tensor, and whether all was read.

    Attributes:
        bytes: bytes of the tensors that were read.
        tensors: how many.
        unread: names of those that were not.
    """

    flaws: list[Flaw] = field(default_factory=list)
    bytes: int = 0
    tensors: int = 0
    unread: list[str] = field(default_factory=list)


def number_flaws(ws: Workspace, checkpoint: Checkpoint) -> Numbered:
    """Every byte of a save, read once.

    Raises:
        TimeoutError: the time of the call is over.
    """
    return ws.memo(("checkpoint numbers", checkpoint.run, checkpoint.name), lambda: _read(ws, checkpoint))


def _read(ws: Workspace, checkpoint: Checkpoint) -> Numbered:
    found = Numbered()
    for _, state in states_of_checkpoint(ws, checkpoint):
        seen = examine(ws, state)
        found.flaws += [flaw_of(p, state.file) for p in seen.problems]
        for name, tensor in state.tensors.items():
            numbers = seen.numbers.get(name)
            if numbers is None or not numbers.read:
                if tensor.size and not _packed(tensor):
                    found.unread.append(name)
                continue
            found.bytes += tensor.size
            found.tensors += 1
        judged = list(_judged(state, seen.numbers))
        found.flaws += _meant(checkpoint, state, judged)
        found.flaws += hole_flaws(ws, state, seen.numbers, [t for t in state.tensors.values() if _filled(t)])
    return found


def _meant(checkpoint: Checkpoint, state: State, judged: list[Flaw]) -> list[Flaw]:
    """Zeros that the code begins with: a save of step 0, or norms that count from zero, every one of them."""
    zero = [f for f in judged if f.key == "checkpoint.zero_tensor"]
    norms = sum(1 for name in state.tensors if _NORM.search(whole(name)) and not _MOMENTS.search(name))
    zero_norms = [f for f in zero if _NORM.search(whole(f.member))]
    initial = zero if checkpoint.step == 0 else zero_norms if norms > 1 and len(zero_norms) == norms else []
    return [replace(f, weight="note") if f in initial else f for f in judged]


def _filled(tensor: Tensor) -> bool:
    """A matrix that training fills in every place: no embedding, whose rows may be unused, and nothing from zero."""
    name = tensor.name
    plain = tensor.dtype.startswith(("float", "bfloat")) and len(tensor.shape) >= 2 and not is_adapter(name)
    special = _EMBEDDED.search(name) or _FROM_ZERO.search(name) or _MASK.search(name) or _MOMENTS.search(name)
    return plain and not special and whole(name).rpartition(".")[2] not in SLOTS


def _packed(tensor: Tensor) -> bool:
    """Types without a layout that is read here; their bytes are still under the checksum of their file."""
    return not tensor.dtype.startswith(("float", "bfloat", *_WHOLE_NUMBERS))


def _judged(state: State, numbers: dict[str, Numbers]) -> Iterator[Flaw]:
    for name, tensor in state.tensors.items():
        seen = numbers.get(name)
        if seen is None or not seen.read or not seen.count or not tensor.dtype.startswith(("float", "bfloat")):
            continue
        if not _MASK.search(name):
            yield from _nonfinite(tensor, seen)
            yield from _huge(tensor, seen)
        if _FLAT.search(name):
            yield from _flat_group(tensor, seen)
        elif not _MOMENTS.search(name) and whole(name).rpartition(".")[2] not in SLOTS:
            yield from _flat(tensor, seen)


def _nonfinite(tensor: Tensor, seen: Numbers) -> Iterator[Flaw]:
    if seen.nan or seen.inf:
        words = " and ".join(
            w for w in (f"{seen.nan} NaN" * bool(seen.nan), f"{seen.inf} infinite" * bool(seen.inf)) if w
        )
        text = f"{tensor.name} {list(tensor.shape)} holds {words} of {seen.count} elements"
        yield Flaw("checkpoint.nonfinite", text, seen.nan + seen.inf, tensor.file, tensor.name)


def _huge(tensor: Tensor, seen: Numbers) -> Iterator[Flaw]:
    most = max(abs(seen.least), abs(seen.most))
    if most > HUGE and not _SCALE.search(tensor.name):
        text = f"{tensor.name} {list(tensor.shape)} holds values up to {most:.3g}"
        yield Flaw("checkpoint.huge_tensor", text, most, tensor.file, tensor.name)


def _flat(tensor: Tensor, seen: Numbers) -> Iterator[Flaw]:
    """All zero where training never gets to; one value throughout a matrix."""
    norm, matrix = bool(_NORM.search(whole(tensor.name))), len(tensor.shape) >= 2
    if not seen.count - seen.zeros and not seen.nan:
        if (norm or (matrix and not _FROM_ZERO.search(tensor.name))) and not is_adapter(tensor.name):
            text = f"{tensor.name} {list(tensor.shape)} is all zero"
            yield Flaw("checkpoint.zero_tensor", text, seen.count, tensor.file, tensor.name)
    elif matrix and seen.constant and seen.count > _SMALL and not norm:
        text = f"{tensor.name} {list(tensor.shape)} holds {seen.most:g} in every place"
        yield Flaw("checkpoint.constant_tensor", text, seen.most, tensor.file, tensor.name)


def _flat_group(tensor: Tensor, seen: Numbers) -> Iterator[Flaw]:
    if seen.count > _SMALL and seen.zeros == seen.count:
        text = f"{tensor.name}, the master weights of a rank, is all zero ({seen.count} elements)"
        yield Flaw("checkpoint.zero_tensor", text, seen.count, tensor.file, tensor.name)
