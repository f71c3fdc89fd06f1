"""Conditions whose outcome is plain to see: by constants, and by the options that a program was given or left alone.

decided = Decided(trees, commands)
decided.of(test, tree)     # True, False, or None where it cannot be told
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..run.program.commands import Command
from ..run.program.syntax import Syntax, constant, dotted, keyword, last

_SHOWN_ALONE = re.compile(r'^\s*(?:usage: |File ")|FAILED$|: error: |can\'t open file')  # names a program, no arguments
_PARSES = frozenset({"parse_args", "parse_known_args", "parse_intermixed_args"})
_PLAIN = ("int", "float", "str", "")  # types of options that are read as they stand


class _Unknown:
    """What cannot be told."""


UNKNOWN: Any = _Unknown()


class Decided:
    """The outcome of conditions in the sources of one program.

    Args:
        sources: the sources that it reaches, by name.
        entry: the name of the source that was started.
        commands: how it was started; what lines show that hold no arguments is passed over.
    """

    def __init__(self, sources: Mapping[str, Syntax], entry: str, commands: Iterable[Command]) -> None:
        self._entry = entry
        self._commands = [c for c in commands if c.arguments or not _SHOWN_ALONE.search(c.text)]
        self._holders = {last(t) for s in sources.values() for n in s.every(ast.Assign) for t in _held(n)}
        self._options = self._known(list(sources.values())) if self._commands and self._holders else {}
        self._constants = {name: _constants(s) for name, s in sources.items()}

    def of(self, test: ast.expr, source: str) -> bool | None:
        """Whether a condition of a source holds."""
        if isinstance(test, ast.Compare) and any(
            isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(test)
        ):
            return source == self._entry
        value = self._value(test, source)
        return None if value is UNKNOWN else bool(value)

    def _value(self, node: ast.expr, source: str) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._constants.get(source, {}).get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            return self._options.get(node.attr, UNKNOWN) if last(node.value) in self._holders else UNKNOWN
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            values = [self._value(e, source) for e in node.elts]
            return UNKNOWN if UNKNOWN in values else values
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand, source)
            return not value if isinstance(node.op, ast.Not) and value is not UNKNOWN else UNKNOWN
        if isinstance(node, ast.BoolOp):
            return self._joined(node, source)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return _compared(node.ops[0], self._value(node.left, source), self._value(node.comparators[0], source))
        return UNKNOWN

    def _joined(self, node: ast.BoolOp, source: str) -> Any:
        values = [self._value(v, source) for v in node.values]
        deciding = not isinstance(node.op, ast.And)
        if any(v is not UNKNOWN and bool(v) is deciding for v in values):
            return deciding
        return UNKNOWN if UNKNOWN in values else not deciding

    # ----------
    # Options: what every command gives, else the default.

    def _known(self, sources: list[Syntax]) -> dict[str, Any]:
        """Values of options by the attribute that holds them; what is declared twice or set by code is left out."""
        made = [call for s in sources for call in s.calls_of("add_argument")]
        if any(s.calls_of("set_defaults", "add_subparsers") for s in sources):
            return {}
        found: dict[str, Any] = {}
        for call in made:
            flags = [str(constant(a)) for a in call.args if isinstance(constant(a), str)]
            chosen = constant(keyword(call, "dest")) or next((f for f in flags if f.startswith("--")), "")
            name = str(chosen).lstrip("-").replace("-", "_")
            if name:
                found[name] = UNKNOWN if name in found else self._given(call, flags)
        set_by_code = {
            t.attr for s in sources for t in s.every(ast.Attribute)
            if isinstance(t.ctx, ast.Store) and last(t.value) in self._holders
        }  # fmt: skip
        if any(last(a) in self._holders for s in sources for c in s.calls_of("setattr", "update") for a in c.args[:1]):
            return {}
        return {name: value for name, value in found.items() if value is not UNKNOWN and name not in set_by_code}

    def _given(self, call: ast.Call, flags: Sequence[str]) -> Any:
        """The value of one option, where all commands agree on it."""
        values = [_option(call, flags, c.arguments) for c in self._commands]
        return values[0] if all(type(v) is type(values[0]) and v == values[0] for v in values) else UNKNOWN


def _held(n: ast.Assign) -> list[ast.expr]:
    """Names that take what a parser of arguments returns; of `known, rest` the first."""
    if not (isinstance(n.value, ast.Call) and last(n.value.func) in _PARSES):
        return []
    return [t.elts[0] if isinstance(t, ast.Tuple) and t.elts else t for t in n.targets]


def _option(call: ast.Call, flags: Sequence[str], arguments: Sequence[str]) -> Any:
    action, kind, default = constant(keyword(call, "action")), keyword(call, "type"), keyword(call, "default")
    switch = action in ("store_true", "store_false")
    if (keyword(call, "action") is not None and not switch) or keyword(call, "nargs") is not None:
        return UNKNOWN
    for number, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in flags:
            if switch:
                return action == "store_true"
            value = value if equals else arguments[number + 1] if number + 1 < len(arguments) else ""
            return _read(value, dotted(kind) if kind is not None else "")
        shortened = name.startswith("--") and len(name) > 3 and any(f.startswith(name) for f in flags)
        if shortened or (word.startswith(("$", "@")) and not (number and arguments[number - 1].startswith("--"))):
            return UNKNOWN
    if default is None:
        return action == "store_false" if switch else None
    if not isinstance(default, ast.Constant):
        return UNKNOWN
    named = dotted(kind) if kind is not None else ""
    return _read(default.value, named) if isinstance(default.value, str) else default.value


def _read(value: str, kind: str) -> Any:
    if kind not in _PLAIN or "$" in value:
        return UNKNOWN
    try:
        return {"int": int, "float": float}.get(kind, str)(value)
    except ValueError:
        return UNKNOWN


def _compared(op: ast.cmpop, left: Any, right: Any) -> Any:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    try:
        match op:
            case ast.Eq():
                return left == right
            case ast.NotEq():
                return left != right
            case ast.Is():
                return left is right
            case ast.IsNot():
                return left is not right
            case ast.In():
                return left in right
            case ast.NotIn():
                return left not in right
            case ast.Lt():
                return left < right
            case ast.LtE():
                return left <= right
            case ast.Gt():
                return left > right
            case ast.GtE():
                return left >= right
    except TypeError:
        return UNKNOWN
    return UNKNOWN


def _constants(s: Syntax) -> dict[str, Any]:
    """Names that a source binds once, to a literal; nothing where code run from elsewhere may set them."""
    if s.calls_of("exec", "globals", "eval"):
        return {}
    bound: dict[str, int] = {}
    for n in s.every(ast.Name):
        if isinstance(n.ctx, ast.Store | ast.Del):
            bound[n.id] = bound.get(n.id, 0) + 1
    for a in s.every(ast.arg):
        bound[a.arg] = 2
    return {
        t.id: n.value.value
        for n in s.every(ast.Assign)
        for t in n.targets
        if isinstance(t, ast.Name) and bound.get(t.id) == 1 and isinstance(n.value, ast.Constant)
        and s.function_of(n) is None and not any(isinstance(a, ast.If | ast.Try | ast.ClassDef) for a in s.above(n))
    }  # fmt: skip
