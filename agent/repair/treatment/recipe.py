"""A playbook's recipe in the numbers of this run: what each setting has to become."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ...core.playbook import Fix, SettingChange
from ...core.report import Report
from ...reading.run.files import RunFile
from ...reading.run.workspace import STDIN, Workspace
from ...reading.settings.lint_rules import Lint
from ...reading.settings.lints import lints
from ...reading.settings.settings import Setting, Settings, Source, read_settings
from ...reading.settings.settings_map import settings_map
from ...reading.settings.versions import read_environment
from ..patching.document import FORMS, HEAD, is_record
from ..patching.spelling import REMOVE

MICRO, STEPS = "micro_batch_size", "gradient_accumulation_steps"
Now = Callable[[str], Any]
Measured = Callable[[str, str], Any]
Change = SettingChange | bool | int | float | str


class _Differs:
    """Says that places of a run do not agree on a setting: equal to nothing, no number."""

    def __repr__(self) -> str:
        return "different values"


DIFFERS: Final = _Differs()


@dataclass(frozen=True, slots=True)
class Recipe:
    """Canonical setting -> value (or `REMOVE`), what it is now, and what could not be turned into a number."""

    values: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether the run has all of it already."""
        return bool(self.values) and not self.open and all(same(self.before[n], v) for n, v in self.values.items())


def same(now: Any, wanted: Any) -> bool:
    """Whether a setting has its value already. What stands nowhere is off."""
    if wanted is REMOVE:
        return now in (None, False)
    if isinstance(wanted, bool):
        return now is wanted or (now is None and not wanted)
    return now == wanted and not isinstance(now, bool)


def recipe(fix: Fix, now: Now, measured: Measured = lambda amount, name: None) -> Recipe:
    """The settings of a repair, computed from what holds now.

    Args:
        now: the value of a canonical setting, None where it is not known, `DIFFERS` where places do not agree.
        measured: the value that the evidence gives a setting, by the name of the amount; None where it gives none.
    """
    made = Recipe()
    pair = _batch_kept(fix.settings, now, made)
    for asked, change in fix.settings.items():
        if asked in pair:
            continue
        name, change = _in_steps(asked, change, now)
        before = now(name)
        amount = change.amount if isinstance(change, SettingChange) else ""
        told = measured(amount, name) if amount else None
        value = _value(name, change, now) if told is None else told
        if value is None:
            why = "differs between files" if before is DIFFERS else "is not known"
            if not amount:  # what the evidence does not tell is for another form of the failure
                made.open[name] = f"what {name} is now {why}"
        elif told is None and isinstance(value, str) and "<" in value:
            made.open[name] = f"{name} depends on your site: {value}"
        else:
            made.values[name], made.before[name] = value, before
    return made


def _batch_kept(settings: Mapping[str, Change], now: Now, made: Recipe) -> tuple[str, ...]:
    """Micro-batch and accumulation changed against each other so that their product stays, where both are asked for."""
    factors = [getattr(settings.get(name), "multiply", None) for name in (MICRO, STEPS)]
    if None in factors or not factors[0] or abs(factors[0] * factors[1] - 1) > 1e-9:
        return ()
    micro, steps = now(MICRO), now(STEPS) or 1
    if not _whole(micro) or not _whole(steps):
        made.open[MICRO] = f"the micro-batch {'differs between files' if micro is DIFFERS else 'is not known'}"
        return MICRO, STEPS
    micro, steps = int(micro), int(steps)
    smaller, larger = (micro, steps) if factors[0] < 1 else (steps, micro)
    share = min(f for f in factors if f)
    fitting = [d for d in range(1, smaller) if smaller % d == 0 and d <= max(1, smaller * share)]
    if not fitting:
        name = MICRO if factors[0] < 1 else STEPS
        made.open[name] = f"{name} is {smaller} already: the global batch cannot be kept with less"
        return MICRO, STEPS
    less, more = fitting[-1], larger * (smaller // fitting[-1])
    values = (less, more) if factors[0] < 1 else (more, less)
    made.values.update(zip((MICRO, STEPS), values, strict=True))
    made.before.update({MICRO: micro, STEPS: steps})
    return MICRO, STEPS


def _whole(value: Any) -> bool:
    """A count, also where the setting's type allows a share."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < 1 << 24 and float(value).is_integer()


def _in_steps(name: str, change: Change, now: Now) -> tuple[str, Change]:
    """A share of the run as steps, where the run counts its warmup in steps: newer trainers take nothing else."""
    total, steps = now("max_steps"), now("warmup_steps")
    least = change.at_least if isinstance(change, SettingChange) else None
    if name != "warmup_ratio" or least is None or not _whole(total) or (now(name) and not steps):
        return name, change
    return "warmup_steps", SettingChange(at_least=max(1, round(least * total)))


def _value(name: str, change: Change, now: Now) -> Any:
    """What a setting has to become; None where that cannot be computed."""
    if not isinstance(change, SettingChange):
        return change
    if change.remove:
        return REMOVE
    if change.product_of:
        factors = [now(other) for other in change.product_of]
        return math.prod(map(int, factors)) if all(map(_whole, factors)) else None
    before = now(name)
    number = isinstance(before, int | float) and not isinstance(before, bool)
    if change.at_least is not None:
        return before if number and before >= change.at_least else _typed(name, change.at_least)
    if change.at_most is not None:  # 0 and below switch a bound off
        return before if number and 0 < before <= change.at_most else _typed(name, change.at_most)
    if change.multiply is None:
        return change.set
    if not number or before <= 0:  # -1 stands for no limit
        return None
    return _typed(name, before * change.multiply, least=1)


def _typed(name: str, value: float, least: int = 0) -> int | float:
    """A number in the setting's own type; a computed share or rate keeps two digits."""
    if settings_map().canonical[name].type in ("int", "seconds"):
        return max(least, int(value))
    return float(f"{value:.2g}")


# ----------
# What of a run may be changed: its own configs, scripts and code, of the attempt and the variant that failed.

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
