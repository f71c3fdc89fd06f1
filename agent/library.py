"""All playbooks at hand: the built-in ones and a team's own, compiled once into a cache keyed by their content."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from functools import cache
from pathlib import Path

from .paths import cache_folder
from .playbook import KNOWLEDGE, Playbook, read_folder


@cache
def playbooks() -> tuple[Playbook, ...]:
    """Every playbook, by slug. One of `DOCTOR_KNOWLEDGE` replaces a built-in one of the same slug."""
    folders = [KNOWLEDGE, *(Path(p) for p in os.environ.get("DOCTOR_KNOWLEDGE", "").split(os.pathsep) if p)]
    stored = cache_folder() / f"playbooks-{_fingerprint(folders)}.pickle"
    if (found := _load(stored)) is not None:
        return found
    by_slug = {p.slug: p for folder in folders for p in read_folder(folder)}
    found = tuple(by_slug[slug] for slug in sorted(by_slug))
    _store(stored, found)
    return found


def _fingerprint(folders: list[Path]) -> str:
    """Of names, sizes and times: reading 130 files to hash them would cost what the cache saves."""
    digest = hashlib.sha256(b"2")
    for folder in folders:
        for path in sorted(folder.glob("*/*.md")):
            stat = path.stat()
            digest.update(f"{path}:{stat.st_size}:{stat.st_mtime_ns};".encode())
    return digest.hexdigest()[:16]


def _load(path: Path) -> tuple[Playbook, ...] | None:
    """Our own cache in the user's own folder; anything odd about it means it is made again."""
    try:
        if path.stat().st_uid != os.getuid():
            return None
        return pickle.loads(path.read_bytes())
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ValueError, ImportError):
        return None


def _store(path: Path, found: tuple[Playbook, ...]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as f:
            pickle.dump(found, f, protocol=pickle.HIGHEST_PROTOCOL)
        Path(f.name).replace(path)
    except OSError:
        return  # a read-only home costs time, not the diagnosis
