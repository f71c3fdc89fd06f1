"""Python source as syntax trees, also where it is only an excerpt: whole, or in the pieces that can be parsed."""

from __future__ import annotations

import ast
import json
import textwrap
import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import TypeVar

N = TypeVar("N", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While

ATTEMPTS = 60  # parses of pieces of one broken file


class Syntax:
    """The trees of one source text. Line numbers count from 1 in that text.

    Attributes:
        unparsed: how many lines belong to no tree.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.trees, self.unparsed = parse(source)
        self.parents: dict[ast.AST, ast.AST] = {}
        self._by_type: dict[type, list[ast.AST]] = defaultdict(list)
        for tree in self.trees:
            self._index(tree)

    def _index(self, tree: ast.AST) -> None:
        stack = [tree]
        while stack:
            node = stack.pop()
            self._by_type[type(node)].append(node)
            children = list(ast.iter_child_nodes(node))
            for child in children:
                self.parents[child] = node
            stack.extend(reversed(children))

    def every(self, *kinds: type[N]) -> Iterator[N]:
        """All nodes of these kinds, in source order within a kind."""
        for kind in kinds:
            yield from self._by_type.get(kind, ())  # pyright: ignore[reportReturnType]

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call, in the order of lines."""
        return sorted(self.every(ast.Call), key=lambda c: (c.lineno, c.col_offset))

    @cached_property
    def functions(self) -> list[Function]:
        """Every function and method."""
        return sorted(self.every(ast.FunctionDef, ast.AsyncFunctionDef), key=lambda f: f.lineno)

    @cached_property
    def _calls_by_name(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.calls:
            found[last(call.func)].append(call)
        return found

    def calls_of(self, *names: str) -> list[ast.Call]:
        """Calls whose last name is one of these, in the order of lines: `dist.barrier()` is a call of `barrier`."""
        found = [c for name in names for c in self._calls_by_name.get(name, ())]
        return found if len(names) == 1 else sorted(found, key=lambda c: (c.lineno, c.col_offset))

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What encloses a node, from the inside out."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function_of(self, node: ast.AST) -> Function | None:
        """The innermost function around a node."""
        return next((n for n in self.above(node) if isinstance(n, Function)), None)

    def loop_of(self, node: ast.AST) -> Loop | None:
        """The innermost loop around a node, within its function."""
        for n in self.above(node):
            if isinstance(n, Loop):
                return n
            if isinstance(n, Function | ast.Lambda | ast.ClassDef):
                return None
        return None

    def scope_of(self, node: ast.AST) -> ast.AST:
        """The innermost function around a node, or its module."""
        found = node
        for n in self.above(node):
            found = n
            if isinstance(n, Function):
                return n
        return found

    def guarded(self, node: ast.AST, until: ast.AST) -> bool:
        """Whether a condition stands between a node and something that encloses it."""
        for n in self.above(node):
            if n is until:
                return False
            if isinstance(n, ast.If | ast.IfExp | ast.ExceptHandler):
                return True
        return False

    def assigned(self, name: str, scope: ast.AST) -> list[ast.expr]:
        """What is assigned to a plain name in a scope, alone or beside others (`x, y = a, b`)."""
        found: list[ast.expr] = []
        for n in walk(scope):
            targets = n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AnnAssign) else []
            value = n.value if isinstance(n, ast.Assign | ast.AnnAssign) else None
            if value is None:
                continue
            pairs = [(t, value) for t in targets]
            for t in targets:
                if isinstance(t, ast.Tuple) and isinstance(value, ast.Tuple) and len(t.elts) == len(value.elts):
                    pairs += zip(t.elts, value.elts, strict=True)
            found += [v for t, v in pairs if isinstance(t, ast.Name) and t.id == name]
        return found

    def argument(self, call: ast.Call, name: str) -> ast.expr | None:
        """A keyword argument, also from a dict of options (`**kw`), and what a name stands for that is set once."""
        value = keyword(call, name)
        for more in (k.value for k in call.keywords if k.arg is None and value is None):
            held = self.origin(more, call)
            if isinstance(held, ast.Dict):
                value = next((v for k, v in zip(held.keys, held.values, strict=True) if constant(k) == name), value)
            elif isinstance(held, ast.Call) and last(held.func) == "dict":
                value = keyword(held, name) or value
        return None if value is None else self.origin(value, call)

    def origin(self, value: ast.expr, at: ast.AST) -> ast.expr:
        """What a plain name stands for at a node: its one assignment in the scope, or at the top of the module."""
        if not isinstance(value, ast.Name):
            return value
        scope = self.scope_of(at)
        made = self.assigned(value.id, scope)
        if not made and (root := next((n for n in self.above(at) if isinstance(n, ast.Module)), None)) is not None:
            made = self.assigned(value.id, root)
        return made[0] if len(made) == 1 else value


def parse(source: str) -> tuple[list[ast.Module], int]:
    """Trees of a text and the number of lines left out.

    An excerpt rarely parses as a whole: it starts inside a method, or elides lines. It is cut at the line
    that the parser complains about and both sides are tried again, each moved to the left margin.
    """
    lines = source.replace("\t", "    ").split("\n")
    trees: list[ast.Module] = []
    pending = [(0, len(lines))]
    unparsed = 0
    for _ in range(ATTEMPTS):
        if not pending:
            break
        start, end = pending.pop()
        while start < end and not lines[start].strip():
            start += 1
        if start >= end:
            continue
        tree, bad = _parse("\n".join(lines[start:end]))
        if tree is not None:
            trees.append(ast.increment_lineno(tree, start) if start else tree)
            continue
        outer = _outer(lines, start, end)
        if bad == 1 and outer < end:
            pending += [(outer, end), (start, outer)]
            continue
        cut = min(max(start + bad - 1, start), end - 1)
        resume = cut if cut > start and lines[cut].startswith(" ") and _starts_piece(lines[cut]) else cut + 1
        unparsed += resume - cut
        pending += [(resume, end), (start, cut)]
    unparsed += sum(end - start for start, end in pending)
    return sorted(trees, key=lambda t: t.body[0].lineno if t.body else 0), unparsed


def _outer(lines: list[str], start: int, end: int) -> int:
    """The first line that stands further left than the first one: there the excerpt leaves its block."""
    margin = len(lines[start]) - len(lines[start].lstrip())
    for number in range(start + 1, end if margin else start):
        if lines[number].strip() and len(lines[number]) - len(lines[number].lstrip()) < margin:
            return number
    return end


def _starts_piece(line: str) -> bool:
    """Whether an indented line may begin a piece of its own (its indentation was what broke the parse)."""
    return not line.strip().startswith((")", "]", "}", "else", "elif", "except", "finally", "...", "%", "!"))


def _parse(piece: str) -> tuple[ast.Module | None, int]:
    """The tree, or the line (from 1) that does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(textwrap.dedent(piece)), 0
    except SyntaxError as e:
        return None, e.lineno or 1
    except (ValueError, RecursionError, MemoryError):
        return None, 1


def walk(node: ast.AST, into_functions: bool = True) -> Iterator[ast.AST]:
    """A node and all below it, in source order."""
    stack = [node]
    while stack:
        found = stack.pop()
        yield found
        if not into_functions and found is not node and isinstance(found, Function | ast.Lambda | ast.ClassDef):
            continue
        stack.extend(reversed(list(ast.iter_child_nodes(found))))


def dotted(node: ast.AST | None) -> str:
    """`torch.nn.functional.softmax` of a name, attribute or call chain; other parts become `?`."""
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            parts.append(node.id if isinstance(node, ast.Name) else "?")
            return ".".join(reversed(parts))


def last(node: ast.AST | None) -> str:
    """The last name of a name or attribute: `barrier` of `dist.barrier`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def receiver(call: ast.Call) -> ast.expr | None:
    """What a method is called on: `x` of `x.item()`."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """A keyword argument."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def constant(node: ast.AST | None) -> object:
    """The value of a literal, else None."""
    return node.value if isinstance(node, ast.Constant) else None


def names(node: ast.AST) -> set[str]:
    """Every plain name and attribute name below a node."""
    found = set()
    for n in walk(node):
        if isinstance(n, ast.Name):
            found.add(n.id)
        elif isinstance(n, ast.Attribute):
            found.add(n.attr)
    return found


def notebook(source: str) -> str:
    """The code of a Jupyter notebook, each line where it stands in the file; everything else is blank.

    A notebook saved with one line a line of code (the usual form) can be cited; others give nothing.
    """
    lines = source.split("\n")
    inside = code = False
    for number, line in enumerate(lines):
        stripped = line.strip()
        if stripped.startswith('"cell_type"'):
            code = '"code"' in stripped
        kept = ""
        if stripped.startswith('"source": ['):
            inside = not stripped.rstrip(",").endswith("]")
        elif inside and stripped.startswith("]"):
            inside = False
        elif inside and code and stripped.startswith('"'):
            try:
                kept = str(json.loads(stripped.rstrip(","))).rstrip("\n")
            except ValueError:
                kept = ""
        lines[number] = "" if kept.lstrip().startswith(("%", "!")) else kept
    return "\n".join(lines)
