"""Losses that are cut off from the parameters and told to require gradients, so that backward raises nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import constant, dotted, keyword, last, receiver
from .project import Code, Hazard, Project, detects

_LOSS = re.compile(r"(?i)^(?:\w*_)?loss(?:es|_(?:sum|total|mean|value|tensor))?$")
_COPIES = ("tensor", "as_tensor", "Variable", "FloatTensor", "from_numpy")


@detects("loss_made_to_require_grad")
def revived(code: Code, project: Project) -> Iterator[Hazard]:
    """A loss that has no graph is made a leaf of its own: backward runs, and reaches no parameter."""
    if not code.mentions("backward"):
        return
    s = code.syntax
    for call in s.calls_of("requires_grad_"):
        if _LOSS.match(last(receiver(call))) and not (call.args and constant(call.args[0]) is False):
            yield Hazard("loss_made_to_require_grad", call.lineno, dotted(call.func))
    for n in s.every(ast.Assign):
        for target in n.targets:
            *owner, name = dotted(target).split(".")
            told = name == "requires_grad" and constant(n.value) is True and owner and _LOSS.match(owner[-1])
            if told or (_LOSS.match(name) and _is_leaf(n.value)):
                yield Hazard("loss_made_to_require_grad", n.lineno, dotted(target))


def _is_leaf(value: ast.expr) -> bool:
    """Whether a value is a new tensor that is to require gradients, whatever it was made of."""
    asked = keyword(value, "requires_grad") if isinstance(value, ast.Call) and last(value.func) in _COPIES else None
    return asked is not None and constant(asked) is True
