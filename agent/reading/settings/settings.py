"""All settings of a run: what was asked for in files and commands, what the run printed that it used.

reading = read_settings(workspace)
reading.asked("learning_rate")     -> [Setting, ...] in file order, what somebody set
reading.used("gradient_clip_norm") -> [Setting, ...] what the log says
reading.value("zero_stage")        -> the one value, used before asked; None when unset or ambiguous
setting.place                      -> where a patch would write
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...core.errors import ParseError
from ...core.types import Value
from ..run.files import Line, RunFile, lines
from ..run.metric_names import normal as metric_label
from ..run.metric_names import setting
from .forms.settings_files import CONFIG_CAP, head, share, sheet_of
from .settings_map import UNSET, Leaf, Spelling, normal, settings_map

if TYPE_CHECKING:
    from ..run.workspace import Workspace

FILES = 400  # files that are read for settings
LOG_BUDGET = 1 << 20  # bytes of one log that are looked at
TOTAL_BUDGET = 32 << 20  # bytes of all files together
_TRAINS = re.compile(r"\.backward\(|optimizer\.step\(|[Tt]rainer\(|def training_step")
_ONLY_KNOWN = {"note", "table", "assignment", "variable", "dict", "default"}
_OFTEN_UNKNOWN = ("Config", "Arguments", "Args", "Trainer", "LLM", "Params", "Loader", "Dataset")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a setting is written, for patches: format, style, dotted key, line, column and width of the value.

    Column and width count characters of the line and are 0 where the value has no place of its own.
    """

    format: str
    style: str
    key: str
    line: int
    column: int = 0
    width: int = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it stands in one line of one file.

    `name` is canonical, or `other.<key>` for a key the map does not know. `used` tells what the run printed
    from what was asked for; `default` marks a default in code that nothing overrides.
    """

    name: str
    value: Any
    key: str
    framework: str
    file: RunFile
    line: Line
    place: Place
    used: bool = False
    own: bool = True
    group: str = ""
    note: str = ""

    @property
    def known(self) -> bool:
        return not self.name.startswith("other.")

    @property
    def default(self) -> bool:
        return self.place.style == "default"


@dataclass(frozen=True, slots=True)
class Source:
    """A file that settings were read from.

    `asks` where it sets any, rather than only printing some; `trains` where its text has a training loop or trainer.
    """

    file: RunFile
    format: str
    framework: str
    asks: bool = True
    trains: bool = False


@dataclass(slots=True)
class Settings:
    """The reading. `problems` are one line each: `file: line N: what is wrong`."""

    all: list[Setting] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    duplicates: list[tuple[RunFile, str, Line, Line]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def asked(self, name: str, run: str = "") -> list[Setting]:
        return [s for s in self.all if s.name == name and not s.used and (not run or s.file.run == run)]

    def used(self, name: str, run: str = "") -> list[Setting]:
        return [s for s in self.all if s.name == name and s.used and (not run or s.file.run == run)]

    def value(self, name: str) -> Any:
        """What holds for the run: the one value printed, or else the one value asked for."""
        for found in (self.used(name), self.asked(name)):
            distinct = {repr(s.value): s.value for s in found if not s.file.good}
            if distinct:
                return next(iter(distinct.values())) if len(distinct) == 1 else None
        return None

    @property
    def frameworks(self) -> set[str]:
        return {s.framework for s in self.sources if s.framework}


def read_settings(ws: Workspace) -> Settings:
    """Read every file of the run that can hold settings, once."""
    return ws.memo("settings", lambda: _read(ws))


def _read(ws: Workspace) -> Settings:
    out, budget = Settings(), TOTAL_BUDGET
    candidates = sorted(ws.files, key=lambda f: (f.role in ("log", "metrics", "other"), f.name))
    if len(candidates) > FILES:
        out.problems.append(f"{len(candidates) - FILES} of {len(candidates)} files were not read for settings")
    log_limit = share(candidates[:FILES], LOG_BUDGET, TOTAL_BUDGET // 2)
    for file in candidates[:FILES]:
        limit = log_limit if file.role in ("log", "metrics", "other", "capture") else CONFIG_CAP
        try:
            lines = head(ws.lines(file), min(limit, budget))
        except (ParseError, OSError, EOFError, ValueError) as e:
            out.problems.append(f"{file.name}: {e}"[:300])
            continue
        budget -= sum(len(line.data) for line in lines)
        if file.role == "config" and file.size > CONFIG_CAP:
            out.problems.append(f"{file.name}: over {CONFIG_CAP >> 20} MiB, read in part")
        read_lines(file, lines, out)
    out.all = _settled(out.all)
    return out


def read_lines(file: RunFile, lines: list[Line], out: Settings) -> None:
    """Add the settings in the lines of one file to a reading."""
    answer = sheet_of(file, lines)
    if answer is None:
        return
    form, sheet = answer
    by_number = {line.number: line for line in lines}
    framework = ""
    if sheet.leaves:
        text = "\n".join(line.text[:400] for line in lines[:4000])
        framework = settings_map().detect((leaf.key for leaf in sheet.leaves), text)
        asks = any(not leaf.used and leaf.scope != "env" for leaf in sheet.leaves)
        out.sources.append(Source(file, form, framework, asks, bool(_TRAINS.search(text))))
    out.problems += [f"{file.name}: {p}" for p in sheet.problems]
    for key, first, second in sheet.duplicates[:50]:
        if first in by_number and second in by_number:
            out.duplicates.append((file, key, by_number[first], by_number[second]))
    for leaf in sheet.leaves:
        if leaf.line in by_number:
            out.all += _settings(leaf, file, form, framework, by_number[leaf.line])


def _settings(leaf: Leaf, file: RunFile, form: str, framework: str, line: Line) -> Iterator[Setting]:
    scope = leaf.scope or framework
    known = settings_map()
    value = leaf.value
    if isinstance(value, float) and not math.isfinite(value):
        value = str(value)
    place = Place(form, leaf.style, leaf.key, leaf.line, leaf.column, leaf.width)
    found = resolved(leaf, scope)
    if found and (made := canonical_value(found, value)) is not None:
        name, converted = made
        base = Setting(name, converted, leaf.key, scope, file, line, place, leaf.used, found[1], leaf.group, leaf.note)
        yield base
        for other, implied in known.implies.get(name, {}).get(str(converted).lower(), {}).items():
            yield Setting(
                other, implied, leaf.key, scope, file, line, place, leaf.used, found[1], leaf.group, "implied"
            )
    elif leaf.style not in _ONLY_KNOWN and _worth_keeping(leaf):
        key = ".".join(normal(p) for p in leaf.key.split("."))[:160]
        yield Setting(
            f"other.{key}", value, leaf.key, scope, file, line, place, leaf.used, False, leaf.group, leaf.note
        )


def resolved(leaf: Leaf, scope: str) -> tuple[Spelling, bool] | None:
    """The spelling of a leaf; a keyword may be spelled with its call: `Trainer(devices=8)` is `trainer.devices`.

    A switch `--no-x` that the map does not know says no to `x`.
    """
    known = settings_map()
    found = known.resolve(scope, leaf.key)
    if found is None and leaf.note == "switch" and leaf.key[:3] in ("no-", "no_"):
        found = known.resolve(scope, leaf.key[3:])
        plain = found is not None and found[0].fixed is UNSET and isinstance(known.convert(found[0], False), bool)
        return (replace(found[0], invert=not found[0].invert), found[1]) if found and plain else None
    if found is None and leaf.style == "keyword" and leaf.note:
        found = known.resolve(scope, f"{leaf.note}.{leaf.key}")
        return found if found and found[1] else None
    return found


def canonical_value(found: tuple[Spelling, bool], value: Any) -> tuple[str, Any] | None:
    """Name and converted value; None where a key that is only accepted anywhere carries something else."""
    spelling, own = found
    kind = settings_map().canonical[spelling.name].type
    if isinstance(value, str) and (value.endswith("(...)") or (value.startswith("<") and value.endswith(">"))):
        return None
    converted = settings_map().convert(spelling, value)
    if own or converted is None:
        return spelling.name, converted
    numeric = isinstance(converted, int | float) and not isinstance(converted, bool)
    fits = {
        "int": numeric, "float": numeric, "seconds": numeric, "bool": isinstance(converted, bool),
        "str": not numeric or spelling.name in ("precision", "quantization"), "list": isinstance(converted, list),
    }[kind]  # fmt: skip
    placeholder = isinstance(converted, str) and (converted == "auto" or converted.startswith(("$", "${", "{{")))
    return (spelling.name, converted) if fits or placeholder else None


def _worth_keeping(leaf: Leaf) -> bool:
    if leaf.style == "keyword":
        return leaf.note.endswith(_OFTEN_UNKNOWN)
    return leaf.style != "log" or leaf.used


def _settled(found: list[Setting]) -> list[Setting]:
    """Without what is printed twice the same in one file, and without code defaults that something overrides."""
    given = {(s.name, s.file.run) for s in found if s.known and not s.default and not s.used}
    seen: set[tuple[str, str, str, bool, int]] = set()
    out = []
    for s in found:
        if s.default and (s.name, s.file.run) in given:
            continue
        identity = (s.name, repr(s.value), s.file.name, s.used, 0 if s.used else s.line.number)
        if identity not in seen:
            seen.add(identity)
            out.append(s)
    return out


def plain_value(value: object) -> Value:
    """A value that evidence can carry."""
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, list):
        return [v if isinstance(v, bool | int | float | str) else str(v) for v in value]
    return str(value)


# ----------
# What a README says a run was made with, against what this run is told: the setting that was not copied.

READ = 64 << 10  # bytes of one such file
_PAGE = re.compile(r"(?i)(?:^|/)(?:readme|model_?card|reproduc\w*|recipe\w*|training|notes?)[\w.-]*\.(?:md|rst|txt)$")
_PAIR = re.compile(
    r"(?<![\w.])-{0,2}(?P<key>[A-Za-z][A-Za-z0-9_-]{1,30})(?: of| is|:| ?=)? ?`?"
    r"(?P<value>\d+(?:\.\d+)?(?:[eE]-?\d+)?)\b"
)
_AGREE = 2  # settings that a page and the run have alike, before the page is taken for one about this run
_APART = 2  # settings in which they may differ; a page of another experiment differs in many


@dataclass(frozen=True, slots=True)
class Undone:
    """A setting as it is documented and as it is, with the lines of both."""

    name: str
    documented: float
    set: float
    places: tuple[tuple[RunFile, Line], ...]


def documented(ws: Workspace) -> Iterator[Undone]:
    """Settings of the run that differ from those a page of it names, where the page agrees with the run otherwise."""
    for page in ws.files:
        if page.good or not _PAGE.search(page.name) or page.size > READ:
            continue
        said = _said(ws, page)
        own = _own(ws, page)
        both = [key for key in said if key in own]
        apart = [key for key in both if said[key][0] != own[key][1]]
        if len(both) - len(apart) >= _AGREE and 0 < len(apart) <= _APART:
            for key in apart:
                setting, value = own[key]
                places = ((setting.file, setting.line), (page, said[key][1]))
                yield Undone(setting.key, said[key][0], value, places)


def _said(ws: Workspace, page: RunFile) -> dict[str, tuple[float, Line]]:
    """Names with the one number that the page gives them."""
    found: dict[str, list[tuple[float, Line]]] = defaultdict(list)
    for line in ws.lines(page):
        for m in _PAIR.finditer(line.text[:4000]):
            found[m["key"].lower().replace("-", "_")].append((float(m["value"]), line))
    return {key: pairs[0] for key, pairs in found.items() if len({value for value, _ in pairs}) == 1}


def _own(ws: Workspace, page: RunFile) -> dict[str, tuple[Setting, float]]:
    """The run's settings by the last part of their key, where they have one value."""
    found: dict[str, list[tuple[Setting, float]]] = defaultdict(list)
    for s in read_settings(ws).all:
        if s.file is page or s.file.good or s.default or isinstance(s.value, bool):
            continue
        if isinstance(s.value, int | float):
            found[s.key.rpartition(".")[2].lower().replace("-", "_")].append((s, float(s.value)))
    return {key: pairs[0] for key, pairs in found.items() if len({value for _, value in pairs}) == 1}


