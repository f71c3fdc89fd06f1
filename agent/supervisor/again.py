"""Whether a job is started again, and how: only as the report of its last attempt advises."""

from __future__ import annotations

import json
import os
import shlex
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOLE = "{checkpoint}"
PAUSES = (5.0, 15.0, 45.0, 120.0)  # seconds before the first restart, the second, ...; the last one from then on
LONGEST = 64 << 20
_SAME = ".last-cause.json"  # beside the attempts: what the attempt before failed of
_LAUNCHERS = ("srun",)


@dataclass(frozen=True, slots=True)
class Start:
    """Start this now, with these variables set as well. `why` says what was decided, in a line."""

    argv: list[str]
    environ: dict[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """Start nothing; `why` in a line."""

    why: str


def next_start(
    report: Path, argv: Sequence[str], resume: str, tries_left: int, wait: Callable[[float], bool],
    tell: Callable[[str], None] = lambda _: None, left_out: str = "",
) -> Start | Stop:  # fmt: skip
    """What to do after an attempt that failed. Where it is to be started again, the pause before that is over.

    Args:
        report: `doctor-report.json` of that attempt, in the folder of the run.
        argv: the command as the user gave it, without what was added for an earlier restart.
        resume: `--resume`: arguments to be added, with `{checkpoint}` where its path belongs.
        tries_left: how many restarts are still allowed, this one among them.
        wait: waits so many seconds; false where we are asked to end meanwhile.
        left_out: nodes that an earlier restart left out, with commas between them: they stay out.
        tell: is told what will be done, before the pause.
    """
    if tries_left < 1:
        return Stop("no restart is left")
    found = _json(report)
    restart = found.get("restart") if isinstance(found.get("restart"), dict) else None
    if restart is None:
        return Stop("the report gives no advice on restarting")
    advice = restart.get("advice")
    if advice == "fix_first":
        return Stop("the report says that it fails again unless it is repaired first")
    if advice not in ("restart", "restart_excluding"):
        return Stop("the report advises against it")
    attempt, step = _attempt(report.parent)
    cause = str((found.get("root_cause") or {}).get("id") or "")
    before = _json(report.parent / "doctor-run" / _SAME)
    if before.get("cause") == cause and int(before.get("attempt") or 0) == attempt - 1 and not _further(before, step):
        return Stop(f"attempt {attempt} failed of the same cause as the one before, {cause}, without a new step")
    nodes = [str(n) for n in restart.get("exclude") or [] if _is_name(str(n))] if advice == "restart_excluding" else []
    nodes = list(dict.fromkeys([*filter(None, left_out.split(",")), *nodes]))
    command, said, stop = _without(list(argv), nodes)
    if stop:
        return Stop(stop)
    environ = {"DOCTOR_ATTEMPT": str(attempt + 1), "DOCTOR_EXCLUDE": ",".join(nodes)}
    checkpoint = _checkpoint(restart, report.parent, found.get("runs"))
    command, words = _resumed(command, resume, checkpoint)
    if checkpoint:
        environ["DOCTOR_CHECKPOINT"] = checkpoint
    if isinstance(words, Stop):
        return words
    _keep(report.parent / "doctor-run" / _SAME, {"cause": cause, "attempt": attempt, "step": step})
    pause = PAUSES[min(attempt, len(PAUSES)) - 1] if attempt > 0 else PAUSES[0]
    why = "; ".join(w for w in (f"the report advises it ({cause})", said, words, f"in {pause:.0f} s") if w)
    tell(f"will be started again: {why}")
    if not wait(pause):
        return Stop("asked to end")
    return Start(command, environ, why)


def _resumed(argv: list[str], resume: str, checkpoint: str) -> tuple[list[str], str | Stop]:
    """The command with the checkpoint in its places, and what that means in words."""
    if any(HOLE in word for word in argv):
        if not checkpoint:
            return argv, Stop(f"the command wants a {HOLE}, and the report names none that is whole")
        return [word.replace(HOLE, checkpoint) for word in argv], f"from {checkpoint}"
    if not resume:
        return argv, "the command is unchanged: the job must find its checkpoint itself"
    added = shlex.split(resume)
    if any(HOLE in word for word in added):
        if not checkpoint:
            return argv, "from the beginning: the report names no checkpoint that is whole"
        added = [word.replace(HOLE, checkpoint) for word in added]
    return [*argv, *added], f"from {checkpoint}" if checkpoint else f"with {' '.join(added)}"


def _without(argv: list[str], nodes: list[str]) -> tuple[list[str], str, str]:
    """The command without some nodes, what was done in words, and why it cannot be started again, if it cannot."""
    if not nodes:
        return argv, "", ""
    if Path(argv[0]).name in _LAUNCHERS:
        kept = [w for w in argv[1:] if not w.startswith("--exclude=")]
        out = [w.partition("=")[2] for w in argv[1:] if w.startswith("--exclude=")]
        names = ",".join(dict.fromkeys([*(n for o in out for n in o.split(",")), *nodes]))
        return [argv[0], f"--exclude={names}", *kept], f"without {names}", ""
    here = {socket.gethostname(), socket.gethostname().partition(".")[0], os.environ.get("SLURMD_NODENAME", "")}
    if here & {*nodes, *(n.partition(".")[0] for n in nodes)}:
        return argv, "", "the fault is of this very node: start it on another one"
    return argv, f"{', '.join(nodes)} must be left out by whoever chooses the nodes (DOCTOR_EXCLUDE)", ""


def _checkpoint(restart: dict[str, Any], run: Path, runs: object) -> str:
    """The checkpoint to go on from, as an absolute path where it is there; those read as broken are left out."""
    choices = [c for c in restart.get("choices") or [] if isinstance(c, dict) and c.get("clean") is not False]
    named = [str(restart.get("from_checkpoint") or ""), *(str(c.get("checkpoint") or "") for c in choices)]
    for name in filter(None, named):
        for place in (Path(in_full(name, runs)), Path(name), run / name, Path(name.partition("/")[2])):
            if place != Path() and place.exists():
                return str(place.absolute())
    return ""


def in_full(name: str, runs: object) -> str:
    """A path of a report, `r3/checkpoint-10`, with the folder in place of the mark; as it is where that is no mark.

    Args:
        runs: of the report: what was read, each with its mark and root.
    """
    mark, _, rest = name.partition("/")
    for one in runs if isinstance(runs, list) else []:
        if isinstance(one, dict) and one.get("id") == mark and rest and one.get("root"):
            return str(Path(str(one["root"])) / rest)
    return name


def _attempt(run: Path) -> tuple[int, int | None]:
    """The number of the last attempt, and the last step it was seen to reach."""
    numbers = [int(p.name[4:]) for p in (run / "doctor-run").glob("try_*") if p.name[4:].isdigit()]
    last = max(numbers, default=0)
    steps = _json(run / "doctor-run" / f"try_{last}" / "record.json").get("steps")
    step = steps.get("last") if isinstance(steps, dict) else None
    return last, step if isinstance(step, int) else None


def _further(before: dict[str, Any], step: int | None) -> bool:
    then = before.get("step")
    return isinstance(step, int) and (not isinstance(then, int) or step > then)


def _is_name(node: str) -> bool:
    return bool(node) and len(node) < 256 and all(c.isalnum() or c in "-._" for c in node) and node[0].isalnum()


def _json(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as f:
            data = json.loads(f.read(LONGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _keep(path: Path, data: dict[str, Any]) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_text(json.dumps(data), encoding="utf-8")
        beside.replace(path)
    except OSError:
        return
