"""How programs of our own are started beside a job: what the job's environment holds for its Python is not for ours."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path

_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)


def python() -> list[str]:
    """Our interpreter, which looks for modules neither in the job's folder nor, unless it has us from there, in its
    PYTHONPATH: a `types.py` or the packages of another version stand there."""
    here = Path(__file__).resolve()
    given = [Path(p).resolve() for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    ours = any(p in here.parents for p in given)
    return [sys.executable, "-P"] if ours else [sys.executable, "-P", "-E"]


def environ() -> dict[str, str]:
    """Our variables without what is loaded into every process of the job."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def lift_limits() -> None:
    """Take the limits that a user set for the job (`ulimit -S`) off a process of ours, as far as is allowed."""
    for kind in _LIMITS:
        with contextlib.suppress(OSError, ValueError):
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (hard, hard))