# ----------
# Numbers that a run's configs, launch lines and log heads set, as `key: number` with their lines.
#
# A cheap reading of its own, for arithmetic on curves (a plateau at ln(batch size), a ratio equal to a parallel
# size). The settings proper, with types and owners, are read elsewhere.

_PLAIN_PAIR = re.compile(
    rb"(?<![\w.-])(?:--?)?([A-Za-z][A-Za-z0-9_.\- ]{1,60}?)['\"]?\s{0,3}(?:\.{2,80}|[:= ])\s{0,3}['\"]?"
    rb"(\d{1,9}(?:\.\d{1,12})?(?:e-?\d{1,3})?)(?![\w.%])"
)
_SUFFIXES = {
    ".yaml",
    ".yml",
    ".json",
    ".toml",
    ".sh",
    ".py",
    ".txt",
    ".log",
    ".out",
    ".cfg",
    ".ini",
    ".sbatch",
    ".slurm",
}
_HEAD_LINES = 400  # lines of a log that may print settings
_CONFIG_LIMIT = 1 << 20


@dataclass(frozen=True)
class PlainSetting:
    """A number by its canonical name where it has one, with the line that sets it."""

    name: str
    raw: str
    value: float
    file: RunFile
    line: Line


def plain_settings(ws: Workspace) -> list[PlainSetting]:
    """Numeric settings in all configs and log heads, in file order."""
    return ws.memo("plain_settings", lambda: _read_plain(ws))


def _read_plain(ws: Workspace) -> list[PlainSetting]:
    found: list[PlainSetting] = []
    for file in ws.files:
        if file.path.suffix.lower() not in _SUFFIXES or (
            file.role not in ("log", "config", "code", "other", "capture")
        ):
            continue
        if file.role != "log" and file.size > _CONFIG_LIMIT:
            continue
        for line in lines(file.path):
            if line.number > _HEAD_LINES and file.role == "log":
                break
            if len(line.data) > 8192 or not any(48 <= c < 58 for c in line.data):
                continue
            found += _of_line(file, line)
            if len(found) > 20_000:
                return found
    return found


def _of_line(file: RunFile, line: Line) -> list[PlainSetting]:
    found = []
    for m in _PLAIN_PAIR.finditer(line.data):
        raw = m[1].decode(errors="replace").strip(" '\"-")
        name = _canonical(raw)
        if name:
            found.append(PlainSetting(name, raw, float(m[2]), file, line))
    return found


def _canonical(raw: str) -> str | None:
    words = metric_label(raw).split("_")
    for cut in range(len(words)):
        found = setting("_".join(words[cut:]))
        if found and (cut == 0 or len(words) - cut > 1):
            return found
    return None
