"""Values that come from a variable: the place where the variable is set, where that can be told and is not shared."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..reading.settings_leaf import Leaf
from .document import Document, Found
from .model import Unplaced
from .shell_places import blocks_of, parts
from .training_command import shell_of

REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?[-=]([^}]*))?\})")
TEMPLATE = re.compile(r"\$\{|\$\(|\$\w|`|\{\{|\{%|<[A-Za-z_]\w*>")
_SOURCED = re.compile(r"(?m)^\s*(?:source|\.)[ \t]+(?!\S*(?:activate|bashrc|profile|conda|module|lmod))\S")
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
    if _SOURCED.search(doc.clean) and (not made or _DEFAULT.match(doc.source(made[0]))):
        raise Unplaced(f"${variable} may be set in the file that the script sources")
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
    if doc.form == "shell" and _in_branch(doc, leaf):
        raise Unplaced(f"${variable} is set in a branch that may not run (line {leaf.line})")
    begin, stop = doc.span(leaf)
    if _used_elsewhere(doc, found, variable, (begin, stop)):
        return Site(found, start, end)  # the value itself in place of the variable, which stays for its other uses
    if d := _DEFAULT.match(own):
        return Site(found, begin + d.start(2), begin + d.end(2), variable)
    if TEMPLATE.search(own) or leaf.note == "inside":
        raise Unplaced(f"${variable} is itself filled in from elsewhere")
    return Site(found, begin, stop, variable)


def _assignments(doc: Document, variable: str) -> list[Leaf]:
    styles = ("variable", "environment", "env")
    return [leaf for leaf in doc.sheet.leaves if leaf.key == variable and leaf.style in styles]


def _in_branch(doc: Document, made: Leaf) -> bool:
    return any(b.startswith(("if", "case", "and")) for b in blocks_of(shell_of(doc.clean), made.group))


def _used_elsewhere(doc: Document, found: Found, variable: str, own: tuple[int, int]) -> bool:
    """Whether anything but this setting takes its value from a variable: another setting, a name, a sum."""
    same = [f for f in doc.found if f.name == found.name and f.leaf.width]
    same = [f for part in parts(doc, same) for f in part]
    spans = [own, *(s for f in same if REFERENCE.fullmatch(doc.text[slice(*(s := doc.span(f.leaf)))].strip('"')))]
    if doc.form == "shell":
        said = [e.words for e in shell_of(doc.clean).launched if e.words and e.words[0].text in ("echo", "printf")]
        spans += [(words[0].start, words[-1].end) for words in said]
    text = re.sub(r"(?m)(?:^|(?<=\s))#[^\n]*", lambda m: " " * len(m[0]), doc.clean)
    uses = rf"\$(?:{variable}\b|\{{[#!]?{variable}\b)|\(\((?:(?!\)\)).)*?(?<![$\w{{]){variable}\b"
    return any(
        not any(start <= m.start() and m.end() <= end for start, end in spans)
        for m in re.finditer(uses, text, re.DOTALL)
    )


def followers(doc: Document, variable: str) -> list[Leaf]:
    """Leaves whose value changes with a variable: the variable itself, and whatever is made with it."""
    uses = re.compile(rf"\$(?:{variable}\b|\{{{variable}\b)" if doc.form != "python" else rf"\b{variable}\b")
    return [leaf for leaf in doc.sheet.leaves if leaf.key == variable or (leaf.width and uses.search(doc.source(leaf)))]
