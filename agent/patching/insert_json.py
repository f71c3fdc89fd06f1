"""Putting a member into a JSON text: after the last member of its object, in the layout of its neighbours."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from ..reading.settings_json import TOKEN
from .model import Splice, Unplaced

Path = tuple[str, ...]
_REST = re.compile(r"(?:[ \t]|/\*(?:[^*\n]|\*(?!/))*\*/)*(?:(?://|\#)[^\n]*?)?(?=\r?\n|\Z)")


@dataclass(slots=True)
class Braces:
    """An object: where it opens and closes, its first key, the end of its last member, the comma behind that."""

    open: int
    close: int = -1
    first: int = -1
    last: int = -1
    comma: int = -1  # the position behind it
    scalars: set[str] = field(default_factory=set)


def put_json(text: str, path: Path, value: str, newline: str) -> list[Splice]:
    """Splices that set `path` to a value, given as JSON; missing objects are made.

    Raises:
        Unplaced: what stands on the way is no object.
    """
    objects = _objects(text)
    if () not in objects:
        raise Unplaced("the file holds no JSON object")
    depth = max(n for n in range(len(path)) if path[:n] in objects)
    home = objects[path[:depth]]
    if path[depth] in home.scalars:
        raise Unplaced(f"`{'.'.join(path[: depth + 1])}` is no object")
    outer, unit = _layout(text, home)
    spread = "\n" in text[home.open : home.close] and (home.first < 0 or "\n" in text[home.open : home.first])
    member = _member(path[depth:], value, outer + unit if spread else "", unit, newline, spread)
    lead = newline + outer + unit if spread else ""
    if home.last < 0:
        inside = text[home.open + 1 : home.close]
        if inside.strip():  # comments alone
            return [Splice(home.close, home.close, f"{unit}{member}{newline}{outer}")]
        return [Splice(home.open + 1, home.close, f"{lead}{member}{newline + outer if spread else ''}")]
    if home.comma >= 0:
        at = _behind(text, home.comma) if spread else home.comma
        return [Splice(at, at, f"{lead or ' '}{member}")]
    at = _behind(text, home.last) if spread else home.last
    if at == home.last:
        return [Splice(at, at, f",{lead or ' '}{member}")]
    return [Splice(home.last, home.last, ","), Splice(at, at, f"{lead}{member}")]


def _behind(text: str, position: int) -> int:
    """The end of the line, where only a comment stands in between; the position itself otherwise."""
    m = _REST.match(text, position)
    return m.end() if m else position


def _layout(text: str, home: Braces) -> tuple[str, str]:
    """Indentation of the line on which an object opens, and the step its members are indented by."""
    line = text[text.rfind("\n", 0, home.open) + 1 :]
    outer = line[: len(line) - len(line.lstrip(" \t"))]
    if home.first >= 0:
        start = text.rfind("\n", 0, home.first) + 1
        inner = text[start : home.first]
        if not inner.strip() and inner.startswith(outer) and len(inner) > len(outer):
            return outer, inner[len(outer) :]
    step = re.search(r"\n([ \t]+)\S", text)
    return outer, step[1] if step else "  "


def _member(path: Path, value: str, indent: str, unit: str, newline: str, spread: bool) -> str:
    key = json.dumps(path[0], ensure_ascii=False)
    if len(path) == 1:
        return f"{key}: {value}"
    if not spread:
        return f"{key}: {{{_member(path[1:], value, '', unit, newline, False)}}}"
    inner = _member(path[1:], value, indent + unit, unit, newline, True)
    return f"{key}: {{{newline}{indent}{unit}{inner}{newline}{indent}}}"


def _key(token: str) -> str:
    """A quoted key as it reads.

    Raises:
        Unplaced: it is broken.
    """
    try:
        return json.loads(token)
    except ValueError:
        raise Unplaced(f"the key {token[:40]!r} is broken") from None


def _objects(text: str) -> dict[Path, Braces]:
    """Every object that is reached by keys alone."""
    found: dict[Path, Braces] = {}
    stack: list[tuple[Path | None, Braces | None]] = []
    key: str | None = None
    for m in TOKEN.finditer(text):
        kind, token = m.lastgroup, m[0]
        if kind is None:
            continue
        path, home = stack[-1] if stack else ((), None)
        if token in ("{", "[") and kind == "mark":
            inner = () if not stack else (*path, key) if path is not None and home and key is not None else None
            braces = Braces(m.start()) if token == "{" else None
            if braces and inner is not None:
                found.setdefault(inner, braces)
            stack.append((inner, braces))
            key = None
        elif token in ("}", "]") and kind == "mark" and stack:
            _, closed = stack.pop()
            if closed:
                closed.close = m.start()
            outer = stack[-1][1] if stack else None
            if outer:
                outer.last, outer.comma = m.end(), -1
            key = None
        elif token == "," and kind == "mark":
            key = None
            if home:
                home.comma = m.end()
        elif kind in ("string", "bare", "odd") and home:
            if key is None:
                key = _key(token) if kind == "string" else token
                home.first = m.start() if home.first < 0 else home.first
            else:
                home.scalars.add(key)
                home.last, home.comma = m.end(), -1
    return {path: b for path, b in found.items() if b.close >= 0}
