"""An older checkpoint made the one to resume from: a new folder with it and the file that names it, nothing else."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from ...core.errors import UsageError
from ...core.own_files import KNOWLEDGE, read_table
from ...reading.checkpoints.checks.checks_verdict import Depth, Verdict, first_trouble, judged
from ...reading.checkpoints.layouts import Checkpoint, checkpoints, trackers
from ...reading.run.workspace import Workspace
from .copying import Progress, beside, copy_bytes, publish, refuse_existing, refuse_full, word

# ----------
# The checkpoints of one folder that training could go on from, and the small files that point at one of them.


_LINKED_OUT = "link"


def saves(ws: Workspace, folder: Path) -> list[Checkpoint]:
    """The numbered saves of the one series that lies in a folder, oldest first.

    Raises:
        UsageError: there is none, or there are several series.
    """
    held = [c for c in checkpoints(ws) if c.step is not None and c.folder]
    if not held:
        away = [name for name, why in ws.skipped if _LINKED_OUT in why]
        hint = f"{away[0]} is a link out of it: name the folder that it leads to" if away else ""
        unnumbered = [c.name for c in checkpoints(ws)]
        if unnumbered and not hint:
            hint = f"{unnumbered[0]} bears no step; name the folder that holds several saves"
        raise UsageError(f"no numbered checkpoints in {folder}", hint)
    series = sorted({c.folder for c in held})
    if len(series) > 1:
        named = ", ".join(str(folder / s) for s in series[:6])
        raise UsageError(f"{len(series)} series of checkpoints in {folder}", f"name one of {named}")
    return held


def parts_of(ws: Workspace, checkpoint: Checkpoint, folder: Path) -> dict[str, dict[str, Path]]:
    """What a save is made of: names in the new folder, with the files below each (an empty name: the file itself).

    Files of a save that are not read by any check (code, logs beside the weights) belong to it too.
    """
    own = folder / checkpoint.name
    if own.is_dir():
        below = [f for f in sorted(own.rglob("*")) if f.is_file()]
        found = {own.name: {f.relative_to(own).as_posix(): f for f in below}}
    else:
        found = {f.path.name: {"": f.path} for f in checkpoint.all}
    return {**found, **_beside(ws, checkpoint)}


def _beside(ws: Workspace, checkpoint: Checkpoint) -> dict[str, dict[str, Path]]:
    """slime keeps the position in the prompts beside the saves, as rollout/global_dataset_state_dict_<step>.pt."""
    base = PurePosixPath(checkpoint.folder)
    wanted = str(base / "rollout" / f"global_dataset_state_dict_{checkpoint.step}.pt")
    file = next((f for f in ws.files if f.name == wanted), None)
    return {"rollout": {file.path.name: file.path}} if file else {}


def tracked(ws: Workspace, checkpoint: Checkpoint) -> dict[str, str]:
    """The tracker files of a framework, as they name this save: by their names, with what stands in them."""
    own = PurePosixPath(checkpoint.name).name
    here = {t.file.path.name for t in trackers(ws) if t.folder == checkpoint.folder}
    if checkpoint.framework == "deepspeed" and own.startswith("global_step"):
        here.add("latest")
    elif own.startswith("iter_" if checkpoint.framework.startswith("megatron") else "global_step_"):  # verl's
        here.add("latest_checkpointed_iteration.txt")
    told = {"latest_checkpointed_iteration.txt": str(checkpoint.step)}
    return {name: told.get(name, own) for name in sorted(here - {"latest_universal"})}


# ----------
# How each framework goes on from a checkpoint, in commands with the real paths, each word quoted where it stands.

TABLE = KNOWLEDGE / "resume.yaml"
_CALL = re.compile(r"\w\(")  # a line of Python, where a path is a string


def resume_commands(framework: str, path: Path, step: int | None) -> list[str]:
    """Commands or lines of code that go on from a checkpoint; none where the framework is not known.

    Args:
        path: the checkpoint; its folder is what frameworks that keep a tracker are pointed at.
    """
    found = []
    for template in _templates().get(framework, []):
        if template.startswith("doctor ") or (step is None and "{step}" in template):
            continue
        spelled = (lambda p: repr(str(p))) if _CALL.search(template) else word
        found.append(
            template.format(path=spelled(path), folder=spelled(path.parent), name=spelled(Path(path.name)), step=step)
        )
    return found


@cache
def _templates() -> dict[str, list[str]]:
    table: Any = read_table(TABLE) if TABLE.is_file() else {}
    return {name: [str(row) for row in rows] for name, rows in table.items() if isinstance(rows, list)}


# ----------

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


# ----------
# A host file without some of its nodes: DeepSpeed's, MPI's, or a list as Slurm writes it.

_MOST = 4 << 20
_NODES = 100_000
_FIRST = re.compile(r"^(\s*)(?:[\w.-]+@)?([\w.-]+(?:\[[\d,-]+\][\w.-]*)?(?:,[\w.-]+(?:\[[\d,-]+\][\w.-]*)?)*)")
_ITEM = re.compile(r"([\w.-]+?)\[([\d,-]+)\]([\w.-]*)|([\w.-]+)")
_SLOTS = re.compile(r"\bslots\s*=\s*(\d+)|^[\w.-]+:(\d+)\s*$")


@dataclass(slots=True)
class Hosts:
    """What was written: nodes left out, nodes left and their slots where the file counts them."""

    output: Path
    left_out: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    slots: int = 0


def without(hostfile: Path, nodes: list[str], output: Path) -> Hosts:
    """Write a host file without some nodes; every other line is the same bytes.

    Raises:
        UsageError: either end does not fit, a node is not in it, or none would be left.
    """
    refuse_existing(hostfile, output)
    if not hostfile.is_file() or hostfile.stat().st_size > _MOST:
        raise UsageError(f"{hostfile} is no host file")
    done = Hosts(output)
    try:
        data = hostfile.read_bytes()
        lines = [_without(line, set(nodes), done) for line in data.splitlines(keepends=True)]
        if missing := [n for n in nodes if n not in done.left_out]:
            near = [n for n in done.left if n.split(".")[0] == missing[0].split(".")[0]]
            hint = f"it names {near[0]}" if near else f"it names {', '.join(done.left[:8])}"
            raise UsageError(f"{missing[0]} is not in {hostfile}", hint)
        if not done.left:
            raise UsageError(f"no node of {hostfile} would be left", "nothing was written")
        with beside(output) as folder:
            made = folder / "made"
            with made.open("xb") as f:
                f.writelines(lines)
                f.flush()
                os.fsync(f.fileno())
            made.chmod(hostfile.stat().st_mode & 0o666)
            publish(made, output)
    except OSError as e:
        raise UsageError(f"{output} was not written: {e.strerror or e}") from None
    return done


def _without(line: bytes, nodes: set[str], done: Hosts) -> bytes:
    """A line as it is, shortened where it lists several nodes, or nothing."""
    text = line.decode("utf-8", "surrogateescape")
    m = None if text.lstrip().startswith("#") else _FIRST.match(text)
    if m is None:
        return line
    kept: list[str] = []
    changed = False
    for item in _ITEM.finditer(m[2]):
        names = _expanded(item)
        stay = [n for n in names if n not in nodes]
        done.left_out += [n for n in names if n in nodes]
        done.left += stay
        changed = changed or len(stay) < len(names)
        kept += [item[0]] if len(stay) == len(names) else stay
    if kept and (found := _SLOTS.search(text)):
        done.slots += int(found[1] or found[2])
    if not changed:
        return line
    return (text[: m.start(2)] + ",".join(kept) + text[m.end(2) :]).encode("utf-8", "surrogateescape") if kept else b""


def _expanded(item: re.Match[str]) -> list[str]:
    """`n[01-03,7]` as names.

    Raises:
        UsageError: it stands for far too many.
    """
    if item[4]:
        return [item[4]]
    names: list[str] = []
    for part in item[2].split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise UsageError(f"{item[0]} is no list of nodes")
        span = range(int(first), int(last or first) + 1)
        if len(names) + len(span) > _NODES:
            raise UsageError(f"{item[0]} stands for more than {_NODES} nodes")
        names += [f"{item[1]}{n:0{len(first)}d}{item[3]}" for n in span]
    return names
