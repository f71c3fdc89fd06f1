"""Files that are whole or not there, overwrite nothing, and have the same bytes for the same content."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from ..errors import UsageError


def write_archive(out: Path, members: Iterable[tuple[str, bytes]], made: int) -> None:
    """A gzipped tar of these members, in the order of their names.

    Args:
        made: seconds since the epoch that every member carries.

    Raises:
        UsageError: `out` exists, or cannot be written.
    """

    def fill(stream: IO[bytes]) -> None:
        with gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
            for name, data in sorted(members):
                member = tarfile.TarInfo(name)
                member.size, member.mode, member.mtime = len(data), 0o644, made
                tar.addfile(member, io.BytesIO(data))

    publish(out, fill)


def write_text(out: Path, text: str) -> None:
    """A text file.

    Raises:
        UsageError: `out` exists, or cannot be written.
    """

    def fill(stream: IO[bytes]) -> None:
        stream.write(text.encode("utf-8", "replace"))

    publish(out, fill)


def refuse_existing(out: Path, option: str) -> None:
    """Raise UsageError before any work where the file could not be written at the end."""
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} exists", f"name another file with {option}")
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}", f"name another place with {option}")


def publish(out: Path, fill: Callable[[IO[bytes]], None]) -> None:
    """Write beside the place and link it there at the end, never over another file."""
    try:
        handle, part = tempfile.mkstemp(prefix=".doctor-bundle-", dir=out.parent)
    except OSError as e:
        raise UsageError(f"cannot write to {out.parent}: {e.strerror}", "name another place") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            fill(stream)
            stream.flush()
            os.fsync(stream.fileno())
        _link(Path(part), out)
    except OSError as e:
        raise UsageError(f"cannot write {out}: {e.strerror}", "is the disk full?") from None
    finally:
        Path(part).unlink(missing_ok=True)


def _link(part: Path, out: Path) -> None:
    try:
        os.link(part, out)
    except FileExistsError:
        raise UsageError(f"{out} exists", "name another file") from None
    except OSError:  # a file system without hard links: the name is taken first, then filled at once
        out.open("xb").close()
        part.replace(out)
