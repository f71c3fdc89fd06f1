"""What this machine says when it is asked: the checks of GPUs, kernel, host and scheduler, variables, packages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..calls import guarded
from ..tool import all_tools
from ..workspace import Workspace

TOOLS = ("gpu_status", "xid_errors", "host_health", "slurm_job", "ib_status", "package_conflicts")
SECONDS = 60.0  # for each of them
VARIABLES = re.compile(
    r"^(?:CUDA|NVIDIA|NCCL|TORCH|PYTORCH|GLOO|UCX|OMP|MKL|SLURM|HIP|ROCR|RCCL|NVTE|TRITON|TOKENIZERS|VLLM|HF_HOME|"
    r"(?:LOCAL_|GROUP_|ROLE_)?RANK$|(?:LOCAL_)?WORLD_SIZE$|MASTER_|LD_LIBRARY_PATH$|PYTHONPATH$|VIRTUAL_ENV$|"
    r"CONDA_PREFIX$)"
)


def asked(ws: Workspace, tell: Callable[[str], None]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the checks of the machine answer; a bug in one costs its answer, not the bundle."""
    for name in TOOLS:
        tell(name.replace("_", "-"))
        result, _ = guarded(all_tools()[name], ws, {}, SECONDS)
        told = [e.as_dict() for e in result.evidence]
        yield name, {"tool": name, "outcome": result.outcome, "summary": result.summary, "text": result.text,
                     "evidence": told}  # fmt: skip


def variables() -> str:
    """Telling variables of the shell that collects, one a line."""
    return "".join(f"{k}={v}\n" for k, v in sorted(os.environ.items()) if VARIABLES.search(k))


def packages(ws: Workspace) -> str:
    """Versions in the environment of the named processes, else of our own interpreter; the first line says which."""
    from ..reading.packages_installed import listing

    told = [str(p) for p in ws.pids] or [sys.prefix]
    found = listing(ws.shell([sys.executable, "-I", "-m", "traindoctor.agent.probes.packages", *told], 20.0).stdout)
    whose = "the named processes" if ws.pids else "the environment that doctor runs in, which may not be the job's"
    return f"# {whose}\n" + "".join(f"{p.name}=={p.version}\n" for p in found.packages)
