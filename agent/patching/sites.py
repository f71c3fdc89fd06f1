"""Which of the places that hold a setting is the one to change, and where its value really stands."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ..reading.settings_leaf import Leaf
from ..reading.settings_map import settings_map
from .document import Document, Found
from .literals import is_literal
from .model import Unplaced
from .spelling import lineage, table

_REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?[-=]([^}]*))?\})")
_TEMPLATE = re.compile(r"\$\{|\$\(|\$\w|`|\{\{|\{%|<[A-Za-z_]\w*>")
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


def standing(doc: Document, name: str, at: int = 0) -> list[Found]:
    """The places of a setting that a change of it has to reach; empty where it is not set.

    Args:
        at: only what stands on this line.

    Raises:
        Unplaced: it stands several times with different values, or twice in one place.
    """
    found = [f for f in doc.found if f.name == name and (not at or f.leaf.line == at)]
    set_here = {f.leaf.key for f in found}
    found = [f for f in found if not _template_of(f) & set_here]
    for keep in (_given, _own, _first_spelled):
        found = keep(doc, found) or found
    unique: dict[tuple[int, int], Found] = {}
    for f in found:
        unique.setdefault((f.leaf.line, f.leaf.column), f)
    if twice := _twice([f for f in found if f.leaf.note != "alias"]):
        raise Unplaced(f"`{twice}` stands twice in one place (lines {', '.join(str(f.leaf.line) for f in found)})")
    kept = list(unique.values())
    if len(kept) > 1 and len({repr(f.value) for f in kept}) > 1:
        where = ", ".join(f"line {f.leaf.line}: {f.leaf.value}" for f in kept[:4])
        raise Unplaced(f"it stands {len(kept)} times with different values ({where})")
    return kept


def _template_of(found: Found) -> set[str]:
    """The variable that a here-document takes a value from."""
    value = found.value
    m = _REFERENCE.fullmatch(value) if isinstance(value, str) and found.leaf.style in ("json", "yaml") else None
    return {m[1] or m[2]} if m else set()


def _given(doc: Document, found: list[Found]) -> list[Found]:
    return [f for f in found if f.leaf.style != "default"]


def _own(doc: Document, found: list[Found]) -> list[Found]:
    return [f for f in found if f.own]


def _first_spelled(doc: Document, found: list[Found]) -> list[Found]:
    """Of several ways to say one thing, the one that the map names first: `seq_length` before the positions."""
    if not found:
        return []
    spelled = settings_map().canonical[found[0].name].spelled
    order = [
        tuple(p.lstrip("=") for p in s.segments) for f in (*lineage(doc.framework), "also") for s in spelled.get(f, ())
    ]
    rank = {segments: i for i, segments in reversed(list(enumerate(order)))}
    best = min(rank.get(f.spelling.segments, len(order)) for f in found)
    return [f for f in found if rank.get(f.spelling.segments, len(order)) == best]


def _twice(found: list[Found]) -> str:
    """A key that one mapping, command or call gives twice: which of the two holds is the parser's secret."""
    seen: set[tuple[str, str, str]] = set()
    for f in found:
        leaf = f.leaf
        if leaf.style in ("keyword", "assignment", "dict", "default"):
            continue  # other calls and other scopes
        identity = (leaf.key, leaf.style, leaf.group)
        if identity in seen:
            return leaf.key
        seen.add(identity)
    return ""


def site(doc: Document, found: Found) -> Site:
    """Where the value of a found setting is written.

    Raises:
        Unplaced: it is computed, shared, or comes from outside the file.
    """
    leaf = found.leaf
    if leaf.note == "alias" or any(other.note == "alias" and _together(leaf, other) for other in doc.sheet.leaves):
        raise Unplaced("an anchor shares its value with other places")
    if doc.form == "python" and leaf.style == "default" and not leaf.width:
        raise Unplaced("it is a switch that code declares, off until it is given")
    if not leaf.width and leaf.value is None and doc.form == "yaml" and leaf.column:
        return _empty(doc, found)
    start, end = doc.span(leaf)
    if leaf.style == "flag" and isinstance(leaf.value, list) and settings_map().canonical[found.name].type != "list":
        raise Unplaced("more than one word stands behind the flag")
    if leaf.note == "switch":
        return Site(found, start, end)
    source = doc.text[start:end]
    if source.strip("\"'") == "auto" and leaf.style in ("json", "dict") and found.name in table()["by_trainer"]:
        raise Unplaced("it is `auto`: the trainer fills it in from its own arguments, so change it there")
    if source[:1] in "&!" and doc.form == "yaml":
        return _behind_anchor(doc, found, source, start, end)
    if doc.form == "python":
        return _python(doc, found, source, start, end)
    if doc.form in ("shell", "env") and "$" in source and leaf.style not in ("json", "yaml"):
        return _shell(doc, found, source, start, end)
    if _TEMPLATE.search(source):
        raise Unplaced(f"`{source[:60]}` is filled in from elsewhere")
    return Site(found, start, end)


def _together(leaf: Leaf, other: Leaf) -> bool:
    return (leaf.line, leaf.column) == (other.line, other.column)


def _empty(doc: Document, found: Found) -> Site:
    """The place behind the colon of a key without a value."""
    start = doc.lines.start(found.leaf.line) + found.leaf.column
    while start > 0 and doc.text[start - 1] in " \t":
        start -= 1
    if start == 0 or doc.text[start - 1] != ":":
        raise Unplaced("its value does not stand on one line by itself")
    return Site(found, start, start)


def _behind_anchor(doc: Document, found: Found, source: str, start: int, end: int) -> Site:
    m = re.match(r"&(\S+)[ \t]+(?=\S)", source)
    if not m or source[m.end() : m.end() + 1] in ("!", "&"):
        raise Unplaced("its value has a tag or an anchor of its own")
    if re.search(rf"\*{re.escape(m[1])}(?![\w\-])", doc.text):
        raise Unplaced(f"the anchor &{m[1]} shares its value with other places")
    return Site(found, start + m.end(), end)


def _python(doc: Document, found: Found, source: str, start: int, end: int) -> Site:
    if is_literal(source):
        return Site(found, start, end)
    if not source.isidentifier():
        raise Unplaced(f"`{source[:60]}` is computed")
    line = _bound_once(doc.clean, source)
    made = [
        leaf for leaf in doc.sheet.leaves if leaf.key == source and leaf.line == line and leaf.style == "assignment"
    ]
    if len(made) != 1 or not made[0].width or not is_literal(doc.source(made[0])):
        raise Unplaced(f"`{source}` is not set once, to a plain value, in this file")
    _alone(doc, found, source, re.compile(rf"\b{source}\b"), made[0])
    return Site(found, *doc.span(made[0]), source)


def _bound_once(text: str, name: str) -> int:
    """The line on which a module binds a name, where it does so once and nothing else in the file does; or 0."""
    tree, bound, line = ast.parse(text), 0, 0
    for node in ast.walk(tree):
        named = (
            node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del)
            else node.arg if isinstance(node, ast.arg)
            else (node.asname or node.name) if isinstance(node, ast.alias)
            else node.name if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler)
            else ""
        )  # fmt: skip
        bound += named == name
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name:
            line = node.lineno
    return line if bound == 1 else 0


def _shell(doc: Document, found: Found, source: str, start: int, end: int) -> Site:
    bare = source.strip("\"'") if source[:1] == source[-1:] else source
    m = _REFERENCE.fullmatch(bare)
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
    if _TEMPLATE.search(own) or leaf.note == "inside":
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
