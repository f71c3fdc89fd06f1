"""The text files of a run as anybody would read them: decoded with replacement, in order of their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

LARGEST = 2_000_000_000  # bytes; a larger file is not read


def texts(files: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of every file that is text by its first bytes."""
    for path in sorted(files.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST:
            with path.open("rb") as f:
                if b"\0" not in f.read(4096):
                    yield path.relative_to(files).as_posix(), path


def numbered(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers from 1."""
    with path.open(encoding="utf-8", errors="replace", newline="\n") as f:
        for number, line in enumerate(f, 1):
            yield number, line.rstrip("\r\n")
