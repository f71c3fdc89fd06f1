"""The file that a patch is about: found within its run, opened without being led astray, read with all that it is."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ...core.errors import UsageError

MOST_BYTES = 64 << 20
PLUMBING = frozenset((".git", ".hg", ".svn", ".jj", ".bzr"))  # what version control keeps for itself
_PASS = getattr(os, "O_PATH", os.O_RDONLY)  # enough to go through a folder that may not be listed


@dataclass(frozen=True, slots=True)
class Root:
    """One run of the report: its number as in `r2/`, where it is, and whether it is a healthy one to compare with."""

    id: str
    path: Path
    good: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """A regular text file of a run as it stands now.

    Attributes:
        root: the resolved folder that it may not leave.
        path: where it is, links resolved.
        told: what a user should know before it is changed.
    """

    root: Path
    path: Path
    data: bytes
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    inode: int
    told: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """Of the content."""
        return sha256(self.data)

    @property
    def text(self) -> str:
        """The content. A byte order mark stays in it."""
        return self.data.decode()


def sha256(data: bytes) -> str:
    """As a report names it."""
    return hashlib.sha256(data).hexdigest()


def find(name: str, roots: list[Root]) -> tuple[Path, Path]:
    """Where a file of the report is: the folder it may not leave, and its path, both with links resolved.

    Args:
        name: relative to the run; `r2/...` where there are several.

    Raises:
        UsageError: the name leaves its run, is of a healthy one, or nothing is there.
    """
    parts = PurePosixPath(name).parts
    if not parts or "\0" in name or name.startswith("/") or "/".join(parts) != name or ".." in parts:
        raise UsageError(f"the patch names no file of a run: {name[:200]!r}")
    if any(part.casefold() in PLUMBING for part in parts):
        raise UsageError(f"{name} belongs to version control", "no patch may change that")
    root, rest = _root(parts, roots, name)
    if root.good:
        raise UsageError(f"{name} is of the healthy run, which is never changed")
    try:
        base = root.path.resolve(strict=True)
        if base.is_dir():
            path = base.joinpath(*rest)
        else:
            if rest != (root.path.name,):
                raise UsageError(f"{name} is not a file of the run {root.path}")
            path, base = base, base.parent
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as e:
        why = e.strerror if isinstance(e, OSError) and e.strerror else "a loop of links"
        raise UsageError(f"{name} cannot be opened in {root.path}: {why}", "--run names where the run is now") from None
    if not real.is_relative_to(base):
        raise UsageError(f"{name} is a link that leads out of the run, to {real}", "change that file by hand")
    if any(part.casefold() in PLUMBING for part in real.relative_to(base).parts):
        raise UsageError(f"{name} leads into version control", "no patch may change that")
    return base, real


def _root(parts: tuple[str, ...], roots: list[Root], name: str) -> tuple[Root, tuple[str, ...]]:
    if len(roots) == 1:
        return roots[0], parts
    for root in roots:
        if parts[:1] == (root.id,) and len(parts) > 1:
            return root, parts[1:]
    raise UsageError(f"{name} does not say of which run it is", "the report has several: diagnose again")


def read(name: str, roots: list[Root]) -> Target:
    """A file that can be changed, as it stands now.

    Raises:
        UsageError: it cannot be found, read or written, or is no text.
    """
    root, path = find(name, roots)
    with opened_folder(root, path) as folder:
        target = read_at(folder, root, path, name)
        _writable(folder, target, name)
    told = []
    if path != root.joinpath(*PurePosixPath(name).parts) and path.name != PurePosixPath(name).name:
        told.append(f"{name} is a link: {path} is changed, the link stays")
    if target.uid != os.geteuid() and os.geteuid() != 0:
        told.append(f"{name} belongs to another user ({target.uid}) and will belong to you")
    return replace(target, told=tuple(told))


@contextmanager
def opened_folder(root: Path, path: Path) -> Iterator[int]:
    """The folder of a file, reached from the top without following a link: what came to be one is refused.

    Args:
        root: the resolved folder of the run.
        path: the file in it, resolved.

    Raises:
        UsageError: the folder is gone, or a link stands in the way.
    """
    flags = os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    at = -1
    try:
        path.relative_to(root)
        top, *names = path.parent.parts
        at = os.open(top, flags | (_PASS if names else os.O_RDONLY))
        for number, name in enumerate(names, 1):
            way = os.O_RDONLY if number == len(names) else _PASS
            at, last = os.open(name, flags | way, dir_fd=at), at
            os.close(last)
    except OSError as e:
        if at >= 0:
            os.close(at)
        raise UsageError(f"the folder of {path} cannot be opened: {e.strerror}") from None
    try:
        yield at
    finally:
        os.close(at)


def read_at(folder: int, root: Path, path: Path, name: str = "") -> Target:
    """A file in an open folder; opening never waits and follows no link.

    Raises:
        UsageError: gone, not a regular text file, too large, or with other names.
    """
    name = name or str(path)
    try:
        fd = os.open(path.name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as e:
        raise UsageError(f"{name} cannot be read: {e.strerror}") from None
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise UsageError(f"{name} is not a regular file")
    with open(fd, "rb") as file:  # noqa: PTH123 -- a descriptor, no path
        try:
            data = file.read(MOST_BYTES + 1)
            data.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{name} is not UTF-8 text", "change it by hand") from None
        except OSError as e:
            raise UsageError(f"{name} cannot be read: {e.strerror}") from None
    if len(data) > MOST_BYTES:
        raise UsageError(f"{name} is larger than {MOST_BYTES >> 20} MiB")
    if b"\0" in data:
        raise UsageError(f"{name} holds zero bytes and is no text")
    if info.st_nlink > 1:
        raise UsageError(
            f"{name} has {info.st_nlink} names (hard links), and a change would leave the others behind",
            "make it a file of its own: cp -p FILE NEW && mv NEW FILE",
        )
    return Target(root, path, data, stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid, info.st_mtime_ns, info.st_ino)


def _writable(folder: int, target: Target, name: str) -> None:
    """Refuse what is read-only. The mode counts for root too: who made a file read-only meant it.

    Raises:
        UsageError: file or folder may not be written.
    """
    if not target.mode & 0o222 or not os.access(target.path.name, os.W_OK, dir_fd=folder):
        raise UsageError(f"{name} is read-only", "make it writable first (chmod u+w), or change a copy")
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder):
        raise UsageError(f"the folder of {name} is read-only", "make it writable first, or change a copy of the run")
