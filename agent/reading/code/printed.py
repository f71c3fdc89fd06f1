"""Whether a condition holds by what the run printed of its arguments: `Namespace(use_amp=False, ...)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..run.program.syntax import Syntax, constant, last, receiver

# What arguments are called where a program keeps them: `self.args.use_amp`, `opt["use_amp"]`.
_ARGUMENTS = re.compile(
    r"^_?(?:(?:cmd|train|model|my)_?)?(?:args?|arguments|opts?|options?|cfg|conf|config|hparams|hps?|flags)$", re.I
)
_PRINTS = ("print", "pprint", "info", "debug", "warning", "log", "write")
_UNKNOWN = object()


class Printed:
    """What one program's arguments were, as its logs show them.

    Args:
        values: by the names that the arguments have in code; only those that all logs agree on.
        sources: the program's sources. What any of them may give anew after the print is left out.
    """

    def __init__(self, values: Mapping[str, Any], sources: Mapping[str, Syntax]) -> None:
        shown = {name: dict(_shown(s)) for name, s in sources.items()} if values else {}
        # A model has a `config` too: that name means the arguments only where a program prints them by it.
        self._owners = {"args", "opt", "opts", "options", "flags", "FLAGS"}.union(*shown.values())
        moved = {key for name, s in sources.items() for key in _given_anew(s, shown[name])} if values else set[str]()
        put_in = any(_changed_as_a_whole(s) for s in sources.values()) if values else False
        self._values = {} if put_in else {k: v for k, v in values.items() if k not in moved}

    def holds(self, test: ast.expr) -> bool | None:
        """Whether a test without `and`, `or` and `not` holds; None where its parts are not all known."""
        if not self._values:
            return None
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
        if not isinstance(node, ast.Attribute | ast.Subscript) or last(node.value) not in self._owners:
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


def _shown(s: Syntax) -> Iterator[tuple[str, int]]:
    """What a source prints all of, by its name, and the last line that does: `print(args)`, `log.info(vars(opt))`."""
    for call in (c for c in s.calls if last(c.func) in _PRINTS):
        for n in (n for given in (*call.args, *(k.value for k in call.keywords)) for n in ast.walk(given)):
            part = isinstance(s.parents.get(n), ast.Attribute | ast.Subscript)
            if isinstance(n, ast.Name | ast.Attribute) and _ARGUMENTS.match(last(n)) and not part:
                yield last(n), call.lineno


def _given_anew(s: Syntax, shown: Mapping[str, int]) -> Iterator[str]:
    """Arguments that a source assigns, but for what it does at its top before it prints them all."""
    for n in s.every(ast.Attribute, ast.Subscript):
        if isinstance(n.ctx, ast.Store) and _ARGUMENTS.match(last(n.value)):
            key = n.attr if isinstance(n, ast.Attribute) else constant(n.slice)
            before = s.function_of(n) is None and n.lineno < shown.get(last(n.value), 0)
            if isinstance(key, str) and not before:
                yield key


def _changed_as_a_whole(s: Syntax) -> bool:
    """Whether any argument may be given anew: `setattr(args, name, value)`, `vars(args).update(...)`."""
    into = [c.args[0] for c in s.calls_of("setattr") if c.args]
    into += [n for c in s.calls_of("update") if (owner := receiver(c)) is not None for n in ast.walk(owner)]
    return any(isinstance(n, ast.expr) and _ARGUMENTS.match(last(n)) for n in into)
