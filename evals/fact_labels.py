"""Label files of facts: what a person found each piece of evidence of a run to be, and the facts that decide it.

`evals/facts/<run>.yaml` names the run's folder and holds one row for each piece of evidence. A row is found again by
its key, its place and its value; of a line the text counts (as a hash, so that nothing of a public project's files is
kept here), not the number, so that a file may grow above it. docs/evals.md has the rule for labellers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from ..agent.core.errors import KnowledgeError, UsageError
from ..agent.core.types import Evidence
from .case import Mark

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).with_name("facts")
LABELS = ("true", "misleading", "false")
_TEXT, _VALUE = 80, 100  # characters that count of a line, of a value
_KEYS = {"run", "sound", "checkout", "bystanders", "data", "deciding", "facts"}


@dataclass(frozen=True, slots=True)
class Row:
    """One fact: what it says, where it stands, and what it is (None: not labelled yet).

    `at` is `file:line`, `file > member`, `absent`, or `$ command`; `hash` is that of the line, empty where there is
    none.
    """

    key: str
    at: str
    value: str
    hash: str = ""
    label: str | None = None
    why: str = ""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What stays the same when lines are put in above."""
        return self.key, self.at.rpartition(":")[0] if self.hash else self.at, self.hash, self.value

    @property
    def line(self) -> int:
        """Number of the line; 0 where the fact stands on none."""
        return int(self.at.rpartition(":")[2]) if self.hash else 0

    @property
    def file(self) -> str:
        """The file that it was read from; empty for absences and commands."""
        return self.identity[1].partition(" > ")[0] if not self.at.startswith(("absent", "$ ")) else ""


@dataclass(frozen=True, slots=True)
class Labels:
    """What is known of one run."""

    id: str
    folder: str  # of the run, from the root of the project
    sound: bool
    checkout: bool
    rows: tuple[Row, ...] = ()
    deciding: tuple[Mark, ...] = ()  # empty where the incident itself holds them (`facts`)
    bystanders: tuple[str, ...] = ()  # patterns of files that have no part in the run
    data: tuple[str, ...] = ()  # patterns of files that hold the text it learns from

    @property
    def path(self) -> Path:
        return ROOT / self.folder

    @property
    def is_kept(self) -> bool:
        """Whether the run lies in the repository; others are made by `make checkouts`."""
        return not self.folder.startswith("build/")

    def marks(self) -> tuple[Mark, ...]:
        """The facts that decide, from here or from the incident."""
        return self.deciding or tuple(
            Mark(m["file"], str(m["text"])) for m in _read(self.path / "incident.yaml").get("facts") or ()
        )

    def labelled(self, found: Row) -> Row:
        """The row of a found fact with its label; of several lines with the same text, the nearest one's."""
        same = [row for row in self.rows if row.label and row.identity == found.identity]
        if not same:
            return found
        near = min(same, key=lambda row: abs(row.line - found.line))
        return replace(found, label=near.label, why=near.why)

    def is_beside(self, file: str) -> bool:
        """Whether a file is a bystander or data."""
        return any(fnmatchcase(file, pattern) for pattern in (*self.bystanders, *self.data))


def row_of(evidence: Evidence) -> Row:
    """A piece of evidence as a row without a label."""
    file, mark = evidence.file or "", ""
    if evidence.kind == "absent":
        at = f"absent from {file}" if file else "absent"
    elif evidence.kind == "command":
        at = f"$ {' '.join(evidence.argv or ())}"
    elif file and evidence.line:
        at, mark = f"{file}:{evidence.line}", _hashed(evidence.text)
    else:
        at = f"{file} > {evidence.member}" if evidence.member else file or evidence.tool
    return Row(evidence.key, at, short(evidence.value, evidence.key), mark)


def short(value: Any, key: str = "") -> str:
    """A value as it is compared: numbers to four digits, the rest by its beginning; a version (3.20) is no number."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, list | dict):
        value = json.dumps(value, sort_keys=True, default=str)
    try:
        number = float("no number" if key.startswith("env.version.") else value)
        return f"{number:.4g}"
    except ValueError:
        return _printable(str(value))[:_VALUE].strip()


def _printable(text: str) -> str:
    """A text on one line, without what YAML refuses."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())


def _hashed(text: str) -> str:
    return hashlib.sha256(" ".join(text.split())[:_TEXT].encode()).hexdigest()[:8]


# ----------
# Files of labels.


