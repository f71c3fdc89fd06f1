"""What a checkpoint holds for going on: optimizer, scheduler, random states, data position, and their steps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...deadline import check
from ..files import RunFile
from .checks_states import states_of_checkpoint
from .layouts import Checkpoint
from .parts import State, Tensor

if TYPE_CHECKING:
    from ...workspace import Workspace

_KINDS = {
    "optimizer": re.compile(r"^(?!.*(class|name|sched))(base_)?optim(izer)?s?(_state\w*)?$|^opt(_state)?$", re.I),
    "scheduler": re.compile(r"sched", re.I),
    "rng": re.compile(r"rng|random_state|(^|_)seed_state", re.I),
    "data_state": re.compile(r"sampler|data_?loader|dataset|data_(state|iter)|consumed|^loops$|batch_progress", re.I),
    "scaler": re.compile(r"^(grad_)?scaler|native_amp_scaling|loss_scaler", re.I),
}  # fmt: skip
_STEP = re.compile(r"^(global_?steps?|steps?|iteration|iter|iter_num|current_step|num_steps|total_steps_done)$", re.I)
_INNER = ("train_state", "trainer_state", "training_state", "client_state", "progress", "meta", "app", "state")
_COUNTING = ("model", "common", "other", "metadata", "extra")
_SCALARS = 64  # step counters of one optimizer that are read
_SCALED = re.compile(r"fp16|scaler|loss_scaler", re.I)


@dataclass(frozen=True, slots=True)
class Told:
    """A step and what says so. `of`: checkpoint (the save itself), optimizer or scheduler."""

    of: str
    step: float
    file: RunFile
    member: str


@dataclass(slots=True)
class Contents:
    """The states of a save and the steps they tell.

    Attributes:
        kinds: optimizer, scheduler, rng, data_state, scaler.
        named: top-level keys seen, for the kinds that are there but empty.
        steps: in the order found.
        scaled: a loss scaler skips steps, so that the optimizer may be behind.
    """

    kinds: set[str] = field(default_factory=set)
    steps: list[Told] = field(default_factory=list)
    scaled: bool = False
    skipped: int = 0

    def of(self, what: str) -> list[Told]:
        return [t for t in self.steps if t.of == what]


def contents_of(ws: Workspace, checkpoint: Checkpoint) -> Contents:
    """By file names and by the structure of each file; step counters are read, no other tensor."""
    return ws.memo(("checkpoint contents", checkpoint.run, checkpoint.name), lambda: _read(ws, checkpoint))


def _read(ws: Workspace, checkpoint: Checkpoint) -> Contents:
    found = Contents({part for part in checkpoint.files if part in _KINDS})
    found.scaled = "scaler" in found.kinds
    for file in checkpoint.files.get("trainer_state", []):
        step = _trainer_step(ws, file)
        found.kinds.add("data_state")
        if step is not None:
            found.steps.append(Told("checkpoint", step, file, "global_step"))
    for part, state in states_of_checkpoint(ws, checkpoint):
        check()
        _look(ws, found, part, state)
    return found


def _trainer_step(ws: Workspace, file: RunFile) -> int | None:
    try:
        step = json.loads(ws.read(file, 64 << 20)).get("global_step")
    except (ValueError, RecursionError, AttributeError):
        return None
    return step if _is_count(step) else None


def _look(ws: Workspace, found: Contents, part: str, state: State) -> None:
    if isinstance(state.tree, dict):
        for path, value in _top(state):
            for kind, pattern in _KINDS.items():
                if pattern.search(path[0]) and not _nothing(value):
                    found.kinds.add(kind)
            if len(path) > 1 and path[0] not in _INNER:
                continue
            if part in _COUNTING and _STEP.match(path[-1]) and (step := _number(ws, value)) is not None:
                found.steps.append(Told("checkpoint", step, state.file, ".".join(path)))
            if path[-1] == "skipped_steps" and _is_count(value):
                found.skipped = value
        found.scaled |= bool(_SCALED.search(state.file.path.name)) or "scaler" in found.kinds
    found.steps += _optimizer_steps(ws, part, state)
    found.steps += _scheduler_steps(part, state)


def _top(state: State) -> Iterator[tuple[list[str], Any]]:
    """Keys of a state as paths, and those below the keys that frameworks put counters under.

    A distributed state keeps its tree flat, with dotted keys, and its tensors apart.
    """
    if state.format == "dcp":
        for key, value in [*state.tree.items(), *state.tensors.items()]:
            yield str(key).split("."), value
        return
    for key, value in state.tree.items():
        yield [str(key)], value
        if isinstance(value, dict) and str(key) in _INNER:
            yield from (([str(key), str(inner)], below) for inner, below in value.items())


def _nothing(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple | dict | str) and not value)


def _is_count(value: Any) -> bool:
    """A plain number that may be a step: a hostile one of a thousand digits is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _number(ws: Workspace, value: Any) -> float | None:
    if _is_count(value):
        return value
    return scalar(ws, value) if isinstance(value, Tensor) and value.count == 1 else None


