"""Real copies, made beside their destination and moved there whole."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import UsageError

_BLOCK = 4 << 20
_SPARE = 64 << 20  # bytes that stay free
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # of some file systems

Progress = Callable[[int], None]


def refuse_existing(source: Path, output: Path) -> None:
    """Check both ends before anything is written.

    Raises:
        UsageError: no such file; the output exists, lies in what it is made from, or has no folder to lie in.
    """
    if not source.exists():
        raise UsageError(f"no such file or folder: {source}")
    if os.path.lexists(output):
        raise UsageError(f"{output} exists", "name a new folder or file; nothing is overwritten")
    if not output.parent.is_dir():
        raise UsageError(f"no such folder: {output.parent}")
    if output.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"{output} lies inside {source}, which it is made from")


def refuse_full(output: Path, needed: int) -> None:
    """Check that there is room for `needed` bytes.

    Raises:
        UsageError: there is not.
    """
    free = shutil.disk_usage(output.parent).free
    if free < needed + _SPARE:
        raise UsageError(f"{needed / 2**30:.2f} GiB are needed beside {output}, {free / 2**30:.2f} GiB are free")


@contextmanager
def beside(output: Path) -> Iterator[Path]:
    """A temporary folder next to the output, gone at the end whatever happened.

    Raises:
        UsageError: the folder cannot be written to.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{output.name}.doctor-", dir=output.parent))
    except OSError as e:
        raise UsageError(f"cannot write to {output.parent}: {e.strerror}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copy_bytes(source: Path, target: Path, progress: Progress) -> None:
    """Byte for byte, without sharing blocks with the source; on disk when it returns."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as old, target.open("xb") as new:
        while block := old.read(_BLOCK):
            new.write(block)
            progress(len(block))
        new.flush()
        os.fsync(new.fileno())
    shutil.copystat(source, target)


def publish(made: Path, output: Path) -> None:
    """Move what was made to its final name in one step; never over something that came to be there meanwhile.

    Raises:
        UsageError: the name was taken.
    """
    try:
        if made.is_dir():
            made.rename(output)  # takes the place of nothing, or of an empty folder
        else:
            _place(made, output)
    except (FileExistsError, NotADirectoryError):
        raise _taken(output) from None
    except OSError as e:
        if e.errno != errno.ENOTEMPTY:
            raise
        raise _taken(output) from None
    _settle(output.parent)


def _place(made: Path, output: Path) -> None:
    try:
        os.link(made, output)
    except OSError as e:
        if e.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(output):
            raise FileExistsError(errno.EEXIST, "exists", str(output)) from None
        made.rename(output)


def _taken(output: Path) -> UsageError:
    return UsageError(f"{output} came to exist meanwhile", "nothing was overwritten")


def _settle(folder: Path) -> None:
    """The new name on disk too; a file system that cannot do this for folders is let be."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
