"""Parts of a model that no optimizer holds: they are used in every step and keep their first random weights."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile

from ..syntax import Syntax, dotted, last, receiver, walk
from .project import OPTIMIZERS, Code, Hazard, Project, detects

_WEIGHTS = re.compile(
    r"^(?:Lazy)?(?:Linear|Bilinear|Conv(?:Transpose)?[123]d|Embedding(?:Bag)?|LSTM|GRU|RNN|(?:Batch|Instance)Norm[123]d"
    r"|LayerNorm|RMSNorm|GroupNorm|MultiheadAttention|Transformer\w*)$"
)
_HOLDERS = ("Sequential", "ModuleList", "ModuleDict")
# Left out on purpose: what is pretrained and kept, copied from another, or fixed at random.
_KEPT = re.compile(
    r"(?i)ref|teacher|vae|text_?enc|encoder|target|frozen|fixed|ema|momentum|shadow|backbone|base|body|trunk|feature"
    r"|pretrain|clip|lpips|perceptual|old|random|fourier|hash|codebook"
)
_GATHER = ("parameters", "named_parameters")
_MEASURES = ("sum", "clip_grad_norm_", "clip_grad_value_", "get_total_norm", "print", "any", "all", "len")
_MOVES = ("to", "cuda", "cpu", "train", "float", "double", "half", "bfloat16")
# Ways to gather weights that tell no names: then nothing can be said.
_UNNAMED = ("getattr", "vars", "children", "named_children", "modules", "named_modules", "chain", "state_dict")


@detects("optimizer_leaves_out")
def left_out(code: Code, project: Project) -> Iterator[Hazard]:
    """An optimizer is given parts of a model by name, and another fresh part that the model uses is in none."""
    classes = project.once("classes with weights", lambda: _classes(project))
    s = code.syntax
    seen: set[ast.AST] = set()
    for made in s.calls:
        scope = s.scope_of(made)
        if not OPTIMIZERS.match(last(made.func)) or not (made.args or made.keywords) or scope in seen:
            continue
        seen.add(scope)
        for owner, given in _given(s, scope).items():
            model = _class_of(s, made, scope, owner, classes)
            if model is None or _unclear(scope, owner) or _loaded(s, owner):
                continue
            for part in sorted(_fresh(model, classes) - given):
                if not _KEPT.search(part) and _used(model, part) and not _elsewhere(project, scope, part):
                    yield Hazard("optimizer_leaves_out", made.lineno, part)


def _classes(project: Project) -> dict[str, ast.ClassDef]:
    return {c.name: c for code in project.codes for c in code.syntax.every(ast.ClassDef)}


def _given(s: Syntax, scope: ast.AST) -> dict[str, set[str]]:
    """By the name of a model: its parts whose parameters are asked for in a scope, but for counts and norms of all."""
    found: dict[str, set[str]] = {}
    for call in walk(scope):
        if not isinstance(call, ast.Call) or last(call.func) not in _GATHER:
            continue
        around = (n for n in s.above(call) if isinstance(n, ast.Call | ast.stmt))
        if any(isinstance(n, ast.Call) and last(n.func) in _MEASURES for n in takewhile(_in_statement, around)):
            continue
        owner, _, part = dotted(receiver(call)).partition(".")
        found.setdefault(owner, set()).add(part.partition(".")[0])
    return {owner: parts for owner, parts in found.items() if owner and "" not in parts}


def _in_statement(node: ast.AST) -> bool:
    return not isinstance(node, ast.stmt)


def _class_of(s: Syntax, made: ast.Call, scope: ast.AST, owner: str, classes: dict) -> ast.ClassDef | None:
    """The class of the model that goes by a name where an optimizer is made."""
    if owner == "self":
        return next((n for n in s.above(made) if isinstance(n, ast.ClassDef)), None)
    values = s.assigned(owner, scope)
    if len(values) != 1 or not isinstance(values[0], ast.Call):
        return None
    value: ast.expr | None = values[0]
    while isinstance(value, ast.Call) and last(value.func) in _MOVES:
        value = receiver(value)
    return classes.get(last(value.func)) if isinstance(value, ast.Call) else None


def _unclear(scope: ast.AST, owner: str) -> bool:
    """Whether weights may also come by a way that names no part: a helper of the model, its modules, its attributes."""
    for call in walk(scope):
        if not isinstance(call, ast.Call):
            continue
        if last(call.func) in _UNNAMED or last(call.func) == "add_param_group":
            return True
        if owner == "self" and dotted(call.func).count(".") == 1 and dotted(call.func).startswith("self."):
            return True
    return False


def _loaded(s: Syntax, owner: str) -> bool:
    """Whether the whole model takes saved weights, not merely where a run is resumed: then no part of it is fresh."""
    return any(
        dotted(receiver(call)) == owner and not s.guarded(call, s.scope_of(call))
        for call in s.calls_of("load_state_dict")
    )


def _fresh(model: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Attributes that are made with new weights and not switched off again in the class."""
    found: set[str] = set()
    for n in walk(model):
        if not isinstance(n, ast.Assign) or not dotted(n.targets[0]).startswith("self."):
            continue
        part = dotted(n.targets[0]).removeprefix("self.")
        if "." not in part and _has_weights(n.value, classes):
            found.add(part)
    off = {
        dotted(receiver(c)).removeprefix("self.").partition(".")[0]
        for c in walk(model)
        if isinstance(c, ast.Call) and last(c.func) in ("requires_grad_", "eval", "load_state_dict", "detach")
    }
    for loop in walk(model):  # for p in self.part.parameters(): p.requires_grad = False
        if isinstance(loop, ast.For) and "requires_grad" in ast.dump(loop):
            off |= {n.attr for n in walk(loop.iter) if isinstance(n, ast.Attribute)}
    return found - off - _shared(model)


