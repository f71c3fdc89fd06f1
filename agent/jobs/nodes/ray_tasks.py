"""What Ray workers do for us. Shipped by value: standard library alone, but for what needs doctor there and says so."""

from __future__ import annotations

import os
import re
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from .engine import Ended, ended

LOGS = Path("/tmp/ray/session_latest/logs")  # where Ray puts them unless told otherwise


def run(argv: list[str], timeout: float, stdin: bytes, limit: int) -> Ended:
    """A program on this node."""
    return ended(argv, timeout, stdin, limit)


def log_folder() -> Path:
    """Where this cluster's session logs on this node: beside what this very worker prints."""
    try:
        own = Path(os.readlink("/proc/self/fd/1"))  # noqa: PTH115 - not resolved further
    except OSError:
        return LOGS
    return own.parent if own.name.startswith("worker-") else LOGS


def job_logs(shape: str, limit: int) -> list[tuple[str, bytes, int]]:
    """Logs of the session whose names the pattern matches: name, the last bytes, the size; the newest first, until
    the limit is used up. Every node of one machine sees the same folder."""
    found = []
    for path in log_folder().iterdir():
        if re.search(shape, path.name) and path.is_file():
            status = path.stat()
            found.append((status.st_mtime, path, status.st_size))
    kept = []
    for _, path, size in sorted(found, reverse=True):
        with path.open("rb") as file:
            file.seek(max(size - limit, 0))
            data = file.read(min(limit, size))
        limit -= len(data)
        kept.append((path.name, data, size))
    return kept


def read_logs(version: str, order: Any) -> Any:
    """A batch of the log pass. Needs doctor on the node.

    Raises:
        RuntimeError: it is not there, or another version.
    """
    try:
        here = metadata.version("traindoctor")
        reading = import_module("traindoctor.agent.reading.scan.logpass")
    except (ImportError, metadata.PackageNotFoundError):
        raise RuntimeError("doctor is not installed there") from None
    if here != version:
        raise RuntimeError(f"doctor is {here} there and {version} here")
    return reading.read_batch(order)
