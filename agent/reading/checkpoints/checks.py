"""What a check of a checkpoint says: a flaw with its place, and how much it weighs in the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ...types import Evidence, Value
from ..files import Line, RunFile
from .layouts import Checkpoint
from .layouts_names import holds_weights, part_of
from .parts import Problem

if TYPE_CHECKING:
    from ...workspace import Workspace

_RANK = re.compile(r"rank_(\d{1,5})")
Weight = Literal["damage", "unknown", "note"]

# Kinds of `parts.Problem` that go by another name as evidence, and those that only keep a file from being called clean.
_KEYS = {"empty": "empty_file", "dangerous_globals": "unsafe_global", "unfinished_save": "unfinished",
         "missing_file": "missing_shard"}  # fmt: skip
_UNKNOWN = {"unreadable", "unknown_format", "too_large"}


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something about a checkpoint.

    Attributes:
        key: evidence key.
        text: what is seen, in words.
        value: a number, a name or True.
        file: the file that shows it; None: the first one of the checkpoint.
        member: tensor, entry or missing file that it is about.
        weight: damage: what was saved is broken or incomplete. unknown: it could not be read, so that nothing may
            be called clean. note: worth knowing, the save itself is whole.
        line: the line of a text file that shows it.
    """

    key: str
    text: str
    value: Value = True
    file: RunFile | None = None
    member: str = ""
    weight: Weight = "damage"
    line: Line | None = None


def flaw_of(problem: Problem, file: RunFile) -> Flaw:
    """A problem of a file's structure as a flaw."""
    key = f"checkpoint.{_KEYS.get(problem.kind, problem.kind)}"
    weight: Weight = "unknown" if problem.kind in _UNKNOWN else "damage"
    return Flaw(key, f"{file.path.name}: {problem.text}", problem.kind, file, problem.member, weight)


def evidence_of(ws: Workspace, checkpoint: Checkpoint, flaw: Flaw) -> Evidence:
    """The evidence that shows a flaw."""
    file = flaw.file or checkpoint.all[0]
    if flaw.line is not None:
        return ws.cite(file, flaw.line, flaw.key, flaw.value, step=checkpoint.step)
    text = f"{checkpoint.name}: {flaw.text}"
    named = _RANK.search(flaw.member) if flaw.file is None else None
    rank = int(named[1]) if named else file.rank if flaw.file is not None else None  # not that of a file beside it
    member = flaw.member or file.path.name
    return ws.binary(file, member, flaw.key, flaw.value, text=text, step=checkpoint.step, rank=rank)


def series_of(checkpoint: Checkpoint, held: list[Checkpoint]) -> list[Checkpoint]:
    """The other saves of the same series, in their order."""
    same = (checkpoint.run, checkpoint.folder, checkpoint.framework)
    return [
        c for c in held
        if c is not checkpoint and (c.run, c.folder, c.framework) == same
        and (c.series == checkpoint.series or (c.step is not None and checkpoint.step is not None))
    ]  # fmt: skip


def skipped_in(ws: Workspace, checkpoint: Checkpoint) -> dict[str, str]:
    """Files of a save that were found and may not be read (links out of the run, no permission), with why."""
    prefix = f"{checkpoint.name}/" if checkpoint.folder else ""
    return {
        name.removeprefix(prefix).rpartition("/")[2]: why
        for name, why in ws.skipped
        if name.startswith(prefix) and (part_of(name) or holds_weights(name))
    }


def present(ws: Workspace, checkpoint: Checkpoint, flaws: Iterable[Flaw]) -> Iterator[Flaw]:
    """Flaws without those that call a file missing which is there and may not be read; that is told instead."""
    skipped = skipped_in(ws, checkpoint)
    for flaw in flaws:
        if flaw.key != "checkpoint.missing_shard" or flaw.member.rpartition("/")[2] not in skipped:
            yield flaw
    for name, why in skipped.items():
        yield Flaw("checkpoint.unreadable", f"{name} was not read: {why}", True, None, name, "unknown")
