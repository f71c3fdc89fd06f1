"""What a checkpoint holds for going on: optimizer, scheduler, random states, data position, and their steps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ....core.deadline import check
from ...run.files import RunFile
from ..layouts import Checkpoint
from ..parts import State, Tensor
from .checks import Flaw, series_of, states_of_checkpoint

if TYPE_CHECKING:
    from ...run.workspace import Workspace

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
    from ..numbers import chunks

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


# ----------
# Whether a save can be gone on from: the states it needs are there, and all of them count the same step.

# What a framework saves by itself, so that its absence tells something. Others save what their user wrote.
_SAVED_BY: dict[str, tuple[str, ...]] = {
    "megatron": ("optimizer", "scheduler", "rng"),
    "megatron_dist": ("optimizer", "scheduler"),
    "deepspeed": ("optimizer",),
    "dcp": ("optimizer", "scheduler", "data_state"),
    "torch": ("optimizer", "scheduler", "rng", "data_state"),
    "verl": ("optimizer", "scheduler", "rng", "data_state"),
    "lightning": ("optimizer",),
}
_SEPARATE = ("hf", "peft", "accelerate")  # their states lie in files of their own: `checks_files` misses them
# What is counted is up to the user: steps, micro-batches, updates of several optimizers.
_OWN = ("torch", "dcp", "accelerate", "lightning", "verl")
_RANKED = ("deepspeed", "megatron", "verl")  # every rank keeps a part of one optimizer
_SLACK = 0.05  # share of steps that an optimizer may have skipped
_SCALER_SLACK = 40  # steps that a loss scaler skips while it looks for its scale


def resume_flaws(ws: Workspace, checkpoint: Checkpoint, held: list[Checkpoint]) -> Iterator[Flaw]:
    """States that are missing though the save was meant for going on, and steps that disagree."""
    contents = contents_of(ws, checkpoint)
    others = [c for c in series_of(checkpoint, held) if c.size]
    yield from _missing(ws, checkpoint, contents, others)
    yield from _steps(ws, checkpoint, contents, others)


def _missing(ws: Workspace, checkpoint: Checkpoint, contents: Contents, others: list[Checkpoint]) -> Iterator[Flaw]:
    if checkpoint.framework in _SEPARATE:
        return
    expected = _SAVED_BY.get(checkpoint.framework, ())
    meant = "optimizer" in contents.kinds or bool(contents.of("checkpoint")) or "scheduler" in contents.kinds
    for part in ("optimizer", "scheduler", "rng", "data_state"):
        if part in contents.kinds or part in checkpoint.files:
            continue
        having = [c for c in others if part in contents_of(ws, c).kinds]
        if not having and not (meant and part in expected):
            continue
        newest = not any((c.step or 0) > (checkpoint.step or 0) for c in others)
        text = f"no {part} state" + (f", but {having[-1].name} has one" if having else " is saved in it")
        weight = "damage" if having and newest else "note"
        yield Flaw(
            f"checkpoint.no_{part}",
            text.replace("data_state state", "data position"),
            checkpoint.name,
            None,
            part,
            weight,
        )


def _steps(ws: Workspace, checkpoint: Checkpoint, contents: Contents, others: list[Checkpoint]) -> Iterator[Flaw]:
    """The name, the counters of the run, the optimizer and the scheduler, each against what the save says it is."""
    told = contents.of("checkpoint")
    step = checkpoint.step if checkpoint.step is not None else (told[0].step if told else None)
    if step is None:
        return
    own = checkpoint.framework in _OWN
    for one in told:
        if abs(one.step - step) > (1 if own else 0):
            same = [
                t.step / c.step
                for c in others
                if c.step
                for t in contents_of(ws, c).of("checkpoint")
                if t.member == one.member
            ]
            if own and step and any(abs(r - one.step / step) < 0.02 for r in same):
                continue  # every save counts something else here: micro-batches, samples
            text = f"{PurePosixPath(one.file.name).name} says {one.member} = {one.step:g}, the save is of step {step:g}"
            yield _disagrees(text, one, not own or any(abs(r - 1) < 0.02 for r in same))
    yield from _updates(ws, checkpoint, contents, others, step)
    yield from _scheduler(checkpoint, contents, step)


def _updates(
    ws: Workspace, checkpoint: Checkpoint, contents: Contents, others: list[Checkpoint], step: float
) -> Iterator[Flaw]:
    """Updates that the optimizer counts: as many as steps but for skipped ones, and as many on every rank."""
    by_file: dict[str, Told] = {}
    for one in contents.of("optimizer"):  # the parameters of one file may have begun at different times
        if one.step >= by_file.get(one.file.name, one).step:
            by_file[one.file.name] = one
    if not by_file:
        return
    most = max(by_file.values(), key=lambda t: t.step)
    behind = step - contents.skipped - most.step
    slack = _SLACK * step + (_SCALER_SLACK if contents.scaled else 0.5)
    if not -0.5 <= behind <= slack:
        counts = [
            (c.step, max(t.step for t in told))
            for c in others
            if c.step and (told := contents_of(ws, c).of("optimizer"))
        ]
        anew = any(abs(at - count - behind) < 0.5 for at, count in counts)  # it began anew at an earlier start
        own = checkpoint.framework in _OWN
        fewer = own and step > 0 and any(abs(count / at - most.step / step) < 0.02 for at, count in counts)
        if not anew and not fewer:
            agrees = any(abs(count / at - 1) < 0.02 for at, count in counts)
            text = f"the optimizer counts {most.step:g} updates, the save is of step {step:g}"
            yield _disagrees(text, most, not own or agrees)
    if checkpoint.framework in _RANKED:
        for one in by_file.values():
            if most.step - one.step > 0.5:
                names = PurePosixPath(one.file.name).name, PurePosixPath(most.file.name).name
                yield _disagrees(f"{names[0]} counts {one.step:g} updates, {names[1]} {most.step:g}", one, True)
                return


def _disagrees(text: str, told: Told, sure: bool) -> Flaw:
    return Flaw("checkpoint.step_disagrees", text, told.step, told.file, told.member, "damage" if sure else "note")


def _scheduler(checkpoint: Checkpoint, contents: Contents, step: float) -> Iterator[Flaw]:
    """Only where the framework is known to move the schedule once a step."""
    if checkpoint.framework not in ("hf", "peft", "deepspeed", "verl", "torch"):
        return
    slack = _SLACK * step + (_SCALER_SLACK if contents.scaled else 1.5)
    for told in contents.of("scheduler"):
        behind = step - contents.skipped - told.step
        own = checkpoint.framework == "torch"
        if own:  # a schedule of its own may count epochs; only one that stands still tells something
            wrong = told.step <= 0 and step > 10
        else:
            wrong = behind > slack if checkpoint.framework == "deepspeed" else not -1.5 <= behind <= slack
        if wrong:
            yield _disagrees(f"the scheduler is at {told.step:g}, the save is of step {step:g}", told, not own)
            return
