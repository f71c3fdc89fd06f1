"""From a canonical value to the word a framework has for it: unit, switch, fixed meaning, style of the word."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ..reading.settings_leaf import Leaf
from ..reading.settings_map import Canonical, Spelling, settings_map
from ..reading.settings_values import UNSET
from .model import Unplaced, same

TABLE = Path(__file__).resolve().parent.parent.parent / "knowledge" / "spelling.yaml"


class _Drop:
    """Says that a value is written by not being there: a switch that is off."""


DROP = _Drop()


@cache
def table() -> dict[str, Any]:
    """`knowledge/spelling.yaml`, read once."""
    return yaml.load(TABLE.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def lineage(framework: str) -> list[str]:
    """A framework and those whose spellings it inherits."""
    known = settings_map().frameworks.get(framework)
    return [framework, *(known.extends if known else ())]


def among(framework: str, names: list[str]) -> bool:
    """Whether a framework, or one it extends, is in a list of the table."""
    return any(f in names for f in lineage(framework))


def listed(table_name: str, framework: str) -> Any:
    """What the table says about the framework or, where it says nothing, about one it extends."""
    by = table()[table_name]
    return next((by[f] for f in lineage(framework) if f in by), None)


def wanted(name: str, value: Any) -> Any:
    """A value as the map would read it: `true` for the optimizer's offload means `cpu`."""
    if isinstance(value, bool) and settings_map().canonical[name].type == "list":
        return value  # a switch that stands for a list
    return settings_map().convert(Spelling(name, (name,)), value)


def raw_value(spelling: Spelling, scope: str, value: Any, old: Leaf | None = None) -> Any:
    """What to write for a canonical value at one spelling: a plain value, or `DROP`.

    Raises:
        Unplaced: this spelling has no word for the value.
    """
    canonical = settings_map().canonical[spelling.name]
    if spelling.fixed is not UNSET:
        if value is False or same(value, spelling.fixed):
            return value is not False
        raise Unplaced(f"{spelling.segments[-1]} can only say {spelling.fixed}")
    if spelling.invert:
        if not isinstance(value, bool):
            raise Unplaced(f"{spelling.segments[-1]} is a switch")
        return not value
    if spelling.scale != 1.0 and isinstance(value, int | float) and not isinstance(value, bool):
        return _scaled(value / spelling.scale, canonical.type)
    return _word(canonical, spelling, scope, value, old)


def _scaled(value: float, kind: str) -> int | float:
    """A value in another unit; a whole number where the setting is one, never less than was asked for."""
    return math.ceil(value - 1e-9) if kind in ("int", "seconds") else value


def _word(canonical: Canonical, spelling: Spelling, scope: str, value: Any, old: Leaf | None) -> Any:
    told = table()["words"].get(canonical.name, {})
    by = told.get(spelling.segments[-1])
    words = next((told[f] for f in lineage(scope) if f in told), None)
    if by is None and old is None:
        by = words
    if by is not None and not isinstance(value, list) and _fits(old, by):
        if value in by:
            return DROP if by[value] is None else by[value]
        open_ended = canonical.name not in table()["closed"] and not by.keys() <= {"cpu", False}
        if value not in (True, False) and open_ended:
            return value
        raise Unplaced(f"{spelling.segments[-1]} has no word for {value}")
    if old is not None and (word := _of_family(canonical.name, scope, value, old)) is not None:
        return word
    if old is not None and words is not None and isinstance(old.value, str) and value in words:
        return words[value]
    if words is not None and value not in words and canonical.name in table()["closed"]:
        raise Unplaced(f"{spelling.segments[-1]} has no word for {value}")
    switched = any(isinstance(v, bool) for v in canonical.values.values())
    if old is not None and isinstance(old.value, bool) and isinstance(value, str) and not switched:
        raise Unplaced(f"a switch stands there, and what it takes for {value} is not known")
    back = settings_map().convert(spelling, value)
    if same(back, value):
        return value
    for word in canonical.values:
        if same(settings_map().convert(spelling, word), value):
            return word
    raise Unplaced(f"{spelling.segments[-1]} has no word for {value}")


def _of_family(name: str, scope: str, value: Any, old: Leaf) -> Any:
    """The word for a value in the style of the one that stands there, if the framework takes it; or None."""
    if isinstance(old.value, bool) or not isinstance(old.value, str | int):
        return None
    stands = str(old.value).lower()
    by = table()["accepted"].get(name, {})
    accepted = next((by[f] for f in lineage(scope) if f in by), None)
    for family in table()["families"].get(name, ()):
        word = family.get(value)
        if word is None or (accepted is not None and word not in accepted):
            continue
        if stands in (str(w).lower() for w in family.values()):
            return int(word) if isinstance(old.value, int) and word.isdigit() else word
    return None


def _fits(old: Leaf | None, by: dict[Any, Any]) -> bool:
    """Whether the words of the table are of the kind that stands there: a switch stays a switch."""
    if old is None or old.value is None:
        return True
    return any(isinstance(w, bool) for w in by.values()) == isinstance(old.value, bool)


def candidates(framework: str, name: str) -> list[tuple[str, Spelling]]:
    """Spellings that a setting could be put in by, best first, each with the scope it belongs to."""
    spelled = settings_map().canonical[name].spelled
    own = [(f, _clean(s)) for f in lineage(framework) for s in spelled.get(f, ())]
    first = (listed("preferred", framework) or {}).get(name)
    own.sort(key=lambda each: ".".join(each[1].segments) != first)
    if own or not among(framework, table()["shared_for"].get(name, lineage(framework))):
        return own
    shared = [f for f in ("launcher", "slurm") if f in spelled] or ["env"]
    return [(f, _clean(s)) for f in shared if f != framework for s in spelled.get(f, ())]


def _clean(spelling: Spelling) -> Spelling:
    head, *rest = spelling.segments
    return Spelling(spelling.name, (head.lstrip("="), *rest), spelling.scale, spelling.fixed, spelling.invert)


def whole_key(framework: str, spelling: Spelling) -> tuple[str, ...]:
    """A spelling with what stands above it in a whole file of the framework."""
    prefixes = listed("prefixes", framework) or {}
    prefix = prefixes.get(spelling.segments[0])
    if prefix is None and "*" in prefixes and len(spelling.segments) == 1:
        return (*prefixes["*"].split("."), *spelling.segments)
    return (*prefix.split("."), *spelling.segments[1:]) if prefix else spelling.segments
