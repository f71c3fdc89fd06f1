"""Putting a key into a YAML text: after the last key of its mapping, by the positions of the composed nodes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from ...reading.settings.forms.settings_data import TOKEN
from .spelling import Splice, Unplaced

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"
Path = tuple[str, ...]


def put_yaml(text: str, clean: str, path: Path, value: str, newline: str) -> list[Splice]:
    """Splices that set `path` to a value, given as YAML; missing mappings are made.

    Args:
        clean: the text as parsers are given it, of the same length.

    Raises:
        Unplaced: what stands on the way is no mapping, or shared by an anchor.
    """
    documents = [d for d in yaml.compose_all(clean, Loader=_LOADER) if d is not None]
    if len(documents) > 1:
        raise Unplaced("the file holds several documents")
    if not documents:
        return [_appended(text, len(text), _block(path, value, "", "  ", newline), newline)]
    node, depth = documents[0], 0
    above: yaml.MappingNode | None = None
    while depth < len(path) and isinstance(node, yaml.MappingNode):
        pair = next(((k, v) for k, v in node.value if k.value == path[depth]), None)
        if pair is None:
            return _into(text, node, path[depth:], value, _step(documents[0]), newline)
        if pair[0].end_mark.index > pair[1].start_mark.index:
            raise Unplaced(f"an anchor shares `{path[depth]}` with other places")
        above, node, depth = node, pair[1], depth + 1
    key = ".".join(path[:depth])
    if depth == len(path) or node.tag != _NULL or above is None or node.end_mark.index > node.start_mark.index:
        raise Unplaced(f"`{key or 'the file'}` is no mapping")
    step = _step(documents[0])
    indent = " " * (above.value[0][0].start_mark.column + len(step))
    at = text.rfind(":", 0, node.start_mark.index + 1) + 1
    spliced = _appended(text, at, _block(path[depth:], value, indent, step, newline), newline)
    return [Splice(spliced.start, spliced.end, spliced.text, key)]


def _into(text: str, node: yaml.MappingNode, path: Path, value: str, step: str, newline: str) -> list[Splice]:
    """Splices that put a member into a mapping."""
    if node.flow_style:
        close = node.end_mark.index - 1
        flow = _flow(path, value)
        if not node.value:
            return [Splice(close, close, flow)]
        last = _end(node.value[-1][1]) or node.value[-1][0].end_mark.index
        rest = text[last:close]
        return [Splice(last, last, f" {flow}," if rest.lstrip().startswith(",") else f", {flow}")]
    indent = " " * node.value[0][0].start_mark.column
    last = max(_end(v) or k.end_mark.index for k, v in node.value)
    while last > 0 and text[last - 1] in " \t\r\n":
        last -= 1
    return [_appended(text, last, _block(path, value, indent, step, newline), newline)]


def _end(node: Any) -> int:
    """The end of what a node really holds; 0 for an empty value."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style:
        return node.end_mark.index if node.end_mark.index > node.start_mark.index else 0
    children = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
    return max((_end(child) for child in children), default=0)


def _appended(text: str, position: int, block: str, newline: str) -> Splice:
    """A block on lines of its own after the line of a position."""
    end = text.find("\n", position)
    if end < 0:
        lead = newline if text and not text.endswith("\n") else ""
        tail = "" if lead else newline
        return Splice(len(text), len(text), f"{lead}{block}{tail}")
    return Splice(end + 1, end + 1, block + newline)


def _block(path: Path, value: str, indent: str, step: str, newline: str) -> str:
    rows = [f"{indent}{step * i}{_key(part)}:" for i, part in enumerate(path)]
    return newline.join(rows) + f" {value}"


def _flow(path: Path, value: str) -> str:
    return "".join(f"{_key(part)}: {{" for part in path[:-1]) + f"{_key(path[-1])}: {value}" + "}" * (len(path) - 1)


def _key(part: str) -> str:
    return part if re.fullmatch(r"[A-Za-z_][\w.\-/]*", part) else f'"{part}"'


def _step(root: yaml.Node) -> str:
    """How far one level of the document is indented."""
    pending = [root]
    while pending:
        node = pending.pop(0)
        if not isinstance(node, yaml.MappingNode) or node.flow_style or not node.value:
            continue
        here = node.value[0][0].start_mark.column
        for _, child in node.value:
            if isinstance(child, yaml.MappingNode) and not child.flow_style and child.value:
                deeper = child.value[0][0].start_mark.column - here
                if 0 < deeper <= 8:
                    return " " * deeper
            pending.append(child)
        if len(pending) > 2000:
            break
    return "  "


# ----------
# Putting a member into a JSON text: after the last member of its object, in the layout of its neighbours.

JsonPath = tuple[str, ...]
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


def put_json(text: str, path: JsonPath, value: str, newline: str) -> list[Splice]:
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


