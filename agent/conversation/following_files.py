"""The files of a running job as `stat` sees them, and what became of them since they were last looked at."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path

from ..reading.discover import walk


@dataclass(frozen=True, slots=True)
class Stand:
    """One file: its size, the inode that bears its name, and when it was written last (seconds since 1970)."""

    path: Path
    size: int
    identity: tuple[int, int]
    written: float


@dataclass(slots=True)
class Changes:
    """Names of files by what became of them; a rotated file has another inode, a cut one has fewer bytes."""

    new: list[str] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    rotated: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any((self.new, self.grown, self.cut, self.rotated, self.gone))

    @property
    def written(self) -> list[str]:
        """Files that have bytes which were not there before."""
        return [*self.new, *self.grown, *self.cut, *self.rotated]


def stands(roots: list[Path]) -> dict[str, Stand] | None:
    """All files of the given folders and files by name, nothing opened; None where none of them is there."""
    found: dict[str, Stand] = {}
    there = False
    for number, root in enumerate(roots, 1):
        prefix = f"r{number}/" if len(roots) > 1 else ""
        try:
            info = root.stat()
            resolved = root.resolve()
        except (OSError, ValueError, RuntimeError):
            continue
        there = True
        if not stat.S_ISDIR(info.st_mode):
            if stat.S_ISREG(info.st_mode):
                found[prefix + root.name] = Stand(root, info.st_size, (info.st_dev, info.st_ino), info.st_mtime)
            continue
        for name, path, about in walk(root, [resolved], lambda _name, _why: None):
            found[prefix + name] = Stand(path, about.st_size, (about.st_dev, about.st_ino), about.st_mtime)
    return found if there else None


def compared(before: dict[str, Stand], now: dict[str, Stand]) -> Changes:
    """What became of each file."""
    changes = Changes(gone=[name for name in before if name not in now])
    for name, stand in now.items():
        held = before.get(name)
        if held is None:
            changes.new.append(name)
        elif held.identity != stand.identity:
            changes.rotated.append(name)
        elif stand.size < held.size:
            changes.cut.append(name)
        elif (stand.size, stand.written) != (held.size, held.written):
            changes.grown.append(name)
    return changes
