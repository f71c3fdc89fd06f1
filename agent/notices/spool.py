"""Notices on disk until they are sent: a folder of this user alone, one file a notice, replaced in one step.

A notice is a dict: `made` (seconds since 1970), `subject`, `text`, `report`, and `left`: by the URL of each target that
it has not reached yet, `{"tries": n, "due": when}`.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

MOST = 500  # notices; the oldest give way
KEPT = 24 * 3600.0  # seconds that a notice is tried for
_LARGEST = 1 << 20
LOG_LIMIT = 64 << 10


def spool_folder() -> Path:
    """The folder, made where it is missing.

    Raises:
        OSError: it cannot be made, or another user's folder stands there.
    """
    from ..store import usable_state

    folder = usable_state()[0] / "notices"
    folder.mkdir(mode=0o700, exist_ok=True, parents=True)
    info = folder.lstat()
    if info.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
        raise PermissionError(13, "belongs to someone else", str(folder))
    if info.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def put(folder: Path, notice: dict[str, Any]) -> None:
    """Keep a notice to be sent.

    Raises:
        OSError: the disk is full, or the folder is gone.
    """
    name = f"{time.time_ns():020d}-{token_hex(4)}.json"
    replace(folder / name, notice)
    for path in waiting(folder)[:-MOST]:
        path.unlink(missing_ok=True)


def replace(path: Path, data: Any) -> None:
    """Write JSON whole or not at all, readable for its user alone.

    Raises:
        OSError: it cannot be written; what stood there still stands.
    """
    beside = path.with_name(f".{path.name}.{token_hex(6)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
            json.dump(data, f)
        beside.replace(path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def waiting(folder: Path) -> list[Path]:
    """Notices that are not sent yet, the oldest first."""
    return sorted(p for p in folder.glob("[0-9]*.json"))


def read(path: Path) -> Any:
    """What a file of the folder holds; None where it is gone, damaged or too large."""
    try:
        if path.stat().st_size > _LARGEST:
            return None
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[bool]:
    """Hold a lock file, waiting at most so long; says whether it is held. It ends with its process."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() >= end:
                    yield False
                    return
                time.sleep(0.005)
            else:
                yield True
                return
    finally:
        os.close(fd)


def log(folder: Path, line: str) -> None:
    """A line of `sender.log`, for whoever wonders why nothing came; it never holds a URL."""
    path = folder / "sender.log"
    with suppress(OSError):
        if path.exists() and path.stat().st_size > LOG_LIMIT:
            path.replace(folder / "sender.log.1")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as f:
            f.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {line}\n")
