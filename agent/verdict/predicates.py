"""Predicates over evidence: three answers (true, false, missing), and the evidence each answer stands on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from ..core.playbook import Predicate, quantity
from ..core.types import Evidence
from ..tools.tool import all_tools

State = Literal["true", "false", "missing"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a predicate came out, and the ids of the evidence that decided it."""

    state: State
    ids: tuple[str, ...] = ()


@dataclass(slots=True)
class Facts:
    """All evidence of a diagnosis, by key, and which tools looked at something."""

    by_key: dict[str, list[Evidence]] = field(default_factory=dict)
    looked: frozenset[str] = frozenset()

    @classmethod
    def of(cls, evidence: Iterable[Evidence], looked: Iterable[str] = ()) -> Facts:
        by_key: dict[str, list[Evidence]] = {}
        for e in evidence:
            by_key.setdefault(e.key, []).append(e)
        return cls(by_key, frozenset(looked))

    def get(self, key: str) -> list[Evidence]:
        """Evidence of a key; `namespace.*` gives all below it."""
        if key.endswith(".*"):
            return [e for k, found in self.by_key.items() if k.startswith(key[:-1]) for e in found]
        return self.by_key.get(key, [])

    def was_looked_for(self, key: str) -> bool:
        """Whether a tool that could have emitted the key looked at something and did not."""
        return any(name in self.looked for name in _emitters(key))


@cache
def _emitters(key: str) -> tuple[str, ...]:
    return tuple(name for name, t in all_tools().items() if t.allows(key))


def judge(predicate: Predicate, facts: Facts) -> Judgement:
    """Judge one predicate.

    `exists` on a key whose tool looked and found nothing is false; a comparison without a value is missing,
    as the value may simply not be printed anywhere.
    """
    found = facts.get(predicate.key)
    present = [e for e in found if e.kind != "absent"]
    absent = [e for e in found if e.kind == "absent"]
    if predicate.op == "exists":
        if present:
            return Judgement("true", _ids(present))
        known = absent or facts.was_looked_for(predicate.key)
        return Judgement("false", _ids(absent)) if known else Judgement("missing")
    if predicate.op == "absent":
        if absent and not present:
            return Judgement("true", _ids(absent))
        return Judgement("false", _ids(present)) if present else Judgement("missing")
    return _compare(predicate, found, facts)


def _compare(predicate: Predicate, found: list[Evidence], facts: Facts) -> Judgement:
    test = _TESTS[predicate.op]
    if predicate.than:
        pairs = [(e, o) for e in found for o in facts.get(predicate.than) if _comparable(predicate, e, o)]
        if not pairs:
            return Judgement("missing")
        good = [(e, o) for e, o in pairs if test(e.value, o.value)]
        if predicate.over == "all" and len(good) < len(pairs):
            good = []
        return Judgement("true" if good else "false", _ids([x for pair in good or pairs for x in pair]))
    known = [e for e in found if e.value is not None]
    if not known:
        return Judgement("missing")
    wanted = [quantity(v) for v in predicate.value] if isinstance(predicate.value, list) else quantity(predicate.value)
    good = [e for e in known if test(e.value, wanted)]
    if predicate.over == "all" and len(good) < len(known):
        good = []
    return Judgement("true" if good else "false", _ids(good or known))


def _comparable(predicate: Predicate, one: Evidence, other: Evidence) -> bool:
    if predicate.over == "same_rank":
        return one.rank == other.rank
    if predicate.over == "same_attempt":
        return one.attempt == other.attempt and one.variant == other.variant
    return True


def _ids(evidence: Iterable[Evidence]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e.id for e in evidence if e.id))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(quantity(value))
    except (TypeError, ValueError):
        return None


def _ordered(compare: Callable[[float, float], bool]) -> Callable[[Any, Any], bool]:
    def test(value: Any, wanted: Any) -> bool:
        left, right = _number(value), _number(wanted)
        return left is not None and right is not None and compare(left, right)

    return test


def _equal(value: Any, wanted: Any) -> bool:
    left, right = _number(value), _number(wanted)
    if left is not None and right is not None:
        return left == right or (left != left and right != right)  # "nan" is a symptom too
    if isinstance(value, bool) or isinstance(wanted, bool):
        return str(value).lower() == str(wanted).lower()
    return str(value).casefold() == str(wanted).casefold()


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, list):
        return any(_equal(v, wanted) for v in value)
    if isinstance(value, dict):
        return str(wanted) in value or any(_equal(v, wanted) for v in value.values())
    return str(wanted).casefold() in str(value).casefold()


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": _equal,
    "ne": lambda value, wanted: not _equal(value, wanted),
    "gt": _ordered(lambda a, b: a > b),
    "lt": _ordered(lambda a, b: a < b),
    "between": lambda value, wanted: (n := _number(value)) is not None and wanted[0] <= n <= wanted[1],
    "matches": lambda value, wanted: bool(_regex(str(wanted)).search(str(value))),
    "in": lambda value, wanted: any(_equal(value, w) for w in wanted),
    "contains": _contains,
}
