"""Outputs of the model that are put, with their graph, into a list that outlives the step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import Function, Loop, Syntax, dotted, last, names, receiver, walk
from .loops import training_loops
from .project import Code, Hazard, Project, detects

_MODEL = re.compile(r"(?:self|(?:self\.)?(?:\w{0,20}model|\w{0,20}net|module|forward|backbone|encoder|decoder))$")
_LETS_GO = {"detach", "item", "no_grad", "inference_mode"}


@detects("graph_kept")
def outputs_kept(code: Code, project: Project) -> Iterator[Hazard]:
    """A training step appends what the model returned, alone or in a record, to a list kept over steps."""
    s = code.syntax
    steps: list[Function | Loop] = [f for f in s.functions if f.name == "training_step"]
    for scope in [*steps, *training_loops(s)]:
        produced = _outputs(scope)
        made_here = {t for n in walk(scope) if isinstance(n, ast.Assign) for t in map(dotted, n.targets)}
        for call in (n for n in walk(scope) if isinstance(n, ast.Call)):
            kept = dotted(receiver(call))
            if last(call.func) != "append" or not call.args or not kept or kept in made_here:
                continue
            outlives = kept.startswith("self.") or isinstance(scope, Loop)
            if outlives and produced & _parts(call.args[0]) and not _let_go(s, scope, call, kept):
                yield Hazard("graph_kept", call.lineno, last(receiver(call)))


def _outputs(scope: ast.AST) -> set[str]:
    """Names that hold what a call of the model returned, and were not cut off from its graph."""
    found: set[str] = set()
    for n in walk(scope):
        if not isinstance(n, ast.Assign):
            continue
        targets = {t.id for target in n.targets for t in ast.walk(target) if isinstance(t, ast.Name)}
        if isinstance(n.value, ast.Call) and _MODEL.match(dotted(n.value.func)):
            found |= targets
        elif _LETS_GO & names(n.value):
            found -= targets
    return found


def _parts(value: ast.expr) -> set[str]:
    """Names that a value is or holds as they are: `x`, `(x, y)`, `{"a": x}`; what goes through a call is another."""
    if isinstance(value, ast.Name):
        return {value.id}
    if isinstance(value, ast.Dict):
        return {name for v in value.values for name in _parts(v)}
    if isinstance(value, ast.Tuple | ast.List):
        return {name for v in value.elts for name in _parts(v)}
    return set()


def _let_go(s: Syntax, scope: ast.AST, call: ast.Call, kept: str) -> bool:
    """Whether the list is emptied in the same step, or filled where no graph is made."""
    emptied = any(
        isinstance(n, ast.Call) and last(n.func) in ("clear", "pop", "popleft") and dotted(receiver(n)) == kept
        for n in walk(scope)
    )
    above = [n for n in s.above(call) if isinstance(n, ast.With)]
    return emptied or any(_LETS_GO & names(item.context_expr) for n in above for item in n.items)
