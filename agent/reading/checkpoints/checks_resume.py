"""Whether a save can be gone on from: the states it needs are there, and all of them count the same step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from .checks import Flaw, series_of
from .checks_contents import Contents, Told, contents_of
from .layouts import Checkpoint

if TYPE_CHECKING:
    from ...workspace import Workspace

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
