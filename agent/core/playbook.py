"""Playbooks: one markdown file a failure mode. The front matter is executable and strict; the body is prose.

knowledge/<family>/<slug>.md   ->   Playbook(slug="<family>/<slug>", cause=..., signatures=..., body=...)
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .errors import KnowledgeError
from .own_files import KNOWLEDGE, cache_folder, read_table

Weight = Literal["weak", "normal", "strong"]
Op = Literal["exists", "absent", "eq", "ne", "gt", "lt", "between", "matches", "in", "contains"]
Over = Literal["any", "all", "same_rank", "same_attempt"]
Part = Literal["effect", "mechanism", "link", "hazard", "circumstance", "ordinary"]

DEEPEST = 5000  # brackets of a front matter: the parser recurses in C, and deep nesting ends the process
_QUANTITY = re.compile(r"^(-?[\d.]+(?:[eE][+-]?\d+)?)\s*([KMGT]i?B)$")
_UNITS = {"K": 1, "M": 2, "G": 3, "T": 4}


def quantity(text: Any) -> Any:
    """`"10MiB"` as bytes; anything else unchanged. `KB` counts 1000, `KiB` counts 1024."""
    if isinstance(text, str) and (m := _QUANTITY.match(text.strip())):
        return float(m[1]) * (1024 if "i" in m[2] else 1000) ** _UNITS[m[2][0]]
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Signature(_Strict):
    """A pattern over one log line (prefixes and ANSI already taken off), with its own proofs."""

    pattern: str
    matches: list[str] = Field(min_length=1)
    ignores: list[str] = []
    decisive: bool = False
    harmless: bool = False
    weight: Weight = "normal"

    @property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)


class Predicate(_Strict):
    """A test over the evidence of one key, against a value or against another key.

    `part`: which part of a proof it is where it holds; left out, its key tells (`knowledge/parts.yaml`).
    """

    key: str
    op: Op
    value: Any = None
    than: str | None = None
    over: Over = "any"
    weight: Weight = "normal"
    part: Part | None = None
    why: str = ""

    @model_validator(mode="after")
    def _arguments_fit(self) -> Self:
        needs = self.op not in ("exists", "absent")
        if needs and self.value is None and self.than is None:
            raise ValueError(f"op {self.op!r} needs `value` or `than`")
        if self.op == "between" and not (isinstance(self.value, list) and len(self.value) == 2):
            raise ValueError("op 'between' needs `value: [low, high]`")
        if self.op == "in" and not isinstance(self.value, list):
            raise ValueError("op 'in' needs `value: [...]`")
        return self


class SettingChange(_Strict):
    """How a fix changes a canonical setting: to a value, by a factor, into a bound, to a product of others, or away.

    `at_least` and `at_most` leave a value alone that is within them already: a timeout is never lowered by a repair
    that raises timeouts. A value with `<...>` depends on the site and is never written into a file. `amount` takes the
    value from the evidence (`agent/repair/treatment/amounts.py`), where it tells one; else the rest of it holds.
    """

    set: Any = None
    multiply: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    product_of: list[str] = []
    amount: str = ""
    remove: bool = False


class Fix(_Strict):
    """A repair recipe in canonical settings, environment variables, commands or words.

    `finds`: it shows or proves the cause and repairs nothing, so it is never taken for the repair. `when`: only where
    all of it holds is it offered. A variable without a value is taken out where the run sets it. `rename`: the new name
    of an argument, where the library refused the old one and a file of the run has it.
    """

    title: str
    finds: bool = False
    when: list[Predicate] = []
    why: str = ""
    settings: dict[str, SettingChange | bool | int | float | str] = {}
    env: dict[str, str | None] = {}
    rename: dict[str, str] = {}
    commands: list[str] = []
    text: str = ""
    risk: str = ""
    verify: str = ""


class Playbook(_Strict):
    """One failure mode of one cause."""

    slug: str
    cause: str
    title: str
    general: bool = False
    signatures: list[Signature] = []
    checks: list[str] = []
    requires: list[Predicate] = []
    any_of: list[Predicate] = []
    supports: list[Predicate] = []
    contradicts: list[Predicate] = []
    explains: list[str] = []
    fixes: list[Fix] = []
    next_steps: list[str] = []
    sources: list[str] = []
    body: str = ""
    path: str = ""
    own: bool = False  # of the user's folder: written for this site

    @property
    def key(self) -> str:
        """Evidence key of its signature hits: `sig.<family>.<slug>`."""
        return "sig." + self.slug.replace("/", ".")

    @property
    def predicates(self) -> list[Predicate]:
        return [*self.requires, *self.any_of, *self.supports, *self.contradicts]


def parse(text: str, slug: str, path: str) -> Playbook:
    """A playbook from the text of its file.

    Raises:
        KnowledgeError: no front matter, broken YAML, unknown or ill-typed keys; with file and line.
    """
    if not text.startswith("---\n") or "\n---\n" not in text[4:]:
        raise KnowledgeError(f"{path}:1: no front matter between `---` lines")
    front, body = text[4:].split("\n---\n", 1)
    if front.count("[") + front.count("{") > DEEPEST:
        raise KnowledgeError(f"{path}:2: more than {DEEPEST} brackets in the front matter")
    try:
        data = yaml.load(front, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        raise KnowledgeError(f"{path}:{mark.line + 2 if mark else 1}: {getattr(e, 'problem', e)}") from None
    if not isinstance(data, dict):
        raise KnowledgeError(f"{path}:2: the front matter is not a mapping")
    try:
        return Playbook(slug=slug, path=path, body=body.strip(), **data)
    except (ValidationError, TypeError) as e:
        if isinstance(e, TypeError):
            raise KnowledgeError(f"{path}:2: {e}") from None
        first = e.errors()[0]
        raise KnowledgeError(
            f"{path}:{line_of(front, first['loc'])}: {_dotted(first['loc'])}: {first['msg']}"
        ) from None


def _dotted(loc: tuple[Any, ...]) -> str:
    return ".".join(str(p) for p in loc)


def line_of(front: str, loc: tuple[Any, ...]) -> int:
    """Line in the file where the node at a place of the front matter starts; the front matter begins on line 2."""
    node = yaml.compose(front, Loader=yaml.SafeLoader)
    line = 0
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            pair = next((kv for kv in node.value if kv[0].value == str(part)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line
    return line + 2


def playbook_files(folder: Path) -> list[tuple[str, Path]]:
    """Slug and path of every playbook file below a knowledge folder."""
    return [(f"{path.parent.name}/{path.stem}", path) for path in sorted(folder.glob("*/*.md"))]


def read_folder(folder: Path) -> list[Playbook]:
    """Every playbook below a knowledge folder, by slug; raises at the first that is wrong."""
    return [parse(path.read_text(encoding="utf-8"), slug, str(path)) for slug, path in playbook_files(folder)]


def causes(folder: Path = KNOWLEDGE) -> dict[str, str]:
    """The root-cause vocabulary: id -> what is wrong, in the order of `causes.yaml`."""
    families = read_table(folder / "causes.yaml")
    return {cause: text for family in families.values() for cause, text in family.items()}


# ----------
# All playbooks at hand: the built-in ones and a team's own, compiled once into a cache keyed by their content.


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
    for where, slug, path in ((f, *pair) for f in folders for pair in playbook_files(f)):
        try:
            book = parse(path.read_text(encoding="utf-8"), slug, str(path))
            by_slug[slug] = book.model_copy(update={"own": where != KNOWLEDGE})
        except (KnowledgeError, OSError, UnicodeDecodeError) as e:
            wrong.append(str(e))
    found = Library(tuple(by_slug[slug] for slug in sorted(by_slug)), tuple(wrong))
    _store(stored, found)
    return found


def _fingerprint(folders: list[Path]) -> str:
    """Of names, sizes and times: reading 130 files to hash them would cost what the cache saves."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
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