def _shared(model: ast.ClassDef) -> set[str]:
    """Attributes that go into another one as well, or share their weights with it: whoever holds that holds both."""
    found: set[str] = set()
    for n in walk(model):
        if isinstance(n, ast.Assign) and dotted(n.targets[0]).startswith("self."):
            inside = [a for a in walk(n.value) if isinstance(a, ast.Attribute) and dotted(a).startswith("self.")]
            target = [n.targets[0]] if dotted(n.targets[0]).count(".") > 1 else []
            found |= {dotted(a).split(".")[1] for a in (*inside, *target)}
        elif isinstance(n, ast.Call) and last(n.func) in ("append", "extend", "add_module", "register_module"):
            found |= {dotted(a).split(".")[1] for a in n.args if dotted(a).startswith("self.")}
    return found


def _has_weights(value: ast.expr, classes: dict[str, ast.ClassDef], depth: int = 0) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = last(value.func)
    if _WEIGHTS.match(name):
        return True
    if name in _HOLDERS:
        return any(isinstance(n, ast.Call) and _WEIGHTS.match(last(n.func)) for a in value.args for n in walk(a))
    own = classes.get(name)
    return own is not None and depth < 2 and any(
        isinstance(n, ast.Assign) and dotted(n.targets[0]).startswith("self.")
        and _has_weights(n.value, classes, depth + 1)
        for n in walk(own)
    )  # fmt: skip


def _used(model: ast.ClassDef, part: str) -> bool:
    """Whether the model calls the part outside of its making."""
    return any(
        isinstance(n, ast.Call) and dotted(n.func) == f"self.{part}"
        for method in model.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.name != "__init__"
        for n in walk(method)
    )


def _elsewhere(project: Project, scope: ast.AST, part: str) -> bool:
    """Whether the part's weights are asked for, loaded or switched off outside of the model's class."""
    inside = set(walk(scope))
    for code in project.codes:
        for call in code.syntax.calls_of(*_GATHER, "load_state_dict", "requires_grad_", "weight", "copy_"):
            if call not in inside and part in dotted(receiver(call)).split("."):
                return True
    return any(isinstance(n, ast.Attribute) and n.attr == part for n in inside)
