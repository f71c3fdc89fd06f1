"""What each name of a Python source is bound to, where, and what calls what: the index that values are looked up in."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from ...run.program.syntax import Function, dotted, last

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
_BLOCKS = ("body", "orelse", "finalbody", "handlers")


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding of a name: the statement, and the expression (None where it is no plain value), or a part of it.

    `imported` is `(module, level, attribute)` of an import; `part` the index of an unpacked target.
    """

    statement: ast.AST
    value: ast.AST | None = None
    part: int | None = None
    imported: tuple[str, int, str] | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """An assignment to an attribute or a key: `args.lr = ...`, `cfg["lr"] = ...`."""

    base: str
    statement: ast.AST
    value: ast.AST | None


class Bindings:
    """One source, indexed in one pass."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name, self.tree = name, tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}  # of names, calls and statements: the scope that they stand in
        self.bound: dict[tuple[ast.AST, str], list[Binding]] = defaultdict(list)
        self.stores: dict[str, list[Store]] = defaultdict(list)
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        self.functions: list[Function] = []
        self.shared: set[str] = set()  # names that functions rebind outside of them
        stack: list[tuple[ast.AST, Scope]] = [(tree, tree)]
        while stack:
            node, scope = stack.pop()
            self._note(node, scope)
            inner = node if isinstance(node, Function | ast.Lambda | ast.ClassDef) else scope
            outside: set[int] = set()
            if isinstance(node, Function):  # its decorators and defaults belong to where it stands
                outside = {id(n) for n in (*node.decorator_list, node.args)}
            for child in reversed(list(ast.iter_child_nodes(node))):
                self.parents[child] = node
                stack.append((child, scope if id(child) in outside else inner))

    def _note(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.expr | ast.stmt):
            self.scopes[node] = scope
        if isinstance(node, ast.Call):
            self.calls[last(node.func)].append(node)
        elif isinstance(node, Function | ast.ClassDef):
            self.bound[scope, node.name].append(Binding(node, node))
            if isinstance(node, Function):
                self.functions.append(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._target(target, node.value, None, node, scope)
        elif (isinstance(node, ast.AnnAssign) and node.value is not None) or isinstance(node, ast.NamedExpr):
            self._target(node.target, node.value, None, node, scope)
        elif isinstance(node, ast.AugAssign | ast.For | ast.AsyncFor):
            self._target(node.target, None, None, node, scope)
        elif isinstance(node, ast.comprehension):
            self._target(node.target, None, None, node.target, scope)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._target(node.optional_vars, node.context_expr, None, self.parents[node], scope)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self.bound[scope, node.name].append(Binding(node))
        elif isinstance(node, ast.Global | ast.Nonlocal):
            self.shared.update(node.names)
        elif isinstance(node, ast.Import):
            for a in node.names:
                whole = a.name if a.asname else a.name.split(".")[0]
                self.bound[scope, a.asname or whole].append(Binding(node, imported=(whole, 0, "")))
        elif isinstance(node, ast.ImportFrom):
            for a in node.names:
                found = (node.module or "", node.level, a.name)
                self.bound[scope, a.asname or a.name].append(Binding(node, imported=found))

    def _target(self, target: ast.AST, value: ast.AST | None, part: int | None, at: ast.AST, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            self.bound[scope, target.id].append(Binding(at, value, part))
        elif isinstance(target, ast.Attribute):
            self.stores[target.attr].append(Store(dotted(target.value), at, value if part is None else None))
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            self.stores[str(target.slice.value)].append(
                Store(dotted(target.value), at, value if part is None else None)
            )
        elif isinstance(target, ast.Tuple | ast.List):
            each = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            for number, inner in enumerate(target.elts):
                if len(each) == len(target.elts):
                    self._target(inner, each[number], None, at, scope)
                else:
                    self._target(inner, value, number, at, scope)

    @cached_property
    def _places(self) -> dict[tuple[int, ...], ast.expr]:
        return {_place(n): n for n in self.scopes if isinstance(n, ast.expr)}

    def at(self, node: ast.expr) -> ast.expr | None:
        """The expression that stands where one of another tree of the same text does."""
        return node if node in self.scopes else self._places.get(_place(node))

    @cached_property
    def runs_text(self) -> int:
        """The line of an `exec` at the top of the source, after which others' assignments hold; 0 without one."""
        found = [c.lineno for c in self.calls.get("exec", ()) if isinstance(self.scopes[c], ast.Module)]
        return max(found, default=0)

    def outer(self, scope: ast.AST) -> Scope | None:
        """The scope around a scope in which its free names are looked up: never a class."""
        found = self.scopes.get(scope)
        while isinstance(found, ast.ClassDef):
            found = self.scopes.get(found)
        return found if found is not scope else None

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class whose body a method stands in."""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, ast.ClassDef):
                return node
        return None

    def statement(self, node: ast.AST) -> ast.AST:
        """The statement that a node belongs to."""
        while not isinstance(node, ast.stmt) and node in self.parents:
            node = self.parents[node]
        return node

    def before(self, node: ast.AST) -> list[ast.stmt]:
        """The statements that stand before one in its own block."""
        parent = self.parents.get(node)
        for name in _BLOCKS:
            block = getattr(parent, name, None)
            if isinstance(block, list) and node in block:
                return block[: block.index(node)]
        return []


def _place(node: ast.expr) -> tuple[int, ...]:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def ends(block: list[ast.stmt]) -> bool:
    """Whether a block never goes on with what follows it."""
    final = block[-1] if block else None
    if isinstance(final, ast.Expr) and isinstance(final.value, ast.Call):
        return dotted(final.value.func) in ("sys.exit", "exit", "quit", "os._exit", "parser.error")
    return isinstance(final, ast.Return | ast.Raise | ast.Continue | ast.Break)
