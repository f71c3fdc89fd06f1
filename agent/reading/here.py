"""Whether the run was made on this machine, lately: only then what the machine says now is evidence about it."""

from __future__ import annotations

import re
import socket
import time
from typing import TYPE_CHECKING

from .files import RunFile

if TYPE_CHECKING:
    from ..workspace import Workspace

RECENT = 3 * 24 * 3600.0  # seconds since the run last wrote
_HEAD = 256 << 10  # bytes of a log in which hosts are named: launchers and NCCL do so when they start
_NAMELESS = {"localhost", "ubuntu", "debian", "host", "node", "container"}


def runs_here(ws: Workspace) -> bool:
    """The run's logs or file names carry this machine's name, and it wrote within the last three days."""
    name = socket.gethostname().split(".")[0]
    if len(name) < 4 or name.lower() in _NAMELESS:
        return False
    files = [f for f in ws.files if not f.good and f.role in ("log", "capture", "environment") and _is_recent(f)]
    if any(f.host == name for f in files):
        return True
    word = re.compile(rb"(?<![\w.-])" + re.escape(name.encode()) + rb"(?![\w-])")
    return any(word.search(ws.read(f, _HEAD)) for f in files[:64])


def _is_recent(file: RunFile) -> bool:
    try:
        return time.time() - file.path.stat().st_mtime < RECENT
    except OSError:
        return False
