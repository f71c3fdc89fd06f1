"""How saved adapters are taken up again: trained on without being switched on, or laid over a fresh one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import Syntax, constant, dotted, keyword, last, receiver, walk
from .project import OPTIMIZERS, Code, Hazard, Project, detects

_LOADERS = re.compile(r"(?:^|\.)(?:Auto)?PeftModel(?:For\w+)?\.from_pretrained$")
_HEADED = re.compile(
    r"For(?:SequenceClassification|TokenClassification|QuestionAnswering|MultipleChoice|ImageClassification"
    r"|AudioClassification)\.from_pretrained$"
)
# Ways by which weights of a loaded adapter are switched on, merged or replaced after all.
_SWITCHED = ("is_trainable", "requires_grad", "merge_and_unload", "merge_adapter", "get_peft_model", "add_adapter",
             "peft_config", "inference_mode=False", "for_training(", "add_weighted_adapter", "unload(")  # fmt: skip


@detects("adapter_not_trainable")
def switched_off(code: Code, project: Project) -> Iterator[Hazard]:
    """A saved adapter is handed to a trainer as it was loaded: for inference, with every weight switched off."""
    s = code.syntax
    off = "is_trainable=False" in re.sub(r"\s", "", code.source)
    if project.mentions(*(w for w in _SWITCHED if not (off and w == "is_trainable"))):
        return
    for call in s.calls:
        if not _LOADERS.search(dotted(call.func)) or constant(keyword(call, "is_trainable")) is True:
            continue
        kept = _name_of(s, call)
        if kept and any(_trains(c, kept) for c in s.calls if c.lineno > call.lineno):
            yield Hazard("adapter_not_trainable", call.lineno, kept)


def _name_of(s: Syntax, call: ast.Call) -> str:
    """The variable that takes a call's result."""
    above = s.parents.get(call)
    return dotted(above.targets[0]) if isinstance(above, ast.Assign) and len(above.targets) == 1 else ""


def _trains(call: ast.Call, model: str) -> bool:
    """Whether a call is a trainer or an optimizer made with the model; a reference or reward model is none."""
    name = last(call.func)
    if name.endswith("Trainer"):
        given = keyword(call, "model")
        return dotted(given if given is not None else (call.args[0] if call.args else None)) == model
    if not OPTIMIZERS.match(name):
        return False
    return any(isinstance(n, ast.Name | ast.Attribute) and dotted(n) == model for a in call.args for n in walk(a))


@detects("adapter_over_adapter")
def doubled(code: Code, project: Project) -> Iterator[Hazard]:
    """A saved adapter is loaded into a model that already carries a fresh one: its names no longer fit."""
    s = code.syntax
    for fresh in s.calls_of("get_peft_model"):
        kept = _name_of(s, fresh)
        for call in s.calls if kept else ():
            late = call.lineno > fresh.lineno and s.scope_of(call) is s.scope_of(fresh)
            if not late or not _LOADERS.search(dotted(call.func)) or not call.args or dotted(call.args[0]) != kept:
                continue
            if _same_branch(s, fresh, call) and not _made_anew(s, kept, fresh, call):
                yield Hazard("adapter_over_adapter", fresh.lineno, kept)
                yield Hazard("adapter_over_adapter", call.lineno, kept)


def _same_branch(s: Syntax, first: ast.AST, second: ast.AST) -> bool:
    """Whether the second call always comes after the first: they are no alternatives of one condition."""
    return _branches(s, first) <= _branches(s, second)


def _branches(s: Syntax, node: ast.AST) -> set[tuple[int, str]]:
    """The branch of each condition around a node."""
    found: set[tuple[int, str]] = set()
    inner = node
    for above in s.above(node):
        if isinstance(above, ast.If | ast.Try | ast.IfExp):
            part = next((name for name, value in ast.iter_fields(above) if _holds(value, inner)), "")
            found.add((id(above), part))
        inner = above
    return found


def _holds(value: object, node: ast.AST) -> bool:
    return value is node or (isinstance(value, list) and any(v is node for v in value))


def _made_anew(s: Syntax, name: str, first: ast.Call, second: ast.Call) -> bool:
    """Whether the variable is given another model between two calls."""
    return any(
        first.lineno < n.lineno < second.lineno and any(dotted(t) == name for t in n.targets)
        for n in s.every(ast.Assign)
    )


@detects("adapter_on_new_head")
def new_head(code: Code, project: Project) -> Iterator[Hazard]:
    """A saved adapter is loaded into a base model whose head for the task is new: right only if it was saved too."""
    s = code.syntax
    heads = {
        _name_of(s, c): c
        for c in s.calls
        if _HEADED.search(dotted(c.func)) and not any(k.arg == "config" for k in c.keywords)
    }
    for call in s.calls:
        base = dotted(call.args[0]) if call.args else ""
        if base and base in heads and _LOADERS.search(dotted(call.func)) and call.lineno > heads[base].lineno:
            yield Hazard("adapter_on_new_head", call.lineno, last(receiver(heads[base])))
