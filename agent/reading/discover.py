"""Finding the files of a run: links kept inside it, odd things refused and named, standard input spooled."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from .roles import OWN

FILE_LIMIT = 100_000  # files of one run that are looked at
DEPTH_LIMIT = 24
STDIN_LIMIT = 2 << 30
_PLUMBING = frozenset(
    (".git", "__pycache__", ".venv", "node_modules", ".ipynb_checkpoints", ".mypy_cache", ".ruff_cache")
)

Skip = Callable[[str, str], None]


def walk(root: Path, allowed: list[Path], skip: Skip) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Regular files below a folder as `(name, path, stat)`, in a stable order.

    Args:
        allowed: resolved folders that links may lead into.
        skip: hears of what was found and not taken, with why.
    """
    seen: set[tuple[int, int]] = set()
    stack, count = [(root, 0)], 0
    while stack:
        folder, depth = stack.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda e: os.fsencode(e.name))
        except OSError as e:
            skip(shown_name(folder, root), f"cannot be listed: {e.strerror}")
            continue
        below: list[tuple[Path, int]] = []
        entries.sort(key=_is_link)  # what lies here under its own name comes before what a link calls it
        for entry in entries:
            path = Path(entry.path)
            name = shown_name(path, root)
            info = _look(entry, path, name, allowed, skip)
            if info is None:
                continue
            if stat.S_ISDIR(info.st_mode):
                identity = (info.st_dev, info.st_ino)
                if entry.name in _PLUMBING:
                    continue
                if identity in seen or depth >= DEPTH_LIMIT:
                    skip(name, "a link to a folder that is read already" if identity in seen else "too deep")
                    continue
                seen.add(identity)
                below.append((path, depth + 1))
                continue
            count += 1
            if count > FILE_LIMIT:
                skip(shown_name(root, root) or str(root), f"more than {FILE_LIMIT} files: the rest was not looked at")
                return
            yield name, path, info
        stack += reversed(below)


def _is_link(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_symlink()
    except OSError:
        return False


def _look(entry: os.DirEntry[str], path: Path, name: str, allowed: list[Path], skip: Skip) -> os.stat_result | None:
    """What stands at an entry, or None where it must not be read."""
    if OWN.match(entry.name):
        return None
    try:
        if entry.is_symlink():
            target = path.resolve(strict=True)
            if not any(target.is_relative_to(folder) for folder in allowed):
                skip(name, "a link that leads out of the run (name its folder with --also to follow it)")
                return None
        info = entry.stat()
    except (OSError, RuntimeError) as e:
        skip(
            name, "a loop of links" if isinstance(e, RuntimeError) or e.errno == 40 else f"cannot be read: {e.strerror}"
        )
        return None
    if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode):
        return info
    kind = next((word for test, word in _ODD if test(info.st_mode)), "special file")
    skip(name, f"a {kind}, not a regular file")
    return None


_ODD: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "named pipe"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)


def shown_name(path: Path, root: Path) -> str:
    """The name inside the run; bytes that are no UTF-8 and control characters made visible."""
    text = os.fsencode(path.relative_to(root)).decode(errors="backslashreplace")
    return text.replace("\n", "\\n").replace("\r", "\\r") if text != "." else ""


def spool() -> tuple[Path, bool]:
    """Standard input as a private temporary file, and whether it was longer than is kept.

    The file is removed when the interpreter ends.
    """
    import atexit

    fd, name = tempfile.mkstemp(prefix="doctor-stdin-")
    atexit.register(lambda: Path(name).unlink(missing_ok=True))
    left = STDIN_LIMIT
    with os.fdopen(fd, "wb") as into:
        while left > 0 and (block := sys.stdin.buffer.read(min(1 << 20, left))):
            into.write(block)
            left -= len(block)
    return Path(name), left <= 0
