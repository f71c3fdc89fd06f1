"""A small file read whole, where something else may stand in its place: a pipe that blocks, a device without end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any


class OddFile(ValueError):
    """What stands there is no small file; the message goes on from its name."""


def regular(path: Path, *, follow: bool = True) -> int:
    """A descriptor of a regular file, to be read; opening it never waits.

    Raises:
        OddFile: something else stands there.
        OSError: it cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OddFile("is not a regular file")


def small_file(path: Path, limit: int, *, follow: bool = True) -> tuple[bytes, int]:
    """Content and mode of a regular file of at most `limit` bytes; opening it never waits.

    Args:
        follow: whether the name itself may be a link.

    Raises:
        OddFile: not a regular file, or larger.
        OSError: it cannot be opened or read.
    """
    fd = regular(path, follow=follow)
    try:
        mode = os.fstat(fd).st_mode
        data = bytearray()
        while len(data) <= limit and (block := os.read(fd, limit + 1 - len(data))):
            data += block
    finally:
        os.close(fd)
    if len(data) > limit:
        raise OddFile(f"is larger than {limit} bytes")
    return bytes(data), mode


# ----------
# Where doctor's own things are: its knowledge, a cache that may vanish and a state folder that may not.

KNOWLEDGE = Path(__file__).resolve().parents[2] / "knowledge"


def read_table(path: Path) -> Any:
    """A YAML file of doctor's own as plain data, by libyaml where PyYAML was built with it."""
    import yaml

    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def cache_folder() -> Path:
    """Rebuildable things: compiled patterns and playbooks, the index. `DOCTOR_CACHE` overrides."""
    if named := os.environ.get("DOCTOR_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "traindoctor"


def state_folder() -> Path:
    """Sessions, reports and the user's documents. `DOCTOR_STATE` overrides."""
    if named := os.environ.get("DOCTOR_STATE"):
        return Path(named)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "traindoctor"
