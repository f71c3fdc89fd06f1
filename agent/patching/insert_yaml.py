"""Putting a key into a YAML text: after the last key of its mapping, by the positions of the composed nodes."""

from __future__ import annotations

import re
from typing import Any

import yaml

from .model import Splice, Unplaced

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
