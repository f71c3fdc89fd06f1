"""Workspaces made of a few small files."""

from __future__ import annotations

import textwrap
from pathlib import Path

from traindoctor.agent.reading.run.workspace import Workspace


def workspace(folder: Path, good: dict[str, str] | None = None, **files: str) -> Workspace:
    """A run of files; `run_sh` becomes `run.sh`, and `__` a folder."""
    roots = []
    for name, content in (("run", files), ("good", good or {})):
        root = folder / name
        for file, text in content.items():
            path = root / _path(file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        roots.append(root)
    return Workspace([roots[0]], good=[roots[1]] if good else None)


def _path(name: str) -> str:
    stem, _, suffix = name.replace("__", "/").rpartition("_")
    return f"{stem}.{suffix}"


def evidence(result, key: str):
    """Evidence of one key."""
    return [e for e in result.evidence if e.key == key]


def values(result, key: str) -> list:
    return [e.value for e in evidence(result, key)]
