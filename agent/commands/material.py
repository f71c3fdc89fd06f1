"""From paths on the command line to a workspace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..shell import Shell
    from ..workspace import Workspace

STDIN = "-"


def workspace(
    run: list[str] | None,
    good: list[str] | None = None,
    also: list[str] | None = None,
    question: str = "",
    pids: list[int] | None = None,
    live: bool | None = None,
    shell: Shell | None = None,
    may_be_empty: bool = False,
    ray: str | None = None,
) -> Workspace:
    """A workspace over the named paths (this folder where none is named).

    Args:
        live: this machine itself is asked about, so that no file is needed; False: never; None: where the run was
            made here.
        shell: runs commands in place of the usual one.
        may_be_empty: no file is needed either, though nothing is asked of this machine.
        ray: address of a Ray cluster whose workers read the logs; without one that of DOCTOR_RAY, if it is set.

    Raises:
        UsageError: a path does not exist, or standard input cannot be read (twice).
        NothingReadable: no file in any role.
    """
    from ..nodes.ray_passes import spread_over
    from ..workspace import Workspace

    names = run or ["."]
    if STDIN in names:
        _check_stdin([*names, *(good or [])].count(STDIN))
    made = Workspace(
        [_path(name) for name in names],
        good=[_path(name) for name in good or []],
        also=[_existing(name) for name in also or []],
        question=question,
        live=True if live or pids else live,
        shell=shell,
        pids=tuple(pids or ()),
        may_be_empty=bool(live or pids or may_be_empty),
    )
    spread_over(made, ray)
    return made


def _path(name: str) -> Path:
    return Path(name) if name == STDIN else _existing(name)


def _existing(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.exists():
        raise UsageError(f"no such path: {name}", "name a folder, a file, or - for standard input")
    return path


def _check_stdin(times: int) -> None:
    if times > 1:
        raise UsageError("standard input can be read once", "name `-` once")
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("standard input is closed", "pipe a log into it, or name a path")
    if sys.stdin.isatty():
        sys.stderr.write("doctor: reading the log from the terminal; end it with Ctrl-D\n")
