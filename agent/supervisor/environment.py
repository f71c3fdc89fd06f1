"""Variables that cost a job nothing and help later: set only where nobody else did, each said.

The recorder of collectives: from torch 2.9 on it reads TORCH_FR_*, and the older TORCH_NCCL_* with a line of warning in
each rank, so that never both are set; before, it knows the TORCH_NCCL_* alone, and records nothing unless a size is
given. Where the torch of a job cannot be found the new names are set, which an older one does not notice.
torchrun takes every option from PET_*, and the command line stands above them (seen with torch 2.13).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_LAUNCHERS = {"torchrun": "torchrun", "accelerate": "torchrun", "deepspeed": "launcher", "srun": "srun",
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
    if name in _LAUNCHERS:
        return _LAUNCHERS[name]
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
