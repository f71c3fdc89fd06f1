"""An older checkpoint made the one to resume from: a new folder with it and the file that names it, nothing else."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from ..reading.checkpoints.checks_verdict import Depth, Verdict, first_trouble, judged
from ..reading.checkpoints.layouts import Checkpoint
from ..workspace import Workspace
from .copying import Progress, beside, copy_bytes, publish, refuse_existing, refuse_full
from .resume import resume_commands
from .saves import parts_of, saves, tracked

NOT_LOOKED_AT = "only its structure was looked at"  # as the verdict on a checkpoint says it


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which checkpoint is wanted: of this step, or the newest before one. Both none: the newest that is clean."""

    step: int | None = None
    before: int | None = None
    depth: Depth = "full"


@dataclass(slots=True)
class RolledBack:
    """What was made. `passed_over`: why each newer checkpoint was not taken; `notes`: what a person must know."""

    output: Path
    checkpoint: str
    step: int | None
    framework: str
    why: str
    copied: bool
    passed_over: list[str] = field(default_factory=list)
    trackers: dict[str, str] = field(default_factory=dict)
    resume: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def roll_back(folder: Path, output: Path, wanted: Wanted, copy: bool, progress: Progress) -> RolledBack:
    """Make `output` with one sound checkpoint of a folder and what its framework needs to resume from exactly there.

    The old folder is only read. The output appears whole or not at all. By default it holds links to the old files.

    Raises:
        UsageError: either end does not fit, no checkpoint is as wanted, or there is no room.
    """
    refuse_existing(folder, output)
    if not folder.is_dir():
        raise UsageError(f"{folder} is one file", "name the folder that holds the checkpoints")
    try:
        ws = Workspace([folder], live=False, may_be_empty=True)
        chosen, passed = _choose(ws, saves(ws, folder), wanted)
        made = _made(ws, chosen, folder, output, copy, progress)
    except OSError as e:
        raise UsageError(f"{output} was not written: {e.strerror or e}") from None
    made.passed_over = passed
    return made


def _choose(ws: Workspace, held: list[Checkpoint], wanted: Wanted) -> tuple[Verdict, list[str]]:
    """The newest one that is as wanted, and why those above it are not.

    Raises:
        UsageError: none is.
    """
    if wanted.step is not None:
        return _of_step(ws, held, wanted), []
    trouble = first_trouble(ws) if wanted.before is None else None
    limit = wanted.before if wanted.before is not None else trouble.step if trouble else None
    at = f"{trouble.key} at step {trouble.step}" if trouble else f"step {limit}"
    passed: list[str] = []
    for checkpoint in reversed(held):
        if limit is not None and (checkpoint.step or 0) >= limit:
            passed.append(f"{checkpoint.name}: saved at step {checkpoint.step}, not before {at}")
            continue
        verdict = judged(ws, checkpoint, wanted.depth)
        if _good(verdict, wanted.depth):
            return verdict, passed
        passed.append(f"{checkpoint.name}: {verdict.word}, {verdict.why}")
    shown = "; ".join(passed[:4]) + (f"; and {len(passed) - 4} more" if len(passed) > 4 else "")
    raise UsageError(f"no checkpoint to go back to: {shown}", "nothing was written")


def _of_step(ws: Workspace, held: list[Checkpoint], wanted: Wanted) -> Verdict:
    checkpoint = next((c for c in reversed(held) if c.step == wanted.step), None)
    if checkpoint is None:
        there = ", ".join(str(c.step) for c in held[-12:])
        raise UsageError(f"no checkpoint of step {wanted.step}", f"there are steps {there}")
    verdict = judged(ws, checkpoint, wanted.depth)
    if verdict.word == "damaged":
        raise UsageError(f"{checkpoint.name} is damaged: {verdict.why}", "leave out --step to find a sound one")
    return verdict


def _good(verdict: Verdict, depth: Depth) -> bool:
    """Clean; where only the structure was looked at, nothing else may be unknown."""
    return verdict.word == "clean" or (depth == "structure" and _whole(verdict))


def _whole(verdict: Verdict) -> bool:
    """Nothing is wrong or unknown but the numbers, which nobody looked at."""
    unknown = [f for f in verdict.flaws if f.weight == "unknown"]
    return verdict.word == "unknown" and bool(unknown) and all(f.text == NOT_LOOKED_AT for f in unknown)


def _why(verdict: Verdict) -> str:
    if _whole(verdict):
        return "whole by names, sizes and structure; its numbers were not read"
    return f"{verdict.word}, {verdict.why}"


def _made(ws: Workspace, verdict: Verdict, folder: Path, output: Path, copy: bool, progress: Progress) -> RolledBack:
    checkpoint = verdict.checkpoint
    parts = parts_of(ws, checkpoint, folder)
    if copy:
        refuse_full(output, sum(f.stat().st_size for files in parts.values() for f in files.values()))
    trackers = tracked(ws, checkpoint)
    with beside(output) as temporary:
        made = temporary / "made"
        made.mkdir()
        made.chmod(folder.stat().st_mode & 0o777 | 0o700)
        for name, files in parts.items():
            if not copy:
                source = next(iter(files.values())) if list(files) == [""] else folder_of(files)
                (made / name).symlink_to(_leading(source, output / name))
                continue
            for inner, file in files.items():
                copy_bytes(file, made / name / inner if inner else made / name, progress)
        for name, text in trackers.items():
            (made / name).write_text(text)
        publish(made, output)
    own = output.absolute() / _name(checkpoint, parts)
    resume = resume_commands(checkpoint.framework, own, checkpoint.step)
    done = RolledBack(
        output, checkpoint.name, checkpoint.step, checkpoint.framework, _why(verdict), copy,
        trackers=trackers, resume=resume or [f"point the option that loads a checkpoint at {own}"],
    )  # fmt: skip
    if not copy:
        done.notes.append(
            "It holds links to the old files: load from it and save elsewhere, as writing through a link changes the "
            "original; --copy makes files of its own."
        )
    return done


def folder_of(files: dict[str, Path]) -> Path:
    """The folder that files with these inner names lie in."""
    inner, path = next(iter(files.items()))
    return path.parents[inner.count("/")]


def _name(checkpoint: Checkpoint, parts: dict[str, dict[str, Path]]) -> str:
    own = Path(checkpoint.name).name
    return own if own in parts else next(iter(parts))


def _leading(source: Path, link: Path) -> str:
    """What a link at its final place holds: relative where both lie below one folder, which may then be moved."""
    target, here = os.path.realpath(source), os.path.realpath(link.parent)
    return target if os.path.commonpath([target, here]) == "/" else os.path.relpath(target, here)
