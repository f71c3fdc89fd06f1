"""The names of `knowledge/profiles.yaml`: which event of a profiler stands for which part of a step."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import yaml

from ..playbook import KNOWLEDGE


@cache
def _raw() -> dict[str, Any]:
    text = (KNOWLEDGE / "profiles.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def rows(table: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """`(part, pattern)` rows of one table, in its order."""
    return tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _raw()[table])


@cache
def single(name: str) -> re.Pattern[str]:
    """A pattern that stands alone."""
    return re.compile(_raw()[name])


def part_of(name: str, table: str = "names") -> str | None:
    """The part of a step that a name stands for."""
    return next((part for part, pattern in rows(table) if pattern.search(name)), None)
