"""The text of a new value at the place of an old one."""

from __future__ import annotations

from typing import Any

from .document import Document
from .literals import WRITERS, as_inside, as_json, as_python, as_word, as_yaml
from .spelling import table
from .variables import Site


def literal(doc: Document, place: Site, raw: Any) -> str:
    """What to write at a place, in the format and style of what stands there."""
    leaf, old = place.found.leaf, place.source(doc)
    if leaf.note == "switch":
        return f"{old} {as_word(raw, '', True)}"
    if isinstance(raw, list) and not isinstance(leaf.value, list) and doc.form != "shell":
        raw = ",".join(map(str, raw))
    if isinstance(raw, float) and raw.is_integer() and not old and place.found.name in table()["whole"]:
        raw = int(raw)
    if place.variable and doc.form == "shell":
        return as_word(raw, old)
    if leaf.note in ("json", "escaped"):
        text = as_json(as_word(raw, "1") if leaf.style == "environment" else raw, old.replace('\\"', '"'))
        return text.replace('"', '\\"') if leaf.note == "escaped" else text
    if doc.form == "python" and leaf.style == "environment":
        return as_python(as_word(raw, old.strip("'\"") or "1"), old)
    if leaf.note == "inside":
        return as_inside(raw, old, isinstance(leaf.value, list))
    if doc.form == "shell" and leaf.style in ("json", "yaml"):
        return WRITERS[leaf.style](raw, old)
    if doc.form == "shell" and doc.text[place.start - 1] in "-=" and doc.text[place.end : place.end + 1] == "}":
        return as_inside(raw, old)
    if doc.form == "yaml" and place.start == place.end:
        return " " + as_yaml(raw)
    if doc.form in ("shell", "env") and leaf.style in ("environment", "env") and isinstance(raw, bool):
        return as_word(raw, old if old.strip("'\"") else "1")
    if doc.form == "shell":
        return as_word(raw, old, isinstance(leaf.value, list))
    return WRITERS[doc.form](raw, old)