def _member(path: JsonPath, value: str, indent: str, unit: str, newline: str, spread: bool) -> str:
    key = json.dumps(path[0], ensure_ascii=False)
    if len(path) == 1:
        return f"{key}: {value}"
    if not spread:
        return f"{key}: {{{_member(path[1:], value, '', unit, newline, False)}}}"
    inner = _member(path[1:], value, indent + unit, unit, newline, True)
    return f"{key}: {{{newline}{indent}{unit}{inner}{newline}{indent}}}"


def _key_json(token: str) -> str:
    """A quoted key as it reads.

    Raises:
        Unplaced: it is broken.
    """
    try:
        return json.loads(token)
    except ValueError:
        raise Unplaced(f"the key {token[:40]!r} is broken") from None


def _objects(text: str) -> dict[JsonPath, Braces]:
    """Every object that is reached by keys alone."""
    found: dict[JsonPath, Braces] = {}
    stack: list[tuple[JsonPath | None, Braces | None]] = []
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
                key = _key_json(token) if kind == "string" else token
                home.first = m.start() if home.first < 0 else home.first
            else:
                home.scalars.add(key)
                home.last, home.comma = m.end(), -1
    return {path: b for path, b in found.items() if b.close >= 0}


# ----------
# Putting a line into TOML and `.env` texts.

_HEADER = re.compile(r"(?m)^[ \t]*(\[\[?)[ \t]*([^\[\]\n]+?)[ \t]*\]\]?[ \t]*(?:#[^\n]*)?\r?$")


def put_toml(text: str, path: tuple[str, ...], value: str, newline: str) -> list[Splice]:
    """Splices that set `path` to a value, given as TOML; a missing table is made at the end.

    Raises:
        Unplaced: the table is an array of tables.
    """
    parents = list(path[:-1])
    section, line = ".".join(parents), f"{path[-1]} = {value}"
    headers = [(m.start(), m.end(), m[1], re.sub(r"[\s\"']", "", m[2])) for m in _HEADER.finditer(text)]
    if not section:
        stop = headers[0][0] if headers else len(text)
        return [_after_last(text, 0, stop, line, newline)]
    for i, (_, end, brackets, name) in enumerate(headers):
        if name == section and brackets == "[":
            stop = headers[i + 1][0] if i + 1 < len(headers) else len(text)
            return [_after_last(text, end, stop, line, newline)]
        if name == section:
            raise Unplaced(f"[[{section}]] is an array of tables")
    if inline := _inline(text, parents, line):
        return [inline]
    root = text[: headers[0][0]] if headers else text
    dotted = list(re.finditer(rf"(?m)^[ \t]*{re.escape(section)}\.[\w.\-]+[ \t]*=[^\n]*$", root))
    if dotted:
        return [_below(text, dotted[-1].end(), f"{section}.{line}", newline)]
    lead = "" if not text or text.endswith("\n") else newline
    blank = newline if text.strip() else ""
    return [Splice(len(text), len(text), f"{lead}{blank}[{section}]{newline}{line}{newline}")]


def _inline(text: str, parents: list[str], line: str) -> Splice | None:
    """Into `table = { a = 1 }`, written on one line."""
    m = re.search(rf"(?m)^[ \t]*{re.escape(parents[-1])}[ \t]*=[ \t]*\{{([^{{}}\n]*)\}}", text)
    if not m:
        return None
    if len(parents) > 1:
        raise Unplaced(f"`{parents[-1]}` is written inline")
    filled = m[1].rstrip()
    end = m.start(1) + len(filled)
    return Splice(end, end, f", {line}" if filled else f" {line} ")


def _after_last(text: str, start: int, stop: int, line: str, newline: str) -> Splice:
    """Below the last line between two positions that holds anything but a comment."""
    last = start
    for m in re.finditer(r"[^\n]*\n?", text[start:stop]):
        if m[0].strip() and not m[0].lstrip().startswith("#"):
            last = start + m.end()
    if last == start:
        if start == 0:
            return Splice(0, 0, line + newline)
        return _below(text, start, line, newline)
    return _below(text, last - 1 if text[last - 1] == "\n" else last, line, newline)


def _below(text: str, position: int, line: str, newline: str) -> Splice:
    end = text.find("\n", position)
    if end < 0:
        return Splice(len(text), len(text), newline + line)
    return Splice(end + 1, end + 1, line + newline)


def put_env(text: str, name: str, value: str, newline: str) -> list[Splice]:
    """A line at the end of an `.env` file, with `export` where its lines have it."""
    export = "export " if re.search(r"(?m)^[ \t]*export[ \t]", text) else ""
    lead = newline if text and not text.endswith("\n") else ""
    tail = "" if lead else newline
    return [Splice(len(text), len(text), f"{lead}{export}{name}={value}{tail}")]
