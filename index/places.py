"""Where the index keeps things, and what it is made of.

cache (rebuildable)   $DOCTOR_CACHE or the user's cache folder:   lexicon/  chroma/  encoder/  vectors/
state (the user's)    $DOCTOR_STATE or the user's data folder:    documents/
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

KNOWLEDGE = Path(__file__).resolve().parent.parent / "knowledge"


def cache_folder() -> Path:
    """Folder of everything that can be built again."""
    if named := os.environ.get("DOCTOR_CACHE"):
        return Path(named).expanduser() / "index"
    import platformdirs

    return Path(platformdirs.user_cache_dir("traindoctor")) / "index"


def documents_folder() -> Path:
    """Folder of the user's own documents; a rebuild of the cache leaves it alone."""
    if named := os.environ.get("DOCTOR_STATE"):
        return Path(named).expanduser() / "documents"
    import platformdirs

    return Path(platformdirs.user_data_dir("traindoctor")) / "documents"


def _own_folders() -> tuple[Path, ...]:
    return tuple(Path(p) for p in os.environ.get("DOCTOR_KNOWLEDGE", "").split(os.pathsep) if p)


def _documents(folder: Path) -> list[Path]:
    """The files of a folder in a stable order; none where it is closed to us: hooks run as other users."""
    try:
        return [p for p in sorted(folder.iterdir()) if not p.name.startswith(".") and p.is_file()]
    except OSError:
        return []


@dataclass(frozen=True)
class Sources:
    """The folders an index is made of; a missing folder is an empty one.

    `own` are a team's playbooks (`DOCTOR_KNOWLEDGE`); one of them replaces a built-in one of the same slug.
    """

    playbooks: Path = KNOWLEDGE
    documents: Path = field(default_factory=documents_folder)
    own: tuple[Path, ...] = field(default_factory=_own_folders)

    def files(self) -> list[tuple[str, Path]]:
        """`("playbook" | "document", path)` of every file, in a stable order."""
        by_slug = {p.parts[-2:]: p for folder in (self.playbooks, *self.own) for p in folder.glob("*/*.md")}
        playbooks = [("playbook", by_slug[slug]) for slug in sorted(by_slug)]
        return playbooks + [("document", p) for p in _documents(self.documents)]
