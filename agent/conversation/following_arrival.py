"""Whether a run that has not begun yet is there: its folder, with a file in it."""

from __future__ import annotations

import stat
from pathlib import Path

from ..reading.discover import walk


def arrived(roots: list[Path]) -> bool:
    """Whether each of the named folders and files is there and none of the folders is empty. May hang as a disk may."""
    return all(map(_there, roots))


def _there(root: Path) -> bool:
    try:
        if not stat.S_ISDIR(root.stat().st_mode):
            return True
        return next(iter(walk(root, [root.resolve()], lambda _name, _why: None)), None) is not None
    except (OSError, ValueError, RuntimeError):
        return False
