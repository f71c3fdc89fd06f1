"""All lints of a run's settings: conditions and folklore as data has them, and what is computed. Facts, not verdicts.

lints(workspace, read_settings(workspace))   -> [Lint, ...], one for each rule and text
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from .lint_arithmetic import arithmetic_lints
from .lint_places import Lint, place_lints
from .lint_values import value_lints
from .settings import Setting, Settings
from .settings_map import settings_map

if TYPE_CHECKING:
    from ..workspace import Workspace

KNOWLEDGE = Path(__file__).resolve().parent.parent.parent / "knowledge"


def lints(ws: Workspace, reading: Settings) -> Iterator[Lint]:
    """All lints of a reading, which need not be the run's own: `what_if` passes one with a setting changed."""
    seen: set[tuple[str, str]] = set()
    computed = (*arithmetic_lints(reading), *place_lints(ws, reading), *value_lints(ws, reading))
    for lint in (*_conditions(reading), *_folklore(reading), *computed):
        if (lint.rule, lint.says) not in seen:
            seen.add((lint.rule, lint.says))
            yield lint


@cache
def _data(name: str) -> Any:
    text = (KNOWLEDGE / name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _conditions(reading: Settings) -> Iterator[Lint]:
    mine = [s for s in reading.sources if not s.file.good and s.asks]
    by_name: dict[str, list[Setting]] = {}
    for s in reading.all:
        if not s.file.good:
            by_name.setdefault(s.name, []).append(s)
            if not s.known:
                by_name.setdefault("other." + s.name.rpartition(".")[2], []).append(s)
    for rule, cases in _data("lint.yaml").items():
        for case in cases:
            owners = [s for s in mine if s.framework and settings_map().owns(s.framework, case.get("of", ()))]
            if "of" in case and not owners:
                continue
            if any(settings_map().owns(s.framework, case.get("not_of", ())) for s in mine):
                continue
            if lint := _case(rule, case, by_name, [s.file.name for s in owners or mine]):
                yield lint


def _case(rule: str, case: dict[str, Any], by_name: dict[str, list[Setting]], searched: list[str]) -> Lint | None:
    cited: list[Setting] = []
    for condition in case["when"]:
        found = _meets(condition, by_name)
        if found is None:
            return None
        cited += found
    if any(_meets(condition, by_name) is not None for condition in case.get("unless", ())):
        return None
    values = {s.name: s.value for s in reversed(cited)}
    says = re.sub(r"\{(\w+)\}", lambda m: str(values.get(m[1], m[0]))[:80], case["says"])
    for name in case.get("cite", ()):
        cited += by_name.get(name, [])[:1]
    return Lint(rule, says, [(s.file, s.line) for s in cited], searched)


def _meets(condition: dict[str, Any], by_name: dict[str, list[Setting]]) -> list[Setting] | None:
    """The settings that meet a condition; an empty list for one that is met by nothing being there; None if not met."""
    side = condition.get("side", "asked")
    found = [s for s in by_name.get(condition["setting"], ()) if side == "any" or s.used == (side == "used")]
    if condition["op"] == "missing":
        return None if found else []
    fitting = [s for s in found if _OPS[condition["op"]](s.value, condition.get("value"))]
    return fitting or None


def _number(value: Any) -> float | None:
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 else None
    )


def _compare(test: Any) -> Any:
    return lambda v, want: (n := _number(v)) is not None and test(n, float(want))


_OFF = (False, None, 0, "", "none", "None", "false", "no", "off", "disabled")
_OPS: dict[str, Any] = {
    "eq": lambda v, want: v == want and isinstance(v, bool) == isinstance(want, bool),
    "ne": lambda v, want: v != want,
    "gt": _compare(lambda a, b: a > b), "ge": _compare(lambda a, b: a >= b),
    "lt": _compare(lambda a, b: a < b), "le": _compare(lambda a, b: a <= b),
    "between": lambda v, want: (n := _number(v)) is not None and want[0] <= n <= want[1],
    "matches": lambda v, want: v is not None and bool(re.search(want, str(v)[:500])),
    "present": lambda v, _want: v is not None,
    "truthy": lambda v, _want: v not in _OFF and not (isinstance(v, str) and v.startswith(("<", "$"))),
    "falsy": lambda v, _want: v in _OFF,
}  # fmt: skip


def _folklore(reading: Settings) -> Iterator[Lint]:
    frameworks = reading.frameworks
    for entry in _data("folklore.yaml"):
        pattern = re.compile(entry["spelled"])
        for s in reading.all:
            if s.file.good or not pattern.search(s.key):
                continue
            where = entry.get("in")
            if where and s.framework not in where and not (set(where) & frameworks and "env" not in where):
                continue
            if "value" in entry and not re.search(entry["value"], str(s.value)):
                continue
            yield Lint(
                "folklore_setting", f"{s.key}: {entry['says']}; what works: {entry['works']}", [(s.file, s.line)]
            )
