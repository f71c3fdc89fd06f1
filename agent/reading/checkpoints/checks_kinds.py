"""Whether a file holds the kind of state that its name says: copies by hand put one in the place of another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .checks import Flaw
from .checks_states import states_of_checkpoint
from .layouts import Checkpoint
from .parts import State
from .weights import SLOTS, whole

if TYPE_CHECKING:
    from ...workspace import Workspace

# Keys that only one kind of state has at its top.
_TELLING: dict[str, frozenset[str]] = {
    "optimizer": frozenset(("param_groups", "optimizer_state_dict", "base_optimizer_state", "fp32_flat_groups")),
    "scheduler": frozenset(("last_epoch", "_step_count", "last_batch_iteration", "base_lrs", "_last_lr")),
    "rng": frozenset(("python", "numpy", "cpu", "cuda", "random_rng_state", "torch_rng_state", "torch_manual_seed")),
    "model": frozenset(("module", "param_shapes", "buffer_names")),
}
_UNIVERSAL = ("fp32", "exp_avg", "exp_avg_sq", "step")  # DeepSpeed's universal layout: a file a tensor
_WIDE = 1024  # elements beyond which a tensor is a weight or a moment


def kind_flaws(ws: Workspace, checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Files that plainly hold another kind of state. Where content tells nothing, nothing is said."""
    for part, state in states_of_checkpoint(ws, checkpoint):
        if state.file.path.stem in _UNIVERSAL:
            continue
        if part not in ("optimizer", "scheduler", "rng") and not (
            part == "model" and checkpoint.framework == "deepspeed"
        ):
            continue
        held = _held(state)
        if held and part not in held:
            text = f"{state.file.path.name} holds {' and '.join(sorted(held))} state"
            yield Flaw("checkpoint.wrong_content", text, sorted(held)[0], state.file)


def _held(state: State) -> set[str]:
    """Kinds that a state plainly is: by the keys at its top, by moments, by wide tensors without either."""
    if not state.readable:
        return set()
    top = {str(k) for k in state.tree} if isinstance(state.tree, dict) else set()
    found = {kind for kind, keys in _TELLING.items() if keys & top}
    if any(whole(name).rpartition(".")[2] in SLOTS for name in state.tensors):
        found.add("optimizer")
    if not found and any(len(t.shape) > 1 and t.count > _WIDE for t in state.tensors.values()):
        found.add("model")
    elif not found and "args" not in top and state.globals and not state.tensors and not top:
        found.add("other")
    return found
