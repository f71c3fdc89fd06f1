"""What was changed in the user's files, and what stood there before: written and on disk before the first change.

applied/<id>/entry.json   files with their digests, the diffs, the report they are from
applied/<id>/0.old        the content before, of the first file
applied/<id>/status       begun, done, undoing or undone; committed where a branch was made instead
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...core.errors import UsageError
from .patch_targets import Target, opened_folder, read_at

# ----------
# New content for a file: beside it first, on disk, with its mode, owner and attributes; then in one rename.


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


# ----------

BEGUN, DONE, UNDOING, UNDONE, COMMITTED = "begun", "done", "undoing", "undone", "committed"
INTERRUPTED = (BEGUN, UNDOING)
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
_WAIT = 10.0  # seconds for another apply to end


@dataclass(frozen=True, slots=True)
class Changed:
    """One file: the folder that it may not leave, its digests before and after, and the diffs that were applied.

    `temporary` is the name that new content has beside it until it is renamed.
    """

    root: str
    path: str
    name: str
    old: str
    new: str
    mtime_ns: int
    temporary: str
    diffs: list[str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One apply. `report` is a session or a file; `repository` and `branch` are set where a commit was made."""

    id: str
    time: float
    report: str
    cause: str
    patches: list[str]
    titles: list[str]
    files: list[Changed] = field(default_factory=list)
    repository: str = ""
    branch: str = ""


def new_id() -> str:
    """An id that sorts by time."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(3)


class Journal:
    """The folder `applied` of the state folder."""

    def __init__(self, state: Path) -> None:
        self.folder = state / "applied"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else with this state folder changes files meanwhile.

        Raises:
            UsageError: someone does, and does not come to an end; or the folder cannot be written.
        """
        from filelock import FileLock, Timeout

        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = FileLock(self.folder / "lock", mode=0o600)
            lock.acquire(timeout=_WAIT)
        except Timeout:
            raise UsageError("another doctor apply or undo is at work", "try again when it is done") from None
        except OSError as e:
            raise UsageError(f"{self.folder} cannot be written: {e.strerror}", "nothing was changed") from None
        try:
            for left in self.folder.glob(".new-*"):  # of a begin that was killed
                shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            lock.release()

    def begin(self, entry: Entry, old: Sequence[bytes], status: str = BEGUN) -> None:
        """Keep an entry with the content before, on disk when this returns.

        Raises:
            UsageError: it cannot be kept; nothing was.
        """
        made = None
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
            _write(made / "entry.json", json.dumps(asdict(entry), indent=1).encode())
            for number, data in enumerate(old):
                _write(made / f"{number}.old", data)
            _write(made / "status", status.encode())
            _sync(made)
            made.rename(self.folder / entry.id)
            _sync(self.folder)
        except OSError as e:
            if made:
                shutil.rmtree(made, ignore_errors=True)
            raise UsageError(
                f"no journal can be kept in {self.folder}: {e.strerror}",
                "nothing was changed; DOCTOR_STATE names another",
            ) from None

    def mark(self, entry: Entry, status: str) -> None:
        """Note how far an entry is, on disk when this returns.

        Raises:
            UsageError: it cannot be written.
        """
        folder = self.folder / entry.id
        try:
            _write(folder / "status.new", status.encode())
            (folder / "status.new").replace(folder / "status")
            _sync(folder)
        except OSError as e:
            raise UsageError(f"the journal {folder} cannot be written: {e.strerror}") from None

    def status(self, entry: Entry) -> str:
        """How far an entry is."""
        try:
            return (self.folder / entry.id / "status").read_text(encoding="ascii")
        except (OSError, ValueError):
            return BEGUN

    def kept(self, entry: Entry, number: int) -> Path:
        """Where the content before lies, of one file."""
        return self.folder / entry.id / f"{number}.old"

    def entries(self) -> list[Entry]:
        """Every apply, newest first. What is no entry (any more) is passed over."""
        try:
            names = sorted((p.name for p in self.folder.iterdir() if _ID.fullmatch(p.name)), reverse=True)
        except OSError:
            return []
        found = [_read(self.folder / name / "entry.json") for name in names]
        return sorted((e for e in found if e), key=lambda e: (-e.time, e.id))

    def steps_to(self, path: Path, digest: str) -> Iterator[tuple[str, list[str], Path]]:
        """How a file's content came about by our own hand, going back.

        Yields:
            The digest before a step, the diffs of that step, and where the content before it lies.
        """
        found = {}
        for entry in self.entries():
            if self.status(entry) == DONE:
                for number, file in enumerate(entry.files):
                    if file.path == str(path):
                        found.setdefault(file.new, (file.old, file.diffs, self.kept(entry, number)))
        while step := found.pop(digest, None):
            yield step
            digest = step[0]


def _read(path: Path) -> Entry | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Entry(**{**data, "files": [Changed(**f) for f in data["files"]]})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:  # noqa: PTH123 -- a descriptor, no path
        file.write(data)
        file.flush()
        os.fsync(fd)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_folder(fd)
    finally:
        os.close(fd)