def scalar(ws: Workspace, tensor: Tensor) -> float | None:
    """The value of a tensor of one element; None where it cannot be read."""
    from .numbers import chunks

    for chunk in chunks(ws, tensor):
        if len(chunk):
            return float(chunk[0])
    return None


def _optimizer_steps(ws: Workspace, part: str, state: State) -> Iterator[Told]:
    """The counters that an optimizer keeps for each parameter, or for each group."""
    counters = [t for name, t in state.tensors.items() if t.count == 1 and _counts(part, name)]
    few = counters if len(counters) <= _SCALARS else counters[: _SCALARS // 2] + counters[-_SCALARS // 2 :]
    for tensor in few:
        step = scalar(ws, tensor)
        if step is not None:
            yield Told("optimizer", step, state.file, tensor.name)
    if not counters:
        for member, step in _plain_steps(state.tree, "", 0):
            yield Told("optimizer", step, state.file, member)


def _counts(part: str, name: str) -> bool:
    """Whether a tensor is an optimizer's counter: `optimizer.state.3.step`, in one piece or several."""
    if name.rsplit(".", 1)[-1].split("[")[0] != "step":
        return False
    return part == "optimizer" or "opt" in name or ".state." in name


def _plain_steps(tree: Any, path: str, depth: int) -> Iterator[tuple[str, float]]:
    """`step` in the parameter groups of an optimizer or beside its moments, where it is a plain number."""
    if depth > 6 or not isinstance(tree, dict):
        return
    for key, value in list(tree.items())[:_SCALARS]:
        inside = f"{path}.{key}" if path else str(key)
        if key == "step" and path and _is_count(value):
            yield inside, value
        elif key == "param_groups" and isinstance(value, list):
            for i, group in enumerate(value[:_SCALARS]):
                if isinstance(group, dict) and _is_count(group.get("step")):
                    yield f"{inside}.{i}.step", group["step"]
        elif isinstance(value, dict) and ("optim" in inside or "state" in inside) and "sched" not in inside:
            yield from _plain_steps(value, inside, depth + 1)


def _scheduler_steps(part: str, state: State) -> Iterator[Told]:
    tree = state.tree
    if not isinstance(tree, dict):
        return
    if state.format == "dcp":
        for name, value in tree.items():
            if str(name).endswith("last_epoch") and "sched" in str(name) and _is_count(value):
                yield Told("scheduler", value, state.file, str(name))
        return
    places = (
        [("", tree)] if part == "scheduler" else [(str(k), v) for k, v in tree.items() if "sched" in str(k).lower()]
    )
    for name, place in places:
        for one in place if isinstance(place, list) else [place]:
            if not isinstance(one, dict):
                continue
            if _is_count(one.get("last_epoch")):
                yield Told("scheduler", one["last_epoch"], state.file, f"{name}.last_epoch".strip("."))
            elif _is_count(one.get("last_batch_iteration")):
                yield Told("scheduler", one["last_batch_iteration"] + 1, state.file, f"{name}.last_batch_iteration")
