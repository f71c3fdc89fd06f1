"""The settings map: what a framework's key is called canonically, and what type and unit its value has."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from ...core.errors import KnowledgeError
from ...core.own_files import KNOWLEDGE, cache_folder
from ..scan.patterns import keep, read_kept

# ----------
# Values of settings: what a piece of text means, within bounds.


VALUE_CAP = 2000  # characters of one value that are kept
DIGITS = 40  # an integer with more digits is kept as text: Python refuses to print what it parsed
LIST_CAP = 200


class _Unset(Enum):
    TOKEN = 0


UNSET: Final = _Unset.TOKEN
_TRUE, _FALSE = {"true", "yes", "on"}, {"false", "no", "off"}
_NONE = {"none", "null", "~", ""}
_INT = re.compile(rf"[+-]?\d[\d_]{{0,{DIGITS}}}\Z")
_FLOAT = re.compile(r"[+-]?(?:\d[\d_]{0,60}\.?\d{0,60}|\.\d{1,60})(?:[eE][+-]?\d{1,4})?\Z")
_SPECIAL = {".nan": math.nan, "nan": math.nan, ".inf": math.inf, "inf": math.inf, "-inf": -math.inf,
            "-.inf": -math.inf, "infinity": math.inf, "-infinity": -math.inf}  # fmt: skip
_GRES = re.compile(r"(?:gpu:)?(?:[\w.-]+:)?(\d+)(?:\(.*\))?\Z")
_CLOCK = re.compile(r"(\d+):(\d\d)(?::(\d\d))?\Z")


def parse(text: str, quoted: bool = False) -> Any:
    """A scalar as the plain formats mean it: bool, int, float, None or text. Quoted text stays text."""
    text = text.strip() if not quoted else text
    if quoted or len(text) > 100:
        return text[:VALUE_CAP]
    low = text.lower()
    if low in _NONE:
        return None
    if low in ("true", "false"):
        return low == "true"
    if _INT.match(text):
        return int(text.replace("_", ""))
    if low in _SPECIAL:
        return _SPECIAL[low]
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    return text


def as_type(value: Any, kind: str) -> Any:
    """A value in a canonical type where it fits, otherwise unchanged (so that a wrong type can be seen)."""
    if value is None or value is UNSET:
        return None
    if kind == "bool":
        return _as_bool(value)
    if kind in ("int", "float", "seconds"):
        return _as_number(value, kind)
    if kind == "list":
        return _as_list(value)
    return value if isinstance(value, bool | int | float) else (value if isinstance(value, list) else str(value))


def _as_bool(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    low = str(value).strip().lower()
    if low in _TRUE | {"1", "1.0"}:
        return True
    if low in _FALSE | {"0", "0.0", "none"}:
        return False
    return value


def _as_number(value: Any, kind: str) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        value = parse(value)
        if isinstance(value, str):
            return _odd_number(value, kind)
    if isinstance(value, float) and kind != "float" and value.is_integer() and abs(value) < 1e18:
        return int(value)
    return float(value) if kind == "float" and isinstance(value, int) and abs(value) < 1e18 else value


def _odd_number(text: str, kind: str) -> Any:
    """`gpu:a100:8` is eight; `00:30:00` is half an hour."""
    if kind == "seconds" and (m := _CLOCK.match(text)):
        return int(m[1]) * (3600 if m[3] else 60) + int(m[2]) * (60 if m[3] else 1) + int(m[3] or 0)
    if kind == "int" and text.startswith("gpu:") and (m := _GRES.match(text)):
        return int(m[1])
    return text


def _as_list(value: Any) -> Any:
    if isinstance(value, list):
        return value[:LIST_CAP]
    text = str(value).strip()
    if "," in text:
        return [part.strip(" '\"") for part in text.strip("[]()").split(",")[:LIST_CAP] if part.strip(" '\"")]
    return [text.strip("[]() '\"")] if text.strip("[]() '\"") else []


# ----------

MAP = KNOWLEDGE / "settings.yaml"
# Their short keys (`time`, `n`, `r`) mean something else elsewhere: never accepted in other files.
_PRIVATE = {"launcher", "slurm", "env", "peft", "tokenizer", "model", "llava"}
_META = {"type", "also", "default", "absent", "values", "min", "max", "instead", "needs", "acts", "sets", "several"}


@dataclass(frozen=True, slots=True)
class Spelling:
    """One way to write a canonical setting: the dotted tail of a key, how its value converts, what it must be like."""

    name: str
    segments: tuple[str, ...]
    scale: float = 1.0
    fixed: Any = UNSET
    invert: bool = False
    when: str = ""


@dataclass(frozen=True, slots=True)
class Canonical:
    """A setting as doctor names it."""

    name: str
    type: str
    default: dict[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    instead: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    spelled: dict[str, tuple[Spelling, ...]] = field(default_factory=dict)
    acts: dict[str, str] = field(default_factory=dict)
    sets: str = ""
    several: bool = False


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework, whose spellings it inherits, how one of its files is known, and what a program of it imports."""

    name: str
    extends: tuple[str, ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    words: tuple[str, ...] = ()
    imports: frozenset[str] = frozenset()
    acts: str = ""


def normal(key: str) -> str:
    """A key as it is compared: lower case, dashes as underscores, no leading dashes or pluses."""
    return key.strip().lstrip("-+~").lower().replace("-", "_").replace(" ", "_")


_part = cache(normal)  # for parts of the map's own spellings, which recur


class SettingsMap:
    """All canonical settings and their spellings."""

    def __init__(self, frameworks: list[Framework], canonical: list[Canonical], data: dict[str, Any]) -> None:
        self.frameworks = {f.name: f for f in frameworks}
        self.canonical = {c.name: c for c in canonical}
        self.switched: list[dict[str, list[str]]] = data["switched"]
        self.implies = {n: {str(k).lower(): v for k, v in by.items()} for n, by in data["implies"].items()}
        self.labels: dict[str, str] = data["labels"]
        self.families: dict[str, list[str]] = data["template_families"]
        self._tails: dict[str, dict[str, list[Spelling]]] = {}
        owners: dict[tuple[str, ...], set[str]] = {}
        loose: dict[tuple[str, ...], Spelling] = {}
        for c in canonical:
            for framework, spellings in c.spelled.items():
                for s in spellings:
                    kept_inside = s.segments[0].startswith("=")
                    clean = s
                    if kept_inside:
                        segments = (s.segments[0].lstrip("="), *s.segments[1:])
                        clean = replace(s, segments=segments)
                    self._add(framework, clean)
                    if framework != "also" and not kept_inside and framework not in _PRIVATE:
                        owners.setdefault(clean.segments, set()).add(c.name)
                        loose[clean.segments] = clean
        settled = {s.segments for found in self._tails.get("also", {}).values() for s in found}
        for segments, names in owners.items():
            if len(names) == 1 and segments not in settled:
                self._add("also", loose[segments])

    def _add(self, framework: str, spelling: Spelling) -> None:
        table = self._tails.setdefault(framework, {})
        table.setdefault(spelling.segments[-1], []).append(spelling)

    def resolve(self, framework: str, key: str, value: Any = UNSET) -> tuple[Spelling, bool] | None:
        """The spelling a key has, and whether it is the framework's own (not one accepted anywhere).

        Args:
            value: passes over spellings that mean other values, where it is given.
        """
        segments = tuple(normal(part) for part in key.split("."))
        for table in self.lineage(framework):
            if found := _longest(self._tails.get(table, {}).get(segments[-1], ()), segments, value):
                return found, True
        found = _longest(self._tails["also"].get(segments[-1], ()), segments, value)
        return (found, False) if found else None

    def lineage(self, framework: str) -> list[str]:
        """A framework and those that it extends."""
        known = self.frameworks.get(framework)
        return [framework, *(known.extends if known else ())] if framework else []

    def convert(self, spelling: Spelling, value: Any) -> Any:
        """A raw value in the canonical type, unit and wording."""
        c = self.canonical[spelling.name]
        if spelling.fixed is not UNSET:
            off = as_type(value, "bool")
            return False if off is False else spelling.fixed
        out = as_type(value, c.type)
        if spelling.invert and isinstance(out, bool):
            out = not out
        if spelling.scale != 1.0 and isinstance(out, int | float) and not isinstance(out, bool):
            out = out * spelling.scale
        if c.values and isinstance(out, str | bool | int | float):
            return c.values.get(str(out).lower(), out)
        return out

    def detect(self, keys: Iterable[str], text: str) -> str:
        """The framework a file speaks to, or an empty string."""
        joined = "\n" + "\n".join(f".{normal(k)}." for k in keys) + "\n"
        for f in self.frameworks.values():
            by_key = any(all(f".{part}." in joined for part in parts) for parts in f.keys)
            if by_key or any(w in text for w in f.words):
                return f.name
        return ""

    def imports(self, framework: str) -> set[str]:
        """Packages one of which a program of a framework imports; empty where that tells nothing."""
        return {name for f in self.lineage(framework) if f in self.frameworks for name in self.frameworks[f].imports}

    def acted_on(self, name: str, framework: str, calls: set[str] | None) -> bool:
        """Whether a program that makes these calls reads a setting, and does not set it by one (None: not known).

        Without a name: whether it uses the framework to train at all.
        """
        if calls is None:
            return True
        c, lineage = self.canonical.get(name) or Canonical("", "str"), self.lineage(framework)
        usual = next((self.frameworks[f].acts for f in lineage if f in self.frameworks and self.frameworks[f].acts), "")
        needed = next((c.acts[f] for f in lineage if f in c.acts), usual)
        if needed and not any(re.fullmatch(needed, called) for called in calls):
            return False
        return not (c.sets and any(re.fullmatch(c.sets, called) for called in calls))

    def owns(self, framework: str, wanted: Iterable[str]) -> bool:
        """Whether a framework, or one it extends, is among those named."""
        return bool(set(self.lineage(framework)) & set(wanted))

    def default(self, name: str, framework: str) -> Any:
        """The value that applies in a framework when nobody sets it; None when unknown."""
        defaults = self.canonical[name].default
        return next((defaults[f] for f in self.lineage(framework) if f in defaults), None)


def _longest(candidates: Iterable[Spelling], segments: tuple[str, ...], value: Any) -> Spelling | None:
    fitting = [s for s in candidates if segments[-len(s.segments) :] == s.segments]
    fitting = [s for s in fitting if not s.when or value is UNSET or re.fullmatch(s.when, str(value).strip(), re.I)]
    return max(fitting, key=lambda s: len(s.segments), default=None)


@cache
def settings_map(path: Path = MAP) -> SettingsMap:
    """The map of `knowledge/settings.yaml`, read once.

    Raises:
        KnowledgeError: the file is malformed.
    """
    data = _parsed(path)
    frameworks = [
        Framework(
            name, tuple(f.get("extends", ())),
            tuple(tuple(k.split(",")) for k in f.get("keys", ())), tuple(f.get("words", ())),
            frozenset(f.get("imports", ())), f.get("acts", ""),
        )
        for name, f in data["frameworks"].items()
    ]  # fmt: skip
    known = {f.name for f in frameworks}
    canonical = [_canonical(name, entry, known, path) for name, entry in data["settings"].items()]
    return SettingsMap(frameworks, canonical, data)


def _parsed(path: Path) -> dict[str, Any]:
    """The file as plain data. JSON of it is kept in the cache: YAML of this size costs fifty times as much."""
    text = path.read_bytes()
    kept_at = cache_folder() / f"settings-{hashlib.sha256(text).hexdigest()[:24]}.json"
    if (kept := read_kept(kept_at)) is None:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        kept = json.dumps(data).encode()
        keep(kept_at, kept)
    return json.loads(kept)


def _canonical(name: str, entry: dict[str, Any], frameworks: set[str], path: Path) -> Canonical:
    if unknown := set(entry) - _META - frameworks:
        raise KnowledgeError(f"{path}:1: {name}: unknown key {sorted(unknown)[0]!r}")
    spelled = {
        where: tuple(_spelling(name, s) for s in (entry[where] if isinstance(entry[where], list) else [entry[where]]))
        for where in entry
        if where in frameworks or where == "also"
    }
    return Canonical(
        name,
        entry["type"],
        default=entry.get("default", {}),
        absent=tuple(entry.get("absent", ())),
        values={str(k).lower(): v for k, v in entry.get("values", {}).items()},
        instead=tuple(entry.get("instead", ())),
        needs=tuple(entry.get("needs", ())),
        low=entry.get("min"),
        high=entry.get("max"),
        spelled=spelled,
        acts=entry.get("acts", {}),
        sets=entry.get("sets", ""),
        several=entry.get("several", False),
    )


def _spelling(name: str, spelled: str | dict[str, Any]) -> Spelling:
    if isinstance(spelled, str):
        return Spelling(name, tuple(_part(p) for p in spelled.split(".")))
    return Spelling(
        name, tuple(_part(p) for p in spelled["key"].split(".")), float(spelled.get("scale", 1)),
        spelled.get("as", UNSET), bool(spelled.get("invert")), spelled.get("when", ""),
    )  # fmt: skip


# ----------
# What every reader of settings yields: leaves of a file, each with the line it stands on.

LEAVES = 4000  # settings kept of one file
DEPTH = 64  # nesting that is followed
# Anything but \n that some parser counts as a line break, and control characters that YAML refuses.
_ODD = re.compile("\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One key with its value.

    `line` counts newlines from 1. `style` says how it is written (yaml, json, toml, flag, override, variable,
    keyword, assignment, table, log). `scope` is the framework where the reader knows it (env, launcher, slurm,
    deepspeed). `group` numbers the command or row it belongs to. `column` and `width` are where the value
    stands in the line (characters, 0 when unknown; a JSON array may end, and the
    value of a continued flag stand, on a later line), for patches. `node` is the expression of a value in Python.
    """

    key: str
    value: Any
    line: int
    style: str
    scope: str = ""
    group: str = ""
    column: int = 0
    width: int = 0
    used: bool = False
    note: str = ""
    node: ast.expr | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class Sheet:
    """The leaves of one file, keys given twice, and what could not be read; of Python the tree of the leaves."""

    leaves: list[Leaf] = field(default_factory=list)
    duplicates: list[tuple[str, int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    tree: ast.Module | None = field(default=None, compare=False, repr=False)

    @property
    def full(self) -> bool:
        return len(self.leaves) >= LEAVES

    def add(self, leaf: Leaf) -> None:
        """Keep a leaf, up to the cap, which is told once."""
        if not self.full:
            self.leaves.append(leaf)
            if self.full:
                self.problems.append(f"more than {LEAVES} settings, the rest was not read")


def plain(text: str) -> str:
    """Text in which only `\\n` breaks lines, of the same length."""
    return _ODD.sub(" ", text)
