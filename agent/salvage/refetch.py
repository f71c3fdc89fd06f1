"""Damaged downloads named, each with the command that gets it again. Writes nothing and runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from ..workspace import Workspace
from .addresses import told_by
from .copying import Progress
from .damage import damage, other_bytes
from .origins import Origin, origin_of

_FILES = 20_000


@dataclass(slots=True)
class Refetch:
    """One file. `wrong` is empty where nothing is seen; `expected` says what the right content is."""

    path: Path
    wrong: str
    origins: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    expected: str = ""


def refetch(paths: list[Path], runs: list[Path], quick: bool, progress: Progress) -> list[Refetch]:
    """Every named file, and the damaged ones of every named folder.

    Args:
        runs: folders whose configs and scripts say where files come from.
        quick: digests are not compared, which reads every byte.

    Raises:
        UsageError: a folder of too many files.
    """
    ws = Workspace(runs, live=False, may_be_empty=True) if runs else None
    found = []
    for path in paths:
        named = not path.is_dir()
        for file in [path] if named else _below(path):
            one = _look(file, ws, quick, progress)
            if named or one.wrong:
                found.append(one)
    return found


def _below(folder: Path) -> list[Path]:
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or ".git" in path.parts or path.suffix in (".lock", ".metadata"):
            continue
        if path.parent.name == "blobs" and not path.name.endswith(".incomplete"):
            continue  # of a hub cache: looked at by their names in the snapshots
        files.append(path)
        if len(files) > _FILES:
            raise UsageError(f"more than {_FILES} files in {folder}", "name a smaller folder, or the files")
    return files


def _look(path: Path, ws: Workspace | None, quick: bool, progress: Progress) -> Refetch:
    own = origin_of(path)
    origins = [*([own] if own else []), *(told_by(ws, path) if ws else ())]
    wrong = damage(path)
    digest = next((o.digest for o in origins if o.digest), "")
    if not wrong and digest and not quick:
        wrong = other_bytes(path, digest, progress)
    return Refetch(
        path, wrong, [o.told for o in origins], list(dict.fromkeys(c for o in origins for c in o.commands)),
        _expected(digest, origins),
    )  # fmt: skip


def _expected(digest: str, origins: list[Origin]) -> str:
    size = next((o.size for o in origins if o.size is not None), None)
    words = [f"{size} bytes"] if size is not None else []
    words += [f"{'SHA-256' if len(digest) == 64 else 'git SHA-1'} {digest}"] if digest else []
    return ", ".join(words)
