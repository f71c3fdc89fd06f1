"""Values that come from a variable: the place where the variable is set, where that can be told and is not shared."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..reading.settings_leaf import Leaf
from .document import Document, Found
from .model import Unplaced

REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?[-=]([^}]*))?\})")
TEMPLATE = re.compile(r"\$\{|\$\(|\$\w|`|\{\{|\{%|<[A-Za-z_]\w*>")
_DEFAULT = re.compile(r"(['\"]?)\$\{\w+:?[-=]([^${}]*)\}\1\Z")


@dataclass(frozen=True, slots=True)
class Site:
    """Where a value is written: the setting's own place, or that of the variable it is taken from."""

    found: Found
    start: int
    end: int
    variable: str = ""

    def source(self, doc: Document) -> str:
        return doc.text[self.start : self.end]


def shell_site(doc: Document, found: Found, source: str, start: int, end: int) -> Site:
    """The place where the variable of a `$NAME` is set, or the default of a `${NAME:-default}`."""
    bare = source.strip("\"'") if source[:1] == source[-1:] else source
    m = REFERENCE.fullmatch(bare)
    if not m or source[:1] == "'":
        raise Unplaced(f"`{source[:60]}` is filled in from elsewhere")
    variable = m[1] or m[2]
    made = _assignments(doc, variable)
    if not made and (d := _DEFAULT.match(source)):
        return Site(found, start + d.start(2), start + d.end(2))
    if len(made) != 1 or re.search(rf"\bfor\s+{variable}\s+in\b|\bread\b[^\n]*\b{variable}\b", doc.text):
        raise Unplaced(f"${variable} is not set once, to a plain value, in this file")
    leaf = made[0]
    own = doc.source(leaf)
    if leaf.line == found.leaf.line and leaf.column == found.leaf.column:  # X=${X:-1}
        d = _DEFAULT.match(source)
        if not d:
            raise Unplaced(f"`{source[:60]}` is filled in from elsewhere")
        return Site(found, start + d.start(2), start + d.end(2))
    if found.leaf.line < leaf.line and leaf.group != found.leaf.group and found.leaf.group.isdigit():
        raise Unplaced(f"${variable} is set only after it is used")
    uses = re.compile(rf"\$(?:{variable}\b|\{{{variable}\b)")
    _alone(doc, found, f"${variable}", uses, leaf)
    begin, stop = doc.span(leaf)
    if d := _DEFAULT.match(own):
        return Site(found, begin + d.start(2), begin + d.end(2), variable)
    if TEMPLATE.search(own) or leaf.note == "inside":
        raise Unplaced(f"${variable} is itself filled in from elsewhere")
    return Site(found, begin, stop, variable)


def _assignments(doc: Document, variable: str) -> list[Leaf]:
    styles = ("variable", "environment", "env")
    return [leaf for leaf in doc.sheet.leaves if leaf.key == variable and leaf.style in styles]


def _alone(doc: Document, found: Found, shown: str, uses: re.Pattern[str], made: Leaf) -> None:
    """No other setting may take its value from the same variable."""
    for other in doc.found:
        leaf = other.leaf
        if other.name != found.name and leaf.width and leaf is not made and uses.search(doc.source(leaf)):
            raise Unplaced(f"{shown} also sets `{leaf.key}` (line {leaf.line})")


def followers(doc: Document, variable: str) -> list[Leaf]:
    """Leaves whose value changes with a variable: the variable itself, and whatever is made with it."""
    uses = re.compile(rf"\$(?:{variable}\b|\{{{variable}\b)" if doc.form != "python" else rf"\b{variable}\b")
    return [leaf for leaf in doc.sheet.leaves if leaf.key == variable or (leaf.width and uses.search(doc.source(leaf)))]
