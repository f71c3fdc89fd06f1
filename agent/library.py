"""All playbooks at hand: the built-in ones and a team's own, compiled once into a cache keyed by their content."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .errors import KnowledgeError
from .paths import cache_folder
from .playbook import KNOWLEDGE, Playbook, parse, playbook_files


@dataclass(frozen=True)
class Library:
    """Playbooks by slug, and one line for each file that is none."""

    books: tuple[Playbook, ...]
    broken: tuple[str, ...]


def playbooks() -> tuple[Playbook, ...]:
    """Every playbook, by slug. One of `DOCTOR_KNOWLEDGE` replaces a built-in one of the same slug."""
    return _library().books


def broken() -> tuple[str, ...]:
    """Playbooks that could not be used: a team's typo must not cost anyone a diagnosis."""
    return _library().broken


@cache
def _library() -> Library:
    folders = [KNOWLEDGE, *(Path(p) for p in os.environ.get("DOCTOR_KNOWLEDGE", "").split(os.pathsep) if p)]
    stored = cache_folder() / f"playbooks-{_fingerprint(folders)}.pickle"
    if (found := _load(stored)) is not None:
        return found
    by_slug: dict[str, Playbook] = {}
    wrong: list[str] = []
    for slug, path in (pair for folder in folders for pair in playbook_files(folder)):
        try:
            by_slug[slug] = parse(path.read_text(encoding="utf-8"), slug, str(path))
        except (KnowledgeError, OSError, UnicodeDecodeError) as e:
            wrong.append(str(e))
    found = Library(tuple(by_slug[slug] for slug in sorted(by_slug)), tuple(wrong))
    _store(stored, found)
    return found


def _fingerprint(folders: list[Path]) -> str:
    """Of names, sizes and times: reading 130 files to hash them would cost what the cache saves."""
    digest = hashlib.sha256(Path(__file__).with_name("playbook.py").read_bytes())
    for folder in folders:
        for _, path in playbook_files(folder):
            stat = path.stat()
            digest.update(f"{path}:{stat.st_size}:{stat.st_mtime_ns};".encode())
    return digest.hexdigest()[:16]


def _load(path: Path) -> Library | None:
    """Our own cache in the user's own folder; anything odd about it means it is made again."""
    try:
        if path.stat().st_uid != os.getuid():
            return None
        return pickle.loads(path.read_bytes())
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ValueError, ImportError):
        return None


def _store(path: Path, found: Library) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as f:
            pickle.dump(found, f, protocol=pickle.HIGHEST_PROTOCOL)
        Path(f.name).replace(path)
    except OSError:
        return  # a read-only home costs time, not the diagnosis
