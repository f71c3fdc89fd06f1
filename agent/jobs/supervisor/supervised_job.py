"""One supervised attempt at a job: what the loop, its observers and the triage know about it in common."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shlex
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...safety.fences import one_line


@dataclass
class Job:
    """A started command. Times: `began` is `time.time()`, for people; durations are measured by `time.monotonic()`."""

    argv: list[str]
    run: Path  # where the reports go
    place: Path  # the folder of this attempt: RUN/doctor-run/try_N
    pid: int  # the command's main process
    began: float
    console: Path  # what the job writes: console.log, or rank_N.log where every rank has a supervisor of its own
    rank: int | None = None
    hang_after: float = 600.0  # seconds; 0: never
    environ: dict[str, str] = field(default_factory=dict)  # the variables that were set for the job


# ----------
# What was asked for on the command line of `doctor run`.


@dataclass
class Wishes:
    """Options of a supervised run; `say` is how it speaks."""

    run: str = ""
    restart: int = 0
    resume: str = ""
    hang_after: float = 600.0
    kill_on_hang: bool = False
    triage: bool = True
    leave: list[str] = field(default_factory=list)
    quiet: bool = False
    notify: list[str] = field(default_factory=list)
    seconds: float = 60.0
    also: list[str] = field(default_factory=list)


class Voice:
    """Words of doctor: on standard error alone, a line each, never waited for longer than a second."""

    def __init__(self, quiet: bool = False, silent: bool = False) -> None:
        self.quiet, self._silent = quiet, silent
        self.raw = False  # the terminal needs carriage returns

    def __call__(self, line: str) -> None:
        """Tell a line that matters."""
        text = f"doctor: {one_line(line)}" + ("\r\n" if self.raw else "\n")
        self._write(text.encode("utf-8", "replace"))

    def aside(self, line: str) -> None:
        """Tell a line that --quiet leaves out."""
        if not self.quiet:
            self(line)

    def _write(self, data: bytes) -> None:
        if self._silent:
            return
        with contextlib.suppress(OSError, ValueError):
            ready = select.select([], [2], [], 1.0)[1]
            if ready:
                os.write(2, data)


# ----------
# Whether a job is started again, and how: only as the report of its last attempt advises.

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


# ----------
# Variables that cost a job nothing and help later: set only where nobody else did, each said.
#
# The recorder of collectives: from torch 2.9 on it reads TORCH_FR_*, and the older TORCH_NCCL_* with a line of
# warning in each rank, so that never both are set; before, it knows the TORCH_NCCL_* alone, and records nothing
# unless a size is given. Where the torch of a job cannot be found the new names are set, which an older one does not
# notice. torchrun takes every option from PET_*, and the command line stands above them (seen with torch 2.13).

_ENVIRONMENT_LAUNCHERS = {"torchrun": "torchrun", "accelerate": "torchrun", "deepspeed": "launcher", "srun": "srun",
              "mpirun": "launcher", "mpiexec": "launcher", "horovodrun": "launcher"}  # fmt: skip
_TORCHRUN_MODULES = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
_OWN_LOGS = re.compile(r"--(?:log[-_]dir|tee|redirects)(?:=.*)?|-[rt]\d*")
_SHARED = {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "wekafs", "cifs", "smb3", "fuse.ceph", "fuse.juicefs",
           "fuse.glusterfs", "pvfs2", "panfs", "fuse.seaweedfs", "virtiofs"}  # fmt: skip
_RENAMED_IN = (2, 9)  # the torch from which only the new names are used here; the old ones work everywhere


@dataclass(frozen=True)
class Surroundings:
    """What decides which variables fit a command."""

    launcher: str  # "torchrun", "srun", "launcher" or "" for a plain program
    place: Path
    terminal: bool  # the job's output is a terminal
    reached: bool  # the folder is there for every process of the job, on other hosts too
    old_torch: bool
    own_logs: bool  # the command line settles torchrun's logs
    many: bool  # one of several supervisors of the same attempt


@dataclass(frozen=True)
class Variable:
    """One variable; `also` are other spellings of it, which a user may have set instead."""

    name: str
    value: Callable[[Surroundings], str]
    fits: Callable[[Surroundings], bool] = lambda _: True
    also: tuple[str, ...] = ()


def _flight(s: Surroundings) -> str:
    return str(s.place / "flight" / "nccl_trace_rank_")


VARIABLES = (
    Variable("PYTHONFAULTHANDLER", lambda _: "1"),
    Variable("PYTHONUNBUFFERED", lambda _: "1"),
    Variable("NCCL_DEBUG", lambda _: "WARN"),
    Variable("TORCH_NCCL_DUMP_ON_TIMEOUT", lambda _: "1"),
    Variable("TORCH_FR_BUFFER_SIZE", lambda _: "2000", lambda s: not s.old_torch, ("TORCH_NCCL_TRACE_BUFFER_SIZE",)),
    Variable("TORCH_NCCL_TRACE_BUFFER_SIZE", lambda _: "2000", lambda s: s.old_torch, ("TORCH_FR_BUFFER_SIZE",)),
    Variable("TORCH_FR_DUMP_TEMP_FILE", _flight, lambda s: s.reached and not s.old_torch,
             ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE",)),
    Variable("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", _flight, lambda s: s.reached and s.old_torch,
             ("TORCH_FR_DUMP_TEMP_FILE",)),
    Variable("TORCHELASTIC_ERROR_FILE", lambda s: str(s.place / "error.json"),
             lambda s: not s.launcher and not s.many),
    Variable("PET_LOG_DIR", lambda s: str(s.place / "ranks"),
             lambda s: s.launcher == "torchrun" and not s.own_logs and not s.terminal),
    Variable("PET_TEE", lambda _: "3", lambda s: s.launcher == "torchrun" and not s.own_logs and not s.terminal),
    Variable("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", lambda _: "[rank${rank}]:",
             lambda s: s.launcher == "torchrun" and not s.own_logs and not s.terminal),
)  # fmt: skip


def additions(
    surroundings: Surroundings, environ: Mapping[str, str], leave: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """The variables to set, and those that were left because they are set or because `leave` names them."""
    wanted = [v for v in VARIABLES if v.fits(surroundings)]
    left = [v.name for v in wanted
            if v.name in leave or "all" in leave or v.name in environ or any(a in environ for a in v.also)]  # fmt: skip
    return {v.name: v.value(surroundings) for v in wanted if v.name not in left}, left


def launcher(argv: Sequence[str]) -> str:
    """Which launcher a command is: one that starts the ranks itself, as far as its name tells."""
    name = Path(argv[0]).name
    if name in _ENVIRONMENT_LAUNCHERS:
        return _ENVIRONMENT_LAUNCHERS[name]
    if name.startswith("python") and any(
        flag == "-m" and module in _TORCHRUN_MODULES for flag, module in pairwise(argv)
    ):
        return "torchrun"
    return ""


def own_logs(argv: Sequence[str]) -> bool:
    """Whether a command line settles where torchrun's logs go: then they stay there."""
    return any(_OWN_LOGS.fullmatch(word) for word in argv)


