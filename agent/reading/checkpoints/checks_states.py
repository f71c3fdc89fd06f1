"""The states of a checkpoint's files, and what is wrong with the structure of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .allowed import dangerous, known
from .checks import Flaw, flaw_of
from .checks_files import weight_map
from .layouts import SAVED, Checkpoint
from .parts import State
from .state import state_of
from .weights import states_of

if TYPE_CHECKING:
    from ...workspace import Workspace

_GLOBALS = 12
_DATA = frozenset(("deepspeed.utils.tensor_fragment.fragment_address",))  # a named tuple


def states_of_checkpoint(ws: Workspace, checkpoint: Checkpoint, *parts: str) -> Iterator[tuple[str, State]]:
    """`(part, state)` of every file of tensors that has any bytes; empty ones are told by their names alone.

    Args:
        parts: those that are read; all that hold saved states when none is named.
    """
    for part in parts or [p for p in checkpoint.files if p in SAVED]:
        yield from ((part, state) for state in states_of(ws, checkpoint, part) if state.file.size)


def structure_flaws(ws: Workspace, checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Problems of each file's structure, names in pickles that are no data, and an index that its shards contradict."""
    for _, state in states_of_checkpoint(ws, checkpoint):
        flaws = [flaw_of(p, state.file) for p in state.problems]
        yield from flaws
        if not state.readable and not flaws:
            text = f"{state.file.path.name}: its structure was not wholly understood"
            yield Flaw("checkpoint.unreadable", text, True, state.file, weight="unknown")
        yield from _globals(state)
    yield from _indexed(ws, checkpoint)


def _globals(state: State) -> Iterator[Flaw]:
    """A pickle that names what is no data: it would be called when the file is loaded without restriction."""
    foreign = [name for name in state.globals if not known(name) and not dangerous(name) and name not in _DATA]
    if foreign:
        names = ", ".join(foreign[:_GLOBALS])
        text = f"{state.file.path.name} names {names}: refused by weights_only, called by a plain load"
        yield Flaw("checkpoint.foreign_global", text, foreign[0], state.file, foreign[0], "note")


def _indexed(ws: Workspace, checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Tensors that an index promises in a shard, and that the shard's own header does not have."""
    here = {f.path.name: f for f in checkpoint.files.get("model", [])}
    for index in checkpoint.files.get("index", []):
        mapped = weight_map(ws, index) or {}
        by_shard: dict[str, list[str]] = {}
        for tensor, shard in mapped.items():
            by_shard.setdefault(shard, []).append(tensor)
        for shard, tensors in by_shard.items():
            if shard not in here or here[shard].size == 0:
                continue
            state = state_of(ws, here[shard])
            lost = [t for t in tensors if t not in state.tensors] if state.readable else []
            if lost:
                names = ", ".join(lost[:4])
                text = f"{index.path.name} places {len(lost)} tensors in {shard} that it does not hold: {names}"
                yield Flaw("checkpoint.missing_tensor", text, len(lost), here[shard], lost[0])
