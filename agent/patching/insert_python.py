"""Putting a keyword into a call, a key into a dictionary, or an environment variable into Python code."""

from __future__ import annotations

import ast
import re

from ..reading.settings_python import dotted
from .document import Document
from .model import Splice, Unplaced
from .roles import other_call

# How many arguments are given by position before those that settings are put in as.
_POSITIONS = {"init_process_group": 2}


class Source:
    """Characters of a syntax tree, whose columns count bytes."""

    def __init__(self, doc: Document) -> None:
        self.doc, self.tree = doc, doc.tree
        self._rows = doc.clean.split("\n")

    def at(self, line: int, column: int) -> int:
        row = self._rows[line - 1]
        chars = column if row.isascii() else len(row.encode()[:column].decode(errors="replace"))
        return self.doc.lines.start(line) + chars

    def start(self, node: ast.expr | ast.keyword) -> int:
        return self.at(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.keyword | ast.stmt) -> int:
        return self.at(node.end_lineno or 0, node.end_col_offset or 0)


def _the_call(doc: Document, calls: list[str]) -> ast.Call:
    """The one call that takes the framework's settings, leaving out those for evaluation or for another model.

    Raises:
        Unplaced: there is none, or several, or it gives more by position.
    """
    found = [
        node for node in ast.walk(doc.tree)
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in calls
        and not other_call(doc, node.lineno)
    ]  # fmt: skip
    if len(found) != 1:
        raise Unplaced(f"the code calls {' or '.join(calls[:2])} {len(found)} times, not once")
    call = found[0]
    if len(call.args) > _POSITIONS.get(dotted(call.func).rpartition(".")[2], 1):
        raise Unplaced("the call gives more by position, so that the keyword may be among it")
    return call


def call_line(doc: Document, calls: list[str]) -> int:
    """The line of the one call that takes the framework's settings."""
    return _the_call(doc, calls).lineno


def put_keyword(doc: Document, calls: list[str], keyword: str, value: str) -> list[Splice]:
    """A keyword behind the last argument of the one call that takes the framework's settings.

    Raises:
        Unplaced: no such call, several, or one that unpacks a dictionary.
    """
    source = Source(doc)
    call = _the_call(doc, calls)
    if any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
        raise Unplaced("the call unpacks arguments that are made elsewhere")
    if any(k.arg == keyword for k in call.keywords):
        raise Unplaced(f"`{keyword}` is computed")
    parts = [*call.args, *call.keywords]
    close = source.end(call) - 1
    opened = doc.text.index("(", source.end(call.func))
    return _member(doc, opened, close, [(source.start(p), source.end(p)) for p in parts], f"{keyword}={value}")


def _member(doc: Document, opened: int, close: int, parts: list[tuple[int, int]], member: str) -> list[Splice]:
    """A member behind the last of a list in brackets, in the layout of the list."""
    text = doc.text
    if not parts:
        return [Splice(opened + 1, opened + 1, member)] if not text[opened + 1 : close].strip() else _refuse()
    start, end = max(parts)
    while text[end:close].lstrip().startswith(")"):  # a value in parentheses
        end = text.index(")", end) + 1
    rest = re.sub(r"#[^\n]*", "", text[end:close])
    comma = rest.lstrip().startswith(",")
    line = text.rfind("\n", 0, start) + 1
    if text[line:start].strip():  # members stand side by side
        return [Splice(end, text.index(",", end) + 1 if comma else end, f", {member}{',' if comma else ''}")]
    at = text.index(",", end) + 1 if comma else end
    behind = re.compile(r"[ \t]*(?:#[^\n]*?)?(?=\r?\n)").match(text, at)
    after = behind.end() if behind else at
    added = f"{doc.newline}{text[line:start]}{member}{',' if comma else ''}"
    if comma or after == end:
        return [Splice(after, after, added if comma else f",{added}")]
    return [Splice(end, end, ","), Splice(after, after, added)]


def _refuse() -> list[Splice]:
    raise Unplaced("the call holds comments alone")


def put_item(doc: Document, path: tuple[str, ...], value: str, anchors: set[str]) -> list[Splice]:
    """A key into the one dictionary literal that holds the framework's other keys.

    Args:
        anchors: first segments of keys that the framework is known by.

    Raises:
        Unplaced: no such dictionary, or several.
    """
    source = Source(doc)
    homes = [n for n in ast.walk(source.tree) if isinstance(n, ast.Dict) and anchors & set(_keys(n))]
    if len(homes) != 1:
        raise Unplaced(f"{len(homes)} dictionaries of the code hold such settings, not one")
    home, depth = homes[0], 0
    while depth < len(path) - 1 and isinstance(inner := _keys(home).get(path[depth]), ast.Dict):
        home, depth = inner, depth + 1
    if path[depth] in _keys(home):
        raise Unplaced(f"`{'.'.join(path[: depth + 1])}` is computed")
    if any(k is None for k in home.keys):
        raise Unplaced("the dictionary unpacks another")
    nested = "".join(f'"{p}": {{' for p in path[depth:-1]) + f'"{path[-1]}": {value}' + "}" * (len(path) - 1 - depth)
    parts = [(source.start(k), source.end(v)) for k, v in zip(home.keys, home.values, strict=True) if k is not None]
    return _member(doc, source.start(home), source.end(home) - 1, parts, nested)


def _keys(node: ast.Dict) -> dict[str, ast.expr]:
    return {
        k.value: v
        for k, v in zip(node.keys, node.values, strict=True)
        if isinstance(k, ast.Constant) and isinstance(k.value, str)
    }


def put_environ(doc: Document, name: str, value: str) -> list[Splice]:
    """`os.environ[...] = ...` below the last such line of the module.

    Raises:
        Unplaced: the module sets no environment variable: it has to be set before the libraries are imported.
    """
    source = Source(doc)
    lines = [
        node for node in source.tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
        and dotted(node.targets[0].value).endswith("environ")
    ]  # fmt: skip
    if not lines:
        raise Unplaced("the code sets no environment variable; it belongs before the launch")
    last = lines[-1]
    target = last.targets[0]
    assert isinstance(target, ast.Subscript)
    end = doc.text.find("\n", source.end(last))
    row = f'{dotted(target.value)}["{name}"] = {value}'
    if end < 0:
        return [Splice(len(doc.text), len(doc.text), doc.newline + row)]
    return [Splice(end + 1, end + 1, row + doc.newline)]
