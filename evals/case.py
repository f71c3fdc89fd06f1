"""An incident on disk: what happened to somebody, what the run left behind, and what turned out to be wrong.

<id>/incident.yaml    the question (others under also_asked) and the labels
<id>/files/           what doctor may see
<id>/shell.json       optional: recorded commands
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from ..agent.errors import KnowledgeError, UsageError

_REQUIRED = ("id", "family", "difficulty", "question", "expected")


@dataclass(frozen=True, slots=True)
class Mark:
    """A line that decides the incident: cited when the report cites a line of `file` that contains `text`."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class Case:
    """One incident with its labels. `expected` holds the right causes, best first."""

    id: str
    family: str
    difficulty: str
    question: str
    expected: tuple[str, ...]
    acceptable: tuple[str, ...]
    marks: tuple[Mark, ...]
    fix_terms: tuple[tuple[str, ...], ...]
    folder: Path
    also_asked: tuple[str, ...] = ()

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def shell(self) -> Path:
        return self.folder / "shell.json"


def load(folder: Path) -> Case:
    """The incident in a folder.

    Raises:
        KnowledgeError: `incident.yaml` is broken or lacks a key, with the file's name.
    """
    path = folder / "incident.yaml"
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise KnowledgeError(f"{path}:1: cannot be read: {e}") from None
    missing = [k for k in _REQUIRED if not isinstance(data, dict) or not data.get(k)]
    if missing:
        raise KnowledgeError(f"{path}:1: lacks {', '.join(missing)}")
    if not (folder / "files").is_dir():
        raise KnowledgeError(f"{path}:1: there is no files/ folder beside it")
    return Case(
        id=str(data["id"]),
        family=str(data["family"]),
        difficulty=str(data["difficulty"]),
        question=" ".join(str(data["question"]).split()),
        expected=tuple(data["expected"]),
        acceptable=tuple(data.get("acceptable") or ()),
        marks=tuple(Mark(m["file"], str(m["text"])) for m in data.get("evidence") or ()),
        fix_terms=tuple(tuple(str(word) for word in words) for words in data.get("fix_terms") or ()),
        folder=folder,
        also_asked=tuple(" ".join(str(q).split()) for q in data.get("also_asked") or ()),
    )


def find(paths: Iterable[Path]) -> list[Case]:
    """Every incident below the given folders (an incident folder, or folders of them), each once, by id.

    Raises:
        UsageError: a path does not exist, or holds no incident.
    """
    found: dict[Path, Case] = {}
    for path in paths:
        folders = list(_folders(path))
        if not folders:
            raise UsageError(
                f"no incident in {path}", "name a folder with an incident.yaml, or one of such folders"
            )
        for folder in folders:
            found.setdefault(folder.resolve(), load(folder))
    return [asked for case in sorted(found.values(), key=lambda c: c.id) for asked in _questions(case)]


def _questions(case: Case) -> Iterator[Case]:
    """The incident, and once more for each further way to ask about it: the same labels hold."""
    yield case
    for number, question in enumerate(case.also_asked, 2):
        yield replace(case, id=f"{case.id}:{number}", question=question)


def _folders(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise UsageError(f"no such path: {path}")
    if path.name == "incident.yaml":
        yield path.parent
    elif (path / "incident.yaml").is_file():
        yield path
    else:
        yield from (p.parent for p in sorted(path.glob("*/incident.yaml")))
