"""The checkpoints a run can go on from, the newest clean one from before the trouble first, and what each costs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..deadline import Deadline
from ..predicates import Facts
from ..reading.checkpoints.checks_verdict import first_trouble, judged
from ..reading.checkpoints.layouts import Checkpoint, checkpoints
from ..report import Choice
from .cost import Cost
from .resume import commands, writer_of

if TYPE_CHECKING:
    from ..workspace import Workspace

READ_AT_ONCE = 256 << 20  # bytes of checkpoints that are read whole while the report is made
FILES_AT_ONCE = 256
SECONDS = 5.0  # for all reading here
LOOKED_AT = 4  # newest checkpoints that may be judged here
SHOWN = 3
BEGINNING = "the beginning"
Word = Literal["clean", "damaged", "unknown"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """The first anomaly of the curves: its step and its name in words."""

    step: int
    what: str


def choices(ws: Workspace, facts: Facts, cost: Cost, *, carried: bool) -> list[Choice]:
    """Where to go on from, the best first; empty where no checkpoint is among the files of the run.

    Args:
        carried: what the run saved carries the fault, whenever it was saved.
    """
    held = [c for c in checkpoints(ws) if not c.good]
    trouble = _trouble(ws, facts) if held else None
    before = [c for c in reversed(held) if not _after(c, trouble)]
    known = dict(_verdicts(ws, facts, before))
    usable = [c for c in before if known.get(_key(c), ("unknown", ""))[0] != "damaged"]
    usable.sort(key=lambda c: known.get(_key(c), ("unknown", ""))[0] != "clean")  # stable: newest first within each
    passed = list(_passed_over(held, before, known, trouble))
    found = [_choice(ws, c, cost, known.get(_key(c), ("unknown", "")), trouble) for c in usable[:SHOWN]]
    if held and cost.reached and (carried or not found):
        why = "every checkpoint of this run carries the fault" if carried else "no checkpoint here can be used"
        found.insert(0, beginning(cost, why))
    if found and passed:
        found[0].why = "; ".join(filter(None, [found[0].why, *passed[:3]]))
    return found


def beginning(cost: Cost, why: str) -> Choice:
    """Everything once more."""
    steps, hours = cost.lost(0)
    return Choice(checkpoint=BEGINNING, step=0, lost_steps=steps, lost_gpu_hours=hours, why=why)


def _trouble(ws: Workspace, facts: Facts) -> Trouble | None:
    """Where the curves first go wrong; an absent one, where the log says no steps, cuts off nothing."""
    found = first_trouble(ws)
    if found is not None and found.step is not None:
        return Trouble(found.step, f"{_WORDS.get(found.key, found.key)} at step {found.step}")
    steps = [e.step for e in facts.get("loss.first_nan_step") if e.step is not None and e.kind != "absent"]
    return Trouble(min(steps), f"the loss became not finite at step {min(steps)}") if steps else None


_WORDS = {
    "loss.first_nan_step": "the loss became not finite",
    "loss.diverged": "the loss left its course",
    "grad_norm.nonfinite_step": "the gradient norm became not finite",
    "loss.spike_step": "the loss leapt",
    "grad_norm.spike_step": "the gradient norm leapt",
}


def _after(checkpoint: Checkpoint, trouble: Trouble | None) -> bool:
    """Saved at or after the anomaly. One that names no step is taken to be after it."""
    return trouble is not None and (checkpoint.step is None or checkpoint.step >= trouble.step)


def _key(checkpoint: Checkpoint) -> tuple[str, str]:
    return checkpoint.run, checkpoint.name


def _verdicts(
    ws: Workspace, facts: Facts, newest_first: list[Checkpoint]
) -> Iterator[tuple[tuple[str, str], tuple[Word, str]]]:
    """What is known of each: what a check has found, else what little reading finds of the newest."""
    told = {(e.run, e.member): e for e in facts.get("checkpoint.verdict") if e.kind != "absent"}
    room = READ_AT_ONCE
    with Deadline(SECONDS):
        for number, checkpoint in enumerate(newest_first):
            if (e := told.get(_key(checkpoint))) is not None:
                yield _key(checkpoint), (_word(e.value), e.text.split(": ", 2)[-1])
            elif number < LOOKED_AT and len(checkpoint.all) <= FILES_AT_ONCE:
                verdict = judged(ws, checkpoint, "full" if checkpoint.size <= room else "structure")
                room -= checkpoint.size if checkpoint.size <= room else 0
                yield _key(checkpoint), (verdict.word, verdict.why)


def _word(value: object) -> Word:
    return "clean" if value == "clean" else "damaged" if value == "damaged" else "unknown"


def _passed_over(
    held: list[Checkpoint], before: list[Checkpoint], known: dict[tuple[str, str], tuple[Word, str]],
    trouble: Trouble | None,
) -> Iterator[str]:  # fmt: skip
    """Why newer ones are not chosen, one sentence each."""
    late = [c for c in held if c not in before]
    if late and trouble is not None:
        names = ", ".join(c.name for c in late[-3:])
        more = f" and {len(late) - 3} older" if len(late) > 3 else ""
        when = "names no step, so it may be" if len(late) == 1 and late[0].step is None else "saved"
        yield f"not {names}{more}: {when} after {trouble.what}"
    for c in before:
        word, why = known.get(_key(c), ("unknown", ""))
        if word == "damaged":
            yield f"not {c.name}: damaged, {why}"


def _choice(
    ws: Workspace, checkpoint: Checkpoint, cost: Cost, verdict: tuple[Word, str], trouble: Trouble | None
) -> Choice:
    word, because = verdict
    path = _path(ws, checkpoint)
    steps, hours = cost.lost(checkpoint.step)
    when = f"from before {trouble.what}" if trouble else ""
    resume = commands(writer_of(ws, checkpoint.framework), path, checkpoint.step)
    if word != "clean":
        root = _root(ws, checkpoint)
        verify = f"doctor tool verify-checkpoint {shlex.quote(str(root))} --path {shlex.quote(checkpoint.name)}"
        when = "; ".join(filter(None, [when, f"not proved clean ({because or 'not read'}), so first: {verify}"]))
    return Choice(
        checkpoint=checkpoint.name, step=checkpoint.step, clean=True if word == "clean" else None, lost_steps=steps,
        lost_gpu_hours=hours, resume=resume, why=when,
    )  # fmt: skip


def _root(ws: Workspace, checkpoint: Checkpoint) -> Path:
    number = int(checkpoint.run.removeprefix("r") or 1) - 1
    roots = [*ws.roots, *ws.good]
    return roots[number].absolute() if number < len(roots) else ws.roots[0].absolute()


def _path(ws: Workspace, checkpoint: Checkpoint) -> Path:
    """Where it lies on this machine: its folder, or its file where it is one."""
    root = _root(ws, checkpoint)
    inner = checkpoint.name.removeprefix(f"{checkpoint.run}/") if len(ws.roots) + len(ws.good) > 1 else checkpoint.name
    path = root if not checkpoint.folder and checkpoint.name == root.name else root / inner
    return path if path.exists() else checkpoint.tensor_files[0].path
