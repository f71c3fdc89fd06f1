"""Loss terms that are wrong or unstable by themselves: softmax twice, bare logarithms and divisions, double shifts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import Syntax, constant, dotted, keyword, last, names, receiver, walk
from .project import Code, Hazard, Project, detects

_SAFE = frozenset({"clamp", "clamp_min", "clip", "maximum", "max", "nan_to_num", "where", "log_softmax", "logsigmoid"})
_SPREAD = frozenset({"std", "norm", "var", "sqrt", "abs"})


@detects("softmax_before_cross_entropy", "logsoftmax_twice")
def softmax_twice(code: Code, project: Project) -> Iterator[Hazard]:
    """Cross entropy takes logits; what comes out of softmax or log-softmax is normalized a second time."""
    if not project.mentions("CrossEntropyLoss", "cross_entropy("):
        return
    s = code.syntax
    criteria = _criteria(s)
    for call in s.calls:
        if not call.args or not (last(call.func) in criteria or _made_in_place(call)):
            continue
        made = _made_by(s, call.args[0], call)
        if made in ("softmax", "sigmoid"):
            yield Hazard("softmax_before_cross_entropy", call.lineno, made)
        elif made == "log_softmax":
            yield Hazard("logsoftmax_twice", call.lineno, made)
    for function in s.functions:
        if function.name == "forward":
            for n in walk(function):
                if isinstance(n, ast.Return) and isinstance(n.value, ast.Call) and last(n.value.func) == "softmax":
                    yield Hazard("softmax_before_cross_entropy", n.lineno, "the model returns probabilities")


def _criteria(s: Syntax) -> set[str]:
    """Names that stand for cross entropy in a file."""
    return {"cross_entropy"} | {
        last(t)
        for n in s.every(ast.Assign)
        if isinstance(n.value, ast.Call) and last(n.value.func) == "CrossEntropyLoss"
        for t in n.targets
    }


def _made_in_place(call: ast.Call) -> bool:
    """`nn.CrossEntropyLoss()(logits, labels)`."""
    return isinstance(call.func, ast.Call) and last(call.func.func) == "CrossEntropyLoss"


def _made_by(s: Syntax, value: ast.expr, at: ast.AST) -> str:
    """The last function that made a value: directly, or through one assignment before in the same scope."""
    if isinstance(value, ast.Name):
        before = [v for v in s.assigned(value.id, s.scope_of(at)) if v.lineno <= getattr(at, "lineno", 0)]
        value = before[-1] if before else value
    if isinstance(value, ast.Call):
        name = last(value.func)
        return name if name not in ("Softmax", "LogSoftmax") else ""
    return ""


@detects("log_of_raw", "no_eps")
def bare(code: Code, project: Project) -> Iterator[Hazard]:
    """Logarithms of probabilities that may be zero, and divisions by a spread or a count that may be zero."""
    s = code.syntax
    for call in s.calls_of("log", "log2"):
        inside = call.args[0] if call.args else receiver(call)
        if inside is None or dotted(call.func).split(".")[0] in ("math", "np", "numpy", "logger", "wandb", "self"):
            continue
        raw = _made_by(s, inside, call) in ("softmax", "sigmoid") or re.search(r"prob", last(inside), re.IGNORECASE)
        if raw and not _SAFE & (names(inside) | _assigned_names(s, inside, call)):
            yield Hazard("log_of_raw", call.lineno)
    for n in s.every(ast.BinOp):
        if isinstance(n.op, ast.Div) and (why := _may_be_zero(n.right)) and not _numpy_only(n.right):
            yield Hazard("no_eps", n.lineno, why)


def _assigned_names(s: Syntax, value: ast.expr, at: ast.AST) -> set[str]:
    if not isinstance(value, ast.Name):
        return set()
    return {name for v in s.assigned(value.id, s.scope_of(at)) for name in names(v)}


def _may_be_zero(divisor: ast.expr) -> str:
    if not isinstance(divisor, ast.Call) or not isinstance(divisor.func, ast.Attribute):
        return ""
    name = divisor.func.attr
    if _SAFE & names(divisor) or any(isinstance(m, ast.Add) for m in walk(divisor)):
        return ""
    if name in ("std", "norm", "var") or (name == "sqrt" and _SPREAD & names(ast.Tuple(divisor.args)) - {"sqrt"}):
        return name
    if name == "sum" and "mask" in dotted(divisor.func.value).lower():
        return "sum of a mask"
    return ""


def _numpy_only(node: ast.AST) -> bool:
    return bool({"np", "numpy", "math"} & names(node))


@detects("label_shift_twice")
def shifted_twice(code: Code, project: Project) -> Iterator[Hazard]:
    """Labels are shifted by hand and given to a model that shifts them itself."""
    s = code.syntax
    for call in s.calls:
        labels = keyword(call, "labels")
        if labels is None or not re.search(r"model|net$", last(call.func), re.IGNORECASE):
            continue
        if shift_of(_origin(s, labels, call)) == "next":
            yield Hazard("label_shift_twice", call.lineno)
    if not project.mentions("ForCausalLM", "Trainer("):
        return
    for n in s.every(ast.Dict):
        pairs = {constant(k): v for k, v in zip(n.keys, n.values, strict=True)}
        if "labels" in pairs and "input_ids" in pairs:
            ids, labels = (shift_of(_origin(s, pairs[key], n)) for key in ("input_ids", "labels"))
            if (ids, labels) == ("all but last", "next"):
                yield Hazard("label_shift_twice", pairs["labels"].lineno)


def _origin(s: Syntax, value: ast.expr, at: ast.AST) -> ast.expr:
    if isinstance(value, ast.Name):
        before = [v for v in s.assigned(value.id, s.scope_of(at)) if v.lineno <= getattr(at, "lineno", 0)]
        return before[-1] if before else value
    return value


def shift_of(value: ast.expr) -> str:
    """`next` for `x[:, 1:]`, `all but last` for `x[..., :-1]`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.args[0] if value.args and value.func.attr in ("tensor", "LongTensor") else value.func.value
    if not isinstance(value, ast.Subscript):
        return ""
    index = value.slice.elts[-1] if isinstance(value.slice, ast.Tuple) and value.slice.elts else value.slice
    if not isinstance(index, ast.Slice):
        return ""
    if constant(index.lower) == 1 and index.upper is None:
        return "next"
    minus_one = isinstance(index.upper, ast.UnaryOp) and constant(index.upper.operand) == 1
    return "all but last" if index.lower is None and minus_one else ""