def is_shared(folder: Path) -> bool:
    """Whether a folder lies on a file system that other hosts may see too."""
    best, kind = "", ""
    try:
        with Path("/proc/self/mounts").open(encoding="utf-8", errors="replace") as f:
            for line in f:
                _device, point, fs, *_ = line.split()
                point = point.replace("\\040", " ")
                if str(folder).startswith(point.rstrip("/") + "/") and len(point) >= len(best):
                    best, kind = point, fs
    except (OSError, ValueError):
        return False
    return kind in _SHARED


def old_torch(file: str, environ: Mapping[str, str]) -> bool:
    """Whether the torch that a command will use is known to be one with the old names alone.

    It is looked for beside the command (`torchrun`, `.venv/bin/python`), then in the environment that is active, then
    beside the first `python` of the path: a shell script or a launcher stands in none of them itself.
    """
    first = shutil.which("python", path=environ.get("PATH", "")) or shutil.which(
        "python3", path=environ.get("PATH", "")
    )
    homes = [str(Path(file).absolute().parent.parent), environ.get("VIRTUAL_ENV"), environ.get("CONDA_PREFIX")]
    homes.append(str(Path(first).absolute().parent.parent) if first else None)
    for home in filter(None, homes):
        for found in Path(home).glob("lib/python3*/*-packages/torch-*.dist-info"):
            if numbers := re.match(r"torch-(\d+)\.(\d+)", found.name):
                return (int(numbers[1]), int(numbers[2])) < _RENAMED_IN
    return False
