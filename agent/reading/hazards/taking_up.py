"""Code that takes a run up again, and leaves behind a part of what was restored."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import Syntax, constant, dotted, keyword, last, walk
from .project import OPTIMIZERS, Code, Hazard, Project, detects

_POSITION = re.compile(
    r"^(?:train_state|data_state|consumed\w*|start_(?:iter|step|sample|batch|index)\w*|resume\w*|skip_\w*(?:batch|sample|step)\w*)$"
)
_DRIVER = re.compile(r"(?:\S*/)?(?:nvidia-smi|rocm-smi)\b")
_READERS = frozenset({"DataLoader", "DistributedSampler", "RandomSampler", "BatchSampler"})


@detects("optimizer_rebuilt")
def rebuilt(code: Code, project: Project) -> Iterator[Hazard]:
    """An optimizer that was given, or was restored, is replaced by a new one: its moments are gone."""
    s = code.syntax
    for n in s.every(ast.Assign):
        target = last(n.targets[0])
        if not isinstance(n.value, ast.Call) or not re.search(r"optim", target):
            continue
        scope = s.scope_of(n)
        made_anew = _is_class_of(s, n.value.func, target, scope) or _after_its_restore(n, target, scope)
        if made_anew and any(isinstance(a, ast.Call) and last(a.func) == "parameters" for a in walk(n.value)):
            yield Hazard("optimizer_rebuilt", n.lineno, target)


def _is_class_of(s: Syntax, made: ast.expr, target: str, scope: ast.AST) -> bool:
    """Whether what is called is the class of the object of that name: `optimizer.__class__`, `type(optimizer)`."""
    if isinstance(made, ast.Name):  # one step back: names may be assigned in a circle
        return any(
            _is_class_of(s, value, target, scope)
            for value in s.assigned(made.id, scope)
            if not isinstance(value, ast.Name)
        )
    if isinstance(made, ast.Attribute) and made.attr == "__class__":
        return last(made.value) == target
    return isinstance(made, ast.Call) and last(made.func) == "type" and any(last(a) == target for a in made.args)


def _after_its_restore(made: ast.Assign, target: str, scope: ast.AST) -> bool:
    restored = any(
        isinstance(n, ast.Call) and dotted(n.func).endswith(f"{target}.load_state_dict") and n.lineno < made.lineno
        for n in walk(scope)
    )
    return restored and isinstance(made.value, ast.Call) and bool(OPTIMIZERS.search(last(made.value.func)))


@detects("position_unused")
def not_passed_on(code: Code, project: Project) -> Iterator[Hazard]:
    """A function that makes the loader is given how far the run had come, and does not use it."""
    for function in code.syntax.functions:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        given = [a for a in (*function.args.args, *function.args.kwonlyargs) if _POSITION.search(a.arg)]
        body = [n for statement in function.body for n in walk(statement)]
        reader = next((n for n in body if isinstance(n, ast.Call) and last(n.func) in _READERS), None)
        if reader is None:
            continue
        used = {n.id for n in body if isinstance(n, ast.Name)}
        for parameter in given:
            if parameter.arg not in used and "kwargs" not in used and "locals" not in used:
                yield Hazard("position_unused", parameter.lineno, parameter.arg)
                yield Hazard("position_unused", reader.lineno, last(reader.func))


@detects("filtered_load")
def filtered(code: Code, project: Project) -> Iterator[Hazard]:
    """Only entries of certain names are taken from a checkpoint, and the load does not mind what is missing."""
    s = code.syntax
    for call in s.calls_of("load_state_dict"):
        if constant(keyword(call, "strict")) is not False or not call.args:
            continue
        scope = s.scope_of(call)
        given = call.args[0]
        sources = s.assigned(given.id, scope) if isinstance(given, ast.Name) else [given]
        for made in sources:
            if isinstance(made, ast.DictComp) and (word := _asked_word(made)):
                yield Hazard("filtered_load", made.lineno, word)
                yield Hazard("filtered_load", call.lineno, word)


def _asked_word(made: ast.DictComp) -> str:
    """The text that a name must hold to be kept: `if "detector" in k`, `if k.startswith("model.")`."""
    for test in made.generators[0].ifs:
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In) and isinstance(constant(test.left), str):
            return str(constant(test.left))
        if isinstance(test, ast.Call) and last(test.func) == "startswith" and test.args:
            value = constant(test.args[0])
            return value if isinstance(value, str) else ""
    return ""


@detects("driver_queried")
def asks_the_driver(code: Code, project: Project) -> Iterator[Hazard]:
    """A program is started and waited for in a loop to ask about the GPU: tenths of a second, or seconds."""
    s = code.syntax
    for call in s.calls_of("check_output", "run", "Popen", "call", "check_call", "popen", "getoutput"):
        words = [c.value for c in walk(call) if isinstance(c, ast.Constant) and isinstance(c.value, str)]
        if any(_DRIVER.match(w) for w in words) and (s.loop_of(call) or _called_in_a_loop(s, project, call)):
            yield Hazard("driver_queried", call.lineno, "nvidia-smi")


def _called_in_a_loop(s: Syntax, project: Project, node: ast.AST) -> bool:
    """Whether the function around a node is called in a loop of any file. At the start of a run it costs nothing."""
    function = s.function_of(node)
    return function is not None and any(
        c.syntax.loop_of(call) for c in project.codes for call in c.syntax.calls_of(function.name)
    )