@detects("in_place_on_leaf")
def in_place(code: Code, project: Project) -> Iterator[Hazard]:
    """A parameter changed in place where gradients are recorded."""
    s = code.syntax
    for n in s.every(ast.AugAssign):
        if (
            last(n.target) in ("weight", "bias")
            and isinstance(n.target, ast.Attribute)
            and "data" not in names(n.target)
        ):
            around = [a for a in s.above(n) if isinstance(a, ast.With)]
            if not any(
                {"no_grad", "inference_mode"} & names(ast.Tuple([i.context_expr for i in w.items])) for w in around
            ):
                function = s.function_of(n)
                if function is None or not any("no_grad" in names(d) for d in function.decorator_list):
                    yield Hazard("in_place_on_leaf", n.lineno, dotted(n.target))


@detects("preference_beta_zero")
def without_beta(code: Code, project: Project) -> Iterator[Hazard]:
    """A preference loss that is multiplied by a beta of zero: it is ln 2 whatever the policy does."""
    for call in code.syntax.calls_of("DPOConfig", "DPOTrainer", "KTOConfig", "KTOTrainer"):
        beta = constant(keyword(call, "beta"))
        if isinstance(beta, int | float) and not isinstance(beta, bool) and beta == 0:
            yield Hazard("preference_beta_zero", call.lineno, last(call.func))
