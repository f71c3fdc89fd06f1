"""Whether a statement is come to when the function that it stands in runs: by the conditions around it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from ..run.program.syntax import Function, Loop, Syntax, last

# UNTOLD is what a condition decides that holds or not for all of a run, and of which nothing is known.
NO, UNTOLD, PERHAPS, SURELY = 0, 1, 2, 3

_CHANGES = re.compile(r"rank|main_process|training$|global_zero|is_master|local_process", re.IGNORECASE)
_CALLED_BY_NOBODY = ("forward", "__call__", "training_step", "validation_step", "compute_loss")  # but by libraries


class Conditions:
    """The conditions in a program's sources.

    Args:
        decided: whether a condition of a source holds, where that is known.
        shown: for each source the lines whose print the log has.
    """

    def __init__(
        self,
        sources: Mapping[str, Syntax],
        decided: Callable[[str, ast.expr], bool | None],
        shown: Mapping[str, Sequence[int]],
    ) -> None:
        self._sources, self._decided, self._shown = sources, decided, shown

    def level(self, source: str, node: ast.AST, until: ast.AST | None = None) -> int:
        """Whether a node is come to when its body runs: SURELY where nothing undecided stands before it.

        UNTOLD where one of the conditions is the same for the whole run (an option, a number of processes): then it is
        always come to, or never. Of a branch in which a line that the log has was printed it is known that it was
        taken.
        """
        s, inner, level = self._sources[source], node, SURELY
        for n in s.above(node):
            if n is until or isinstance(n, Function | ast.Lambda):
                return min(level, PERHAPS) if isinstance(n, ast.Lambda) else level
            if (
                isinstance(n, ast.If | ast.IfExp | ast.While)
                and inner is not n.test
                and not self._taken(source, n, inner)
            ):
                level = min(level, UNTOLD if not isinstance(n, ast.While) and self._stands(s, n) else PERHAPS)
            if isinstance(n, ast.ExceptHandler) or (isinstance(n, ast.BoolOp) and inner is not n.values[0]):
                level = min(level, PERHAPS)
            inner = n
        return level

    def _taken(self, source: str, branch: ast.If | ast.IfExp | ast.While, inner: ast.AST) -> bool:
        """Whether it is known that a branch was taken."""
        if self._decided(source, branch.test) is not None:
            return True
        blocks = [b for b in (branch.body, branch.orelse) if isinstance(b, list) and inner in b]
        return any(b[0].lineno <= n <= (b[-1].end_lineno or 0) for b in blocks for n in self._shown.get(source, ()))

    def _stands(self, s: Syntax, branch: ast.If | ast.IfExp) -> bool:
        """Whether a condition is the same each time: nothing in it is assigned in a loop, counted, or given anew."""
        held = list(ast.walk(branch.test))
        if any(isinstance(n, ast.BinOp) for n in held) or any(_CHANGES.search(last(n)) for n in held if last(n)):
            return False
        function = s.function_of(branch)
        moved = {n for a in s.above(branch) if isinstance(a, Loop) for n in _assigned(a)}
        bare = {n.id for n in held if isinstance(n, ast.Name) and not isinstance(s.parents.get(n), ast.Attribute)}
        fields = {n.attr for n in held if isinstance(n, ast.Attribute)}
        of_self = {n.attr for n in held if isinstance(n, ast.Attribute) and last(n.value) == "self"}
        if bare & moved or fields & moved or (of_self and of_self & _set_later(s, branch)):
            return False
        given = bare & {a.arg for a in _arguments(function)} if function is not None else set[str]()
        return all(function is not None and self._mode(s, function, name, branch.test) for name in given)

    def _mode(self, s: Syntax, function: Function, name: str, test: ast.expr) -> bool:
        """Whether a parameter chooses between ways of working: compared to a word, or left at None or False by all."""
        if any(
            isinstance(n, ast.Compare) and last(n.left) == name
            and all(isinstance(c, ast.Constant) and isinstance(c.value, str) for c in n.comparators)
            for n in ast.walk(test)
        ):  # fmt: skip
            return True
        arguments = list(_arguments(function))
        usual = _defaults(function).get(name)
        if not (isinstance(usual, ast.Constant) and isinstance(usual.value, bool | None)):
            return False
        if function.name in _CALLED_BY_NOBODY or name in self._keywords:
            return False
        place = next(i for i, a in enumerate(arguments) if a.arg == name)
        owner = s.parents.get(function)
        called = owner.name if function.name == "__init__" and isinstance(owner, ast.ClassDef) else function.name
        calls = [c for other in self._sources.values() for c in other.calls_of(called)]
        return all(
            len(c.args) + isinstance(owner, ast.ClassDef) <= place
            and not any(isinstance(a, ast.Starred) for a in c.args)
            and all(k.arg is not None for k in c.keywords)
            for c in calls
        )

    @cached_property
    def _keywords(self) -> frozenset[str]:
        """Names of all keywords that any call gives."""
        return frozenset(k.arg for s in self._sources.values() for c in s.calls for k in c.keywords if k.arg)


def holds(test: ast.expr, part: Callable[[ast.expr], bool | None]) -> bool | None:
    """Whether a test holds by what is known of its parts: `not`, `and` and `or` over true, false and unknown."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = holds(test.operand, part)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        sides = [holds(v, part) for v in test.values]
        decisive = isinstance(test.op, ast.Or)
        return decisive if decisive in sides else None if None in sides else not decisive
    return part(test)


def _arguments(f: Function) -> Iterator[ast.arg]:
    a = f.args
    yield from (*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x is not None))


def _defaults(f: Function) -> dict[str, ast.expr]:
    a = f.args
    placed = [*a.posonlyargs, *a.args]
    found = {arg.arg: d for arg, d in zip(placed[len(placed) - len(a.defaults) :], a.defaults, strict=True)}
    return found | {arg.arg: d for arg, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}


def _assigned(block: ast.AST) -> set[str]:
    """Names and attributes that a loop or a function assigns."""
    stores = (n for n in ast.walk(block) if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Store))
    return {last(n) for n in stores}


def _set_later(s: Syntax, node: ast.AST) -> set[str]:
    """Attributes of an object that other methods of its class than `__init__` assign."""
    owner = next((n for n in s.above(node) if isinstance(n, ast.ClassDef)), None)
    methods = (f for f in (owner.body if owner is not None else ()) if isinstance(f, Function) and f.name != "__init__")
    stores = (n for f in methods for n in ast.walk(f) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return {n.attr for n in stores if last(n.value) == "self"}
