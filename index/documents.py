"""The user's own documents: copied into the state folder by file name, so that they outlive the cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .corpus import front_matter, meanings
from .places import KNOWLEDGE, documents_folder

LIMIT = 8 << 20  # bytes of one document
SUFFIXES = frozenset({".md", ".markdown", ".txt", ".text", ".rst", ""})


class DocumentRefused(Exception):
    """A file that cannot be a document; the message is one line for the user."""


def add(paths: Iterable[Path | str], folder: Path | None = None) -> list[str]:
    """Copy markdown and text files in. Returns their names; a document of the same name is replaced.

    All files are checked before the first one is copied.

    Raises:
        DocumentRefused: no such file, not text, too large, two files of one name, or bound to what is no cause.
    """
    folder = folder or documents_folder()
    texts = {}
    for path in map(Path, paths):
        name, data = _checked(path)
        if texts.get(name, data) != data:
            raise DocumentRefused(f"{path}: another file of this call is named {name} too; rename one")
        texts[name] = data
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in texts.items():
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", delete=False) as part:
            part.write(data)
        os.replace(part.name, folder / name)  # noqa: PTH105
    return list(texts)


def remove(name: str, folder: Path | None = None) -> bool:
    """Drop a document by the name `add` gave. Returns whether it was there."""
    path = (folder or documents_folder()) / Path(name).name
    try:
        path.unlink()
    except OSError:
        return False
    return True


def names(folder: Path | None = None) -> list[str]:
    """Names of the user's documents."""
    folder = folder or documents_folder()
    return sorted(p.name for p in folder.glob("*") if p.is_file() and not p.name.startswith("."))


def _checked(path: Path) -> tuple[str, bytes]:
    if not path.is_file():
        raise DocumentRefused(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
    if path.suffix.lower() not in SUFFIXES:
        raise DocumentRefused(f"{path}: only markdown and text files can be added")
    if path.name.startswith("."):
        raise DocumentRefused(f"{path}: a name that starts with a dot would be hidden")
    if path.stat().st_size > LIMIT:
        raise DocumentRefused(f"{path}: larger than {LIMIT >> 20} MiB")
    try:
        data = path.read_bytes()
    except OSError as e:
        raise DocumentRefused(f"{path}: {e.strerror}") from None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = data.decode("utf-16", errors="replace").encode()
    if b"\0" in data:
        raise DocumentRefused(f"{path}: binary, not text")
    if not data.strip():
        raise DocumentRefused(f"{path}: empty")
    cause = front_matter(data.decode(errors="replace"))[0].get("cause")
    if cause is not None and str(cause) not in meanings(KNOWLEDGE):
        raise DocumentRefused(f"{path}: its front matter binds it to {cause!r}, which is no cause")
    return path.name, data
