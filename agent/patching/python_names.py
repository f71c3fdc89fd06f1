"""Values that Python code takes from a name: the name's own place where nothing else uses it, else the place of use."""

from __future__ import annotations

import ast
import re

from .document import Document, Found
from .literals import is_literal
from .model import Splice, Unplaced
from .variables import Site

_SEEN_BY_NAME = re.compile(r"\b(?:globals|locals|vars|eval|exec)\s*\(|__dict__|__all__")


def python_site(doc: Document, found: Found, source: str, start: int, end: int) -> Site:
    """The place of a value in Python code, or of the constant that it names.

    Raises:
        Unplaced: it is computed.
    """
    if is_literal(source):
        return Site(found, start, end)
    if not source.isidentifier():
        raise Unplaced(f"`{source[:60]}` is computed")
    line = _bound_once(doc.tree, source)
    made = [
        leaf for leaf in doc.sheet.leaves if leaf.key == source and leaf.line == line and leaf.style == "assignment"
    ]
    if len(made) != 1 or not made[0].width or not is_literal(doc.source(made[0])):
        raise Unplaced(f"`{source}` is not set once, to a plain value, in this file")
    if _uses(doc.tree, source) > 1 or _SEEN_BY_NAME.search(doc.text):
        return Site(found, start, end)
    return Site(found, *doc.span(made[0]), source)


def _uses(tree: ast.AST, name: str) -> int:
    return sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(tree))


def _bound_once(tree: ast.Module, name: str) -> int:
    """The line on which a module binds a name, where it does so once and nothing else in the file does; or 0."""
    bound, line = 0, 0
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


def in_class(doc: Document, line: int) -> bool:
    """Whether a line assigns a field of a class, such as the default of a dataclass."""
    return any(
        isinstance(node, ast.ClassDef) and any(part.lineno == line for part in node.body) for node in ast.walk(doc.tree)
    )


def timedelta(doc: Document, before: int) -> tuple[str, list[Splice]]:
    """What the code calls `timedelta`, and the import to add where it has no name for it.

    Args:
        before: the line of the call, above which the import has to stand.

    Raises:
        Unplaced: the name means something else here.
    """
    imports = [n for n in doc.tree.body if isinstance(n, ast.Import | ast.ImportFrom) and n.lineno < before]
    for node in imports:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom) and node.module == "datetime" and alias.name == "timedelta":
                if not alias.asname:
                    return "timedelta", []
            elif isinstance(node, ast.Import) and alias.name == "datetime":
                return f"{alias.asname or 'datetime'}.timedelta", []
    if any(isinstance(n, ast.Name) and n.id == "timedelta" for n in ast.walk(doc.tree)):
        raise Unplaced("the code has a `timedelta` that is not imported from datetime")
    last = imports[-1] if imports else _docstring(doc.tree)
    below = (last.end_lineno or 0) + 1 if last else doc.tree.body[0].lineno
    if below > doc.text.count("\n") + 1:
        raise Unplaced("no line stands below the imports")
    at = doc.lines.start(below)
    return "timedelta", [Splice(at, at, "from datetime import timedelta" + doc.newline)]


def _docstring(tree: ast.Module) -> ast.stmt | None:
    first = tree.body[0]
    text = first.value if isinstance(first, ast.Expr) else None
    return first if isinstance(text, ast.Constant) and isinstance(text.value, str) else None