def find(paths: Iterable[Path]) -> list[Labels]:
    """The label files that are named, or lie in the folders that are.

    Raises:
        UsageError: there is none.
    """
    files: dict[Path, None] = {}
    for path in paths:
        named = sorted(path.glob("*.yaml")) if path.is_dir() else [path] if path.is_file() else []
        if not named:
            raise UsageError(f"no labelled facts in {path}", "name evals/facts, or files in it")
        files |= dict.fromkeys(named)
    return [load(file) for file in files]


def load(path: Path) -> Labels:
    """The labels of one run.

    Raises:
        KnowledgeError: the file cannot be read, has a key or a label that there is not, or lacks one.
    """
    try:
        said = _read(path)
        if unknown := sorted(said.keys() - _KEYS):
            raise KnowledgeError(f"{path}:1: there is no {', '.join(unknown)} among {', '.join(sorted(_KEYS))}")
        return Labels(
            id=path.stem,
            folder=said["run"],
            sound=said["sound"],
            checkout=said["checkout"],
            rows=tuple(_row(row) for row in said.get("facts") or ()),
            deciding=tuple(Mark(m["file"], str(m["text"])) for m in said.get("deciding") or ()),
            bystanders=tuple(said.get("bystanders") or ()),
            data=tuple(said.get("data") or ()),
        )
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as e:
        raise KnowledgeError(f"{path}:1: cannot be read: {' '.join(str(e).split())}") from None


def _read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _row(said: dict[str, Any]) -> Row:
    label, why = said.get("label"), str(said.get("why") or "")
    if label is not None and (label := str(label).lower()) not in LABELS:
        raise ValueError(f"{said['key']} at {said['at']}: no label is called {label}")
    if label in LABELS[1:] and not why:
        raise ValueError(f"{said['key']} at {said['at']} is {label} without a why")
    return Row(
        said["key"],
        str(said["at"]),
        short(said.get("value", True), said["key"]),
        str(said.get("hash") or ""),
        label,
        why,
    )


def written(labels: Labels, shown: dict[Row, str]) -> str:
    """A label file. A row without a label ends with what `shown` has of it, as a comment: the line's text."""
    lines = [
        f"run: {labels.folder}",
        f"sound: {str(labels.sound).lower()}",
        f"checkout: {str(labels.checkout).lower()}",
    ]
    for name, patterns in (("bystanders", labels.bystanders), ("data", labels.data)):
        lines += [f"{name}: [{', '.join(map(_quoted, patterns))}]"] if patterns else []
    lines += ["deciding:"] if labels.deciding else []
    lines += [f"- {{file: {_quoted(m.file)}, text: {_quoted(m.text)}}}" for m in labels.deciding]
    lines += ["facts:" if labels.rows else "facts: []"]
    lines += [_line(row, shown.get(row, "")) for row in labels.rows]
    return "\n".join(lines) + "\n"


def _line(row: Row, shown: str) -> str:
    value = "" if row.value == "true" else f", value: {_quoted(row.value)}"
    mark = f', hash: "{row.hash}"' if row.hash else ""
    why = f", why: {_quoted(row.why)}" if row.why else ""
    comment = f"  # {_printable(shown)[:160]}" if shown and row.label is None else ""
    return f"- {{label: {row.label or 'null'}, key: {_key(row.key)}, at: {_quoted(row.at)}{value}{mark}{why}}}{comment}"


def _key(key: str) -> str:
    """A key as YAML takes it; one made of a word of the run may hold anything."""
    return key if re.fullmatch(r"[A-Za-z_][\w.\-]*", key) else _quoted(key)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def drafted(labels: Labels, found: Iterable[Row]) -> Labels:
    """The labels with every fact that was found; what was labelled and is gone stays, at the end, for its return."""
    known: dict[tuple[str, str, str, str, int], Row] = {}
    for row in sorted(map(labels.labelled, found), key=lambda row: (row.key, row.at.rpartition(":")[0], row.line)):
        known.setdefault((*row.identity, row.line), row)
    present = {row.identity for row in known.values()}
    gone = [row for row in labels.rows if row.label and row.identity not in present]
    return replace(labels, rows=(*known.values(), *gone))


def beginning(run: Path) -> Labels:
    """The labels of a run that has none yet, or those that it has.

    Raises:
        UsageError: there is no such run.
    """
    kept = FOLDER / f"{run.name}.yaml"
    if kept.is_file():
        return load(kept)
    if not (run / "incident.yaml").is_file():
        raise UsageError(f"no run in {run}", "name a folder with an incident.yaml")
    checkout = "checkouts" in run.resolve().parts
    return Labels(run.name, run.resolve().relative_to(ROOT).as_posix(), _is_sound(run), checkout)


def _is_sound(run: Path) -> bool:
    from .case import load as incident

    return "none.healthy" in incident(run).expected
