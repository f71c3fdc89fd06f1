"""New content for a file: beside it first, on disk, with its mode, owner and attributes; then in one rename."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from ..errors import UsageError
from .targets import Target, opened_folder, read_at

_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
_NO_ATTRIBUTES = (errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.ENODATA)


def stage(target: Target, data: bytes, temporary: str, mtime_ns: int | None = None) -> int:
    """Put content beside a file, on disk, with all that belongs to the file.

    Args:
        temporary: name in the same folder; it must not exist.
        mtime_ns: time of the last change, where it is not now.

    Returns:
        The inode that it is, also after the rename.

    Raises:
        UsageError: the folder cannot be written, or the disk is full; nothing is left behind.
    """
    with opened_folder(target.root, target.path) as folder:
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        except OSError as e:
            raise UsageError(f"{target.path.parent} cannot be written: {e.strerror}") from None
        try:
            with open(fd, "wb") as file:  # noqa: PTH123 -- a descriptor, no path
                file.write(data)
                file.flush()
                _like(fd, folder, target)
                if mtime_ns is not None:
                    os.utime(fd, ns=(mtime_ns, mtime_ns))
                os.fsync(fd)
                return os.fstat(fd).st_ino
        except OSError as e:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise UsageError(f"{target.path} cannot be written: {e.strerror}", "nothing was changed") from None


def _like(fd: int, folder: int, target: Target) -> None:
    """Owner, attributes (access lists among them) and mode of the file, as far as the system lets us."""
    with contextlib.suppress(PermissionError):
        os.fchown(fd, target.uid, -1)
    with contextlib.suppress(PermissionError):
        os.fchown(fd, -1, target.gid)
    own = os.open(target.path.name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    try:
        _attributes(own, fd)
    finally:
        os.close(own)
    os.fchmod(fd, target.mode)  # last: a change of owner takes bits away


def _attributes(own: int, fd: int) -> None:
    """Extended attributes of one open file for another."""
    try:
        names = os.listxattr(own)
    except (OSError, AttributeError):  # no such thing on this file system, or this system
        return
    for name in names:
        try:
            os.setxattr(fd, name, os.getxattr(own, name))
        except OSError as e:
            if e.errno not in _NO_ATTRIBUTES or name == "system.posix_acl_access":
                raise


def put(target: Target, expected: str, new: str, temporary: str) -> None:
    """Rename what was staged over the file, if both are still what they should be.

    Args:
        expected: sha256 of what must stand there.
        new: sha256 of what was staged.

    Raises:
        UsageError: something else stands there or was staged, or the rename failed; the file is as it was.
    """
    with opened_folder(target.root, target.path) as folder:
        now = read_at(folder, target.root, target.path)
        if now.sha256 != expected:
            raise UsageError(f"{target.path} changed meanwhile", "it was left as it is")
        staged = target.path.with_name(temporary)
        if read_at(folder, target.root, staged).sha256 != new:
            raise UsageError(f"{staged} does not hold what was to be written", f"{target.path} was left as it is")
        try:
            os.replace(temporary, target.path.name, src_dir_fd=folder, dst_dir_fd=folder)
            sync_folder(folder)
        except OSError as e:
            raise UsageError(f"{target.path} cannot be replaced: {e.strerror}") from None


def sync_folder(folder: int) -> None:
    """Bring the names in a folder to the disk, where the file system knows such a thing."""
    try:
        os.fsync(folder)
    except OSError as e:
        if e.errno not in _NO_SYNC:
            raise


def drop(root: Path, path: Path, temporary: str) -> None:
    """Take away what was staged and not used; nothing where there is nothing."""
    with contextlib.suppress(UsageError, OSError), opened_folder(root, path) as folder:
        os.unlink(temporary, dir_fd=folder)


def stands(root: Path, path: Path) -> Target | None:
    """What stands there now; None where it is gone or no longer a plain text file."""
    try:
        with opened_folder(root, path) as folder:
            return read_at(folder, root, path)
    except UsageError:
        return None
