"""What of a run may be changed: its own configs, scripts and code, of the attempt and the variant that failed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from ..patching.document import FORMS
from ..patching.records import HEAD, is_record
from ..reading.files import RunFile
from ..reading.lint_places import Lint
from ..reading.lints import lints
from ..reading.settings import Setting, Settings, Source, read_settings
from ..reading.settings_map import settings_map
from ..reading.versions import read_environment
from ..report import Report
from ..workspace import STDIN, Workspace
from .recipe import DIFFERS

LARGEST = 5 << 20  # bytes of a file that is changed
# A file as an argument of a program; not one that its output is written to, and not in a comment.
_GIVEN = (
    r"(?m)^[^#\n]*\b(?:python[\d.]*|torchrun|deepspeed|accelerate|srun|lightning)\b(?:[^#\n;|&]|\\\n)*?"
    r"(?:(?<![>\s])[ \t]+|=|\\\n\s*)[\"']?(?:\./)?{}(?=[\"']?(?:[\s;)&|\\]|\Z))"
)
_NEVER = ("log", "metrics", "checkpoint", "data", "capture", "trace")  # roles: what a run wrote, or reads as data


@dataclass(frozen=True)
class Ground:
    """The files of a run that a repair may change, and what they say now."""

    ws: Workspace
    reading: Settings
    sources: tuple[Source, ...]
    passed: tuple[str, ...] = ()  # records of the run: changing them changes nothing
    texts: dict[str, str] = field(default_factory=dict)
    given: frozenset[str] = frozenset()  # called like records, but a launch hands them to the training

    @cached_property
    def settings(self) -> list[Setting]:
        """What these files ask for."""
        names = {s.file.name for s in self.sources}
        return [s for s in self.reading.all if s.file.name in names and not s.used and s.note != "implied"]

    @cached_property
    def versions(self) -> dict[str, str]:
        """Package -> version, where the run tells one and only one."""
        told: dict[str, set[str]] = {}
        for v in read_environment(self.ws).versions:
            if not v.file.good:
                told.setdefault(v.package, set()).add(v.version)
        return {package: next(iter(found)) for package, found in told.items() if len(found) == 1}

    @cached_property
    def lints(self) -> list[Lint]:
        """What stands out in the settings as they are."""
        return list(lints(self.ws, self.reading))

    def now(self, name: str) -> Any:
        """The one value of a setting that these files ask for, or that the run used, or its default; else None.

        `DIFFERS` where they do not agree.
        """
        used = [s for s in self.reading.used(name) if not s.file.good]
        for found in ([s for s in self.settings if s.name == name and s.value != "auto"], used):
            distinct = {repr(s.value): s.value for s in found}
            if distinct:
                return next(iter(distinct.values())) if len(distinct) == 1 else DIFFERS
        defaults = (settings_map().default(name, s.framework) for s in self.sources if s.framework)
        return next((d for d in defaults if d is not None), None)

    def is_set(self, names: Iterable[str]) -> bool:
        """Whether any of these files asks for one of the settings."""
        return any(s.name in names for s in self.settings)


def ground(ws: Workspace, report: Report) -> Ground:
    """The files that a repair of this report's verdict may change, with their texts."""
    reading = read_settings(ws)
    variant, attempt = _which(report)
    others = _runs_inside(ws, reading.sources, report)
    sources, passed, texts, given = [], [], {}, set()
    seen: set[Path] = set()
    for source in sorted(reading.sources, key=lambda s: s.file.path.is_symlink()):
        file = source.file
        if not _may_change(source, variant, attempt) or _folder(file) in others:
            continue
        if (real := file.path.resolve()) in seen:
            continue
        seen.add(real)  # of two names of one file the link is passed over
        text = _text(file)
        if text is None:
            continue
        if is_record(file.name, text[:HEAD]):
            if not _is_given(ws, reading.sources, file.name, text):
                passed.append(file.name)
                continue
            given.add(file.name)
        sources.append(source)
        texts[file.name] = text
    return Ground(ws, reading, tuple(sources), tuple(passed), texts, frozenset(given))


def _which(report: Report) -> tuple[str | None, int | None]:
    """The variant and the attempt that the proof is of."""
    first = [link.evidence for link in report.chain if link.role == "cause"]
    cited = {e.id: e for e in report.evidence}
    proof = [cited[i] for i in first if i in cited]
    variant = next((e.variant for e in proof if e.variant), None)
    return variant, report.root_cause.first_failure.attempt


def _runs_inside(ws: Workspace, sources: Iterable[Source], report: Report) -> set[PurePosixPath]:
    """Folders of other runs that are kept inside this one: last week's to compare with, or what a run wrote itself.

    Such a folder has logs or metrics of its own, and a file of the same name as one further out, which is the one that
    the next start reads. Where the proof lies in such a folder alone, that run is what failed, and none is left out.
    """
    names = {PurePosixPath(s.file.name) for s in sources if not s.file.good}
    told = {_folder(f) for f in ws.by_role("log", "metrics") if not f.good}
    inside = {
        n.parent
        for n in names
        if n.parent in told and any(outer / n.name in names and outer in told for outer in n.parent.parents)
    }
    cited = {e.id: e.file for e in report.evidence if e.file}
    proof = {PurePosixPath(cited[link.evidence]).parent for link in report.chain if link.evidence in cited}
    return inside if not proof or proof - inside else set()


def _is_given(ws: Workspace, sources: Iterable[Source], name: str, text: str) -> bool:
    """Whether a launch script hands the file to the training: what is called like a record is then read again."""
    if is_record("settings", text[:HEAD]):
        return False  # its text is a record's, whatever it is called
    named = re.compile(_GIVEN.format(re.escape(name)))
    scripts = (s.file for s in sources if s.format == "shell" and not s.file.good)
    return any(named.search(ws.text(script, LARGEST)[:HEAD]) for script in scripts)


def _folder(file: RunFile) -> PurePosixPath:
    return PurePosixPath(file.name).parent


def _may_change(source: Source, variant: str | None, attempt: int | None) -> bool:
    file = source.file
    if file.good or source.format not in FORMS or file.role in _NEVER or file.path == STDIN or file.name == "stdin":
        return False
    if file.size > LARGEST or (file.variant is not None and file.variant != variant):
        return False
    return file.attempt is None or attempt is None or file.attempt == attempt


def _text(file: RunFile) -> str | None:
    """The file's text as it stands, without translation of line ends; None where it is no plain UTF-8 text."""
    try:
        data = file.path.read_bytes()
        return None if b"\0" in data else data.decode()
    except (OSError, UnicodeDecodeError):
        return None
