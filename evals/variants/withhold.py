"""Take away what decides: confidence must fall, and the next steps must name what is missing.

The files that hold deciding lines go; where nothing readable would be left, they end before the first of these lines.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from ...agent.core.report import Report
from ..case import Case

# What a file is called in words, by how its name looks: a next step names it by file name or by such a word.
_KINDS = (
    (re.compile(r"rank|worker|node"), ("rank", "worker", "node", "log")),
    (re.compile(r"launch|\.sh$|\.slurm$|sbatch|args"), ("launch", "script", "command", "argument", "flag")),
    (re.compile(r"\.(?:ya?ml|toml|json|ini|cfg)$"), ("config", "setting", "yaml", "json")),
    (re.compile(r"metrics|\.csv$|tfevents|\.jsonl$"), ("metric", "curve", "loss", "csv", "dataset", "sample")),
    (re.compile(r"dmesg|kern|journal|syslog"), ("kernel", "dmesg", "journal")),
    (re.compile(r"nvidia|smi|gpu|dcgm"), ("nvidia-smi", "gpu")),
    (re.compile(r"\.py$"), ("script", "code", ".py", "source")),
    (re.compile(r"env|freeze|requirements|version|pip"), ("version", "environment", "package", "pip")),
    (re.compile(r"stack|spy|dump"), ("stack", "py-spy", "dump")),
    (re.compile(r"."), ("log", "output", "traceback")),
)


@dataclass(frozen=True, slots=True)
class Withheld:
    """A case without what decides, and what was taken from it (file names; `cut` where only their ends went)."""

    case: Case
    taken: tuple[str, ...]
    cut: bool


def withhold(case: Case, into: Path) -> Withheld | None:
    """The case in a folder that does not exist yet; None where it names no deciding line."""
    taken = tuple(sorted({m.file for m in case.marks if (case.files / m.file).is_file()}))
    if not taken:
        return None
    shutil.copytree(case.folder, into, symlinks=True, ignore=lambda _, names: {"incident.yaml"} & set(names))
    poorer = replace(case, folder=into)
    held = [p for p in poorer.files.rglob("*") if p.is_file()]
    left = [p for p in held if p.relative_to(poorer.files).as_posix() not in taken and p.stat().st_size]
    logs = [p for p in left if p.suffix in (".log", ".out", ".txt", ".err", ".csv", ".jsonl")]
    for name in taken:
        path = poorer.files / name
        if logs:
            path.unlink()
        else:
            _cut(path, [m.text.encode() for m in case.marks if m.file == name])
    return Withheld(poorer, taken, cut=not logs)


def _cut(path: Path, marks: list[bytes]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    first = next((i for i, line in enumerate(lines) if any(m in line for m in marks)), len(lines))
    path.write_bytes(b"".join(lines[:first]) or b"starting\n")


def names_what_is_missing(report: Report, taken: tuple[str, ...]) -> bool:
    """Whether the next steps, or what the candidates lack, name a file that was taken or its kind."""
    said = "\n".join([*report.next_steps, *(text for d in report.differential for text in d.missing)]).casefold()
    return any(_names(said, name) for name in taken)


def _names(said: str, name: str) -> bool:
    base = Path(name).name.casefold()
    words = next(words for form, words in _KINDS if form.search(base))
    return base in said or any(word in said for word in words)
