"""An incident on disk: what happened to somebody, what the run left behind, and what turned out to be wrong.

<id>/incident.yaml    the question (others under also_asked) and the labels; `first_failure: {rank, step}` is optional
<id>/files/           what doctor may see
<id>/shell.json       optional: recorded commands
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from ..agent.core.errors import KnowledgeError, UsageError

_REQUIRED = ("id", "family", "difficulty", "question", "expected")


def _words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str | int | float) and str(v).strip() for v in value)


def _mark(value: Any) -> bool:
    return isinstance(value, dict) and all(str(value.get(k) or "").strip() for k in ("file", "text"))


def _fact(value: Any) -> bool:
    return _mark(value) and bool(str(value.get("says") or "").strip())


def _place(value: Any) -> bool:
    numbers = value.values() if isinstance(value, dict) else [""]
    return all(type(n) is int for n in numbers)


_FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {  # key -> its form in words, and whether a value has it
    "expected": ("a list of ids of causes", lambda v: (isinstance(v, str) and bool(v)) or _words(v)),
    "acceptable": ("a list of ids of causes", lambda v: (isinstance(v, str) and bool(v)) or _words(v)),
    "also_asked": ("a list of questions", _words),
    "evidence": ("a list of {file, text}", lambda v: isinstance(v, list) and all(map(_mark, v))),
    "facts": ("a list of {file, text, says}", lambda v: isinstance(v, list) and all(map(_fact, v))),
    "fix_terms": ("a list of lists of words", lambda v: isinstance(v, list) and all(w and _words(w) for w in v)),
    "first_failure": ("{rank: number, step: number}", _place),
}


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
    rank: int | None = None  # where it broke first, of those incidents that say so
    step: int | None = None

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def shell(self) -> Path:
        return self.folder / "shell.json"


def load(folder: Path) -> Case:
    """The incident in a folder.

    Raises:
        KnowledgeError: `incident.yaml` is broken, lacks a key or holds one in another form, with the file's name.
        UsageError: labels that a recorded incident leaves blank are not filled in yet.
    """
    path = folder / "incident.yaml"
    try:
        data: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        mark = getattr(e, "problem_mark", None)
        told = str(getattr(e, "problem", None) or e)
        raise KnowledgeError(f"{path}:{mark.line + 1 if mark else 1}: cannot be read: {told}") from None
    missing = [k for k in _REQUIRED if not isinstance(data, dict) or not data.get(k)]
    if missing and isinstance(data, dict) and all(k in data for k in missing):
        raise UsageError(
            f"{path}: still to be filled in: {', '.join(missing)}", "from how it came out; docs/incidents.md says how"
        )
    if missing:
        raise KnowledgeError(f"{path}:1: lacks {', '.join(missing)}")
    if not (folder / "files").is_dir():
        raise KnowledgeError(f"{path}:1: there is no files/ folder beside it")
    for key, (form, fits) in _FORMS.items():
        if data.get(key) is not None and not fits(data[key]):
            raise KnowledgeError(f"{path}:1: {key} is to be {form}")
    return Case(
        id=str(data["id"]),
        family=str(data["family"]),
        difficulty=str(data["difficulty"]),
        question=" ".join(str(data["question"]).split()),
        expected=_ids(data["expected"]),
        acceptable=_ids(data.get("acceptable")),
        marks=tuple(Mark(m["file"], str(m["text"])) for m in data.get("evidence") or ()),
        fix_terms=tuple(tuple(str(word) for word in words) for words in data.get("fix_terms") or ()),
        folder=folder,
        also_asked=tuple(" ".join(str(q).split()) for q in data.get("also_asked") or ()),
        **_first_failure(data),
    )


def _ids(said: Any) -> tuple[str, ...]:
    """Ids of causes; one alone may stand without brackets."""
    return (said,) if isinstance(said, str) and said else tuple(said or ())


def _first_failure(data: dict[str, Any]) -> dict[str, int]:
    first = data.get("first_failure") or {}
    return {name: first[name] for name in ("rank", "step") if isinstance(first.get(name), int)}


def find(paths: Iterable[Path]) -> list[Case]:
    """Every incident below the given folders (an incident folder, or folders of them), each folder once, by id.

    Raises:
        UsageError: a path does not exist, or holds no incident.
    """
    found: dict[Path, Case] = {}
    for path in paths:
        folders = list(_folders(path))
        if not folders:
            raise UsageError(f"no incident in {path}", "name a folder with an incident.yaml, or one of such folders")
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
