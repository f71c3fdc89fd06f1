"""What has to hold in a file before a setting is written into it: a trainer that has it, a switch it depends on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..reading.settings_map import Spelling
from .document import Document
from .model import Unplaced
from .spelling import table


def admit(doc: Document, name: str, value: Any, act: str = "put", spelling: Spelling | None = None) -> None:
    """Let a setting be written, or say why not.

    Args:
        act: `put` where it is put in, `change` where it stands, `remove` where it is taken out.

    Raises:
        Unplaced: the file does not meet a condition of `knowledge/spelling.yaml`.
    """
    if why := unmet(doc, name, spelling, act, value):
        raise Unplaced(why)


def unmet(doc: Document, name: str, spelling: Spelling | None, act: str = "put", value: Any = None) -> str:
    """The reason of the first condition that the file does not meet; empty where it meets all."""
    asked = (c for c in _about(doc.framework, name, spelling, act) if value in c.get("only_to", (value,)))
    return next((c["why"] for c in asked if not _met(doc, c)), "")


def _about(framework: str, name: str, spelling: Spelling | None, act: str) -> Iterator[dict[str, Any]]:
    key = ".".join(p.lstrip("=") for p in spelling.segments) if spelling else ""
    for condition in table()["conditions"]:
        if "of" in condition and framework not in condition["of"]:
            continue
        if act not in condition.get("only", ("put", *condition.get("also", ()))):
            continue
        by_name = spelling is None and name in condition.get("settings", ())
        if by_name or (key and any(re.search(p, key) for p in condition.get("spellings", ()))):
            yield condition


def _met(doc: Document, condition: dict[str, Any]) -> bool:
    text = _words(doc)
    if "when" in condition and not _there(condition["when"], text):
        return True
    if "has" in condition and not _there(condition["has"], text):
        return False
    if "lacks" in condition and _there(condition["lacks"], text):
        return False
    standing = {f.name for f in doc.found}
    on = {f.name for f in doc.found if f.value not in (False, None, 0)}
    return set(condition.get("held", ())) <= on and not set(condition.get("unheld", ())) & standing


def _there(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.MULTILINE) is not None


def _words(doc: Document) -> str:
    """The text as conditions read it: lower case, `_` for `-`, without whole lines of comment."""
    rows = (row for row in doc.clean.lower().splitlines() if not row.lstrip().startswith(("#!", "//")))
    return "\n".join(rows).replace("-", "_")
