"""From paths on the command line to a workspace. Standard input is spooled to a file that goes away again."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..workspace import Workspace

STDIN = "-"


@contextmanager
def workspace(
    run: list[str] | None,
    good: list[str] | None = None,
    also: list[str] | None = None,
    pids: list[int] | None = None,
    question: str = "",
) -> Iterator[Workspace]:
    """A workspace over the named paths (this folder where none is named).

    Raises:
        UsageError: a path does not exist, or `-` is named twice.
        NothingReadable: no file in any role.
    """
    from ..workspace import Workspace

    names = run or ["."]
    if names.count(STDIN) > 1:
        raise UsageError("standard input can be read once", "name `-` once")
    with tempfile.TemporaryDirectory(prefix="doctor-stdin-") as spool:
        roots = [_spooled(Path(spool)) if name == STDIN else _existing(name) for name in names]
        yield Workspace(
            roots,
            good=[_existing(name) for name in good or []],
            also=[_existing(name) for name in also or []],
            pids=pids or [],
            question=question,
        )


def _existing(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.exists():
        raise UsageError(f"no such path: {name}", "name a folder, a file, or - for standard input")
    return path


def _spooled(folder: Path) -> Path:
    path = folder / "stdin.log"
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("standard input is closed", "pipe a log into it, or name a path")
    if sys.stdin.isatty():
        sys.stderr.write("doctor: reading the log from the terminal; end it with Ctrl-D\n")
    with path.open("wb") as out:
        shutil.copyfileobj(sys.stdin.buffer, out, 1 << 20)
    return path
