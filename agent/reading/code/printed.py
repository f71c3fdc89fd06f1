"""Whether a condition holds by what the run printed of its arguments: `Namespace(use_amp=False, ...)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from ..run.program.syntax import Syntax, constant, last

# What arguments are called where a program keeps them: `self.args.use_amp`, `opt["use_amp"]`.
_ARGUMENTS = re.compile(
    r"^_?(?:(?:cmd|train|model|my)_?)?(?:args?|arguments|opts?|options?|cfg|conf|config|hparams|hps?|flags)$", re.I
)
_UNKNOWN = object()


class Printed:
    """What one program's arguments were, as its logs show them.

    Args:
        values: by the names that the arguments have in code; only those that all logs agree on.
        sources: the program's sources. What any of them may give anew after the print is left out.
    """

    def __init__(self, values: Mapping[str, Any], sources: Mapping[str, Syntax]) -> None:
        moved = {key for s in sources.values() for key in _given_anew(s)} if values else set[str]()
        self._values = {k: v for k, v in values.items() if k not in moved}

    def holds(self, test: ast.expr) -> bool | None:
        """Whether a test holds; None where its parts are not all known."""
        if not self._values:
            return None
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.holds(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            parts = [self.holds(v) for v in test.values]
            decisive = isinstance(test.op, ast.Or)
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return _compared(self._value(test.left), test.ops[0], self._value(test.comparators[0]))
        value = self._value(test)
        return None if value is _UNKNOWN or isinstance(test, ast.Constant) else bool(value)

    def _value(self, node: ast.expr) -> Any:
        """What a constant, or an argument that was printed, is."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            held = [self._value(e) for e in node.elts]
            return _UNKNOWN if _UNKNOWN in held else held
        if not isinstance(node, ast.Attribute | ast.Subscript) or not _ARGUMENTS.match(last(node.value)):
            return _UNKNOWN
        return self._values.get(str(node.attr if isinstance(node, ast.Attribute) else constant(node.slice)), _UNKNOWN)


def _compared(left: Any, how: ast.cmpop, right: Any) -> bool | None:
    if left is _UNKNOWN or right is _UNKNOWN:
        return None
    try:
        if isinstance(how, ast.Eq | ast.Is):
            return bool(left == right)
        if isinstance(how, ast.NotEq | ast.IsNot):
            return bool(left != right)
        if isinstance(how, ast.In | ast.NotIn):
            return (left in right) is isinstance(how, ast.In)
        if isinstance(how, ast.Gt | ast.GtE):
            return bool(left > right or (isinstance(how, ast.GtE) and left == right))
        return bool(left < right or (isinstance(how, ast.LtE) and left == right))
    except TypeError:
        return None


def _given_anew(s: Syntax) -> set[str]:
    """Arguments that a source assigns, but for what it does before it prints them all."""
    prints = [c.lineno for c in s.calls for a in (*c.args, *(k.value for k in c.keywords))
              if _shows(last(c.func)) and any(_ARGUMENTS.match(last(n)) for n in ast.walk(a) if last(n))]  # fmt: skip
    found = set[str]()
    for n in s.every(ast.Attribute, ast.Subscript):
        if not isinstance(n.ctx, ast.Store) or not _ARGUMENTS.match(last(n.value)):
            continue
        key = n.attr if isinstance(n, ast.Attribute) else constant(n.slice)
        before = s.function_of(n) is None and n.lineno < max(prints, default=0)
        if isinstance(key, str) and not before:
            found.add(key)
    return found


def _shows(name: str) -> bool:
    return name in ("print", "pprint", "info", "debug", "warning", "log", "write", "print_args")
