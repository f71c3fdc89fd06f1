"""Things that hold on to every batch or sample they have seen."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import constant, dotted, keyword, last
from .project import Code, Hazard, Project, detects


@detects("cycle_keeps_batches")
def cycles(code: Code, project: Project) -> Iterator[Hazard]:
    """`itertools.cycle` keeps a copy of every batch of a loader."""
    if "def cycle(" in code.source:
        return
    for call in code.syntax.calls_of("cycle"):
        given = call.args[0] if call.args else None
        loads = isinstance(given, ast.Call) or bool(re.search(r"loader|dl$", last(given), re.IGNORECASE))
        if loads and dotted(call.func) in ("cycle", "itertools.cycle"):
            yield Hazard("cycle_keeps_batches", call.lineno, last(given))


@detects("unbounded_cache")
def unbounded(code: Code, project: Project) -> Iterator[Hazard]:
    """A memo without a bound on a method that is called once a sample or a step."""
    for function in code.syntax.functions:
        if function.name not in ("__getitem__", "get", "load", "forward", "load_image", "_load", "tokenize", "encode"):
            continue
        for decorator in function.decorator_list:
            plain = last(decorator) == "cache"
            open_ended = (
                isinstance(decorator, ast.Call)
                and last(decorator.func) == "lru_cache"
                and constant(
                    keyword(decorator, "maxsize") or (decorator.args[0] if decorator.args else ast.Constant(128))
                )
                is None
            )
            if plain or open_ended:
                yield Hazard("unbounded_cache", decorator.lineno, function.name)
