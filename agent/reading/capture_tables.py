"""The tables of `knowledge/captures.yaml`, read once."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import yaml

from ..errors import KnowledgeError
from ..playbook import KNOWLEDGE


@cache
def _raw() -> dict[str, Any]:
    text = (KNOWLEDGE / "captures.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def anchor_words() -> dict[str, list[str]]:
    """Literals by topic."""
    return _raw()["anchors"]


@cache
def patterns(table: str, ignore_case: bool = True) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """`(name, pattern)` rows of one table, in its order.

    Raises:
        KnowledgeError: a row holds no valid pattern.
    """
    rows = []
    for name, pattern in _raw()[table]:
        try:
            rows.append((name, re.compile(pattern, re.IGNORECASE if ignore_case else 0)))
        except re.error as e:
            raise KnowledgeError(f"captures.yaml: {table}: {name}: {e}") from None
    return tuple(rows)
