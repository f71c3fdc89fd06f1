"""Objects handed twice to the library that wraps them for distributed training."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import Syntax, dotted, last, receiver
from .project import Code, Hazard, Project, detects

_PREPARES = {"prepare": re.compile(r"accelerator$", re.I), "setup": re.compile(r"fabric$", re.I)}
_WRAPPERS = ("DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "initialize")


@detects("prepared_twice")
def prepared_twice(code: Code, project: Project) -> Iterator[Hazard]:
    """A model, optimizer or scheduler that is prepared a second time: a scheduler then steps twice in each step."""
    s = code.syntax
    seen: dict[str, ast.Call] = {}
    for call in s.calls_of(*_PREPARES):
        if not _PREPARES[last(call.func)].search(last(receiver(call))):
            continue
        for name in filter(None, map(dotted, call.args)):
            before = seen.get(name)
            if before is None or _apart(s, before, call) or _made_anew(s, name, before, call):
                seen[name] = call
            else:
                yield Hazard("prepared_twice", call.lineno, name)
    for call in s.calls_of(*_WRAPPERS):
        for given in (*call.args, *(k.value for k in call.keywords if k.arg == "model")):
            before = seen.get(dotted(given) or "")
            if before is not None and not _apart(s, before, call):
                yield Hazard("prepared_twice", call.lineno, dotted(given))


def _apart(s: Syntax, one: ast.Call, other: ast.Call) -> bool:
    """Whether the two stand in branches of which only one runs, or in different functions."""
    if s.function_of(one) is not s.function_of(other):
        return True
    for branch in (n for n in s.above(one) if isinstance(n, ast.If)):
        first = any(one in ast.walk(n) for n in branch.body)
        if (first and any(other in ast.walk(n) for n in branch.orelse)) or (
            not first and any(other in ast.walk(n) for n in branch.body)
        ):
            return True
    return False


def _made_anew(s: Syntax, name: str, before: ast.Call, again: ast.Call) -> bool:
    """Whether the name is given a new object between the two calls."""
    for n in s.every(ast.Assign):
        if before.lineno < n.lineno < again.lineno and any(dotted(t) == name for t in n.targets):
            return True
    return False
