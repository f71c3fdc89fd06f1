"""Loss terms that are wrong or unstable by themselves: softmax twice, bare logarithms and divisions, double shifts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...run.program.syntax import Syntax, constant, dotted, keyword, last, names, receiver, walk
from ..project import Code, Hazard, Project, detects

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
    own = project.mentions("nll_loss(", "NLLLoss")  # the loss that log-probabilities are for
    softmax, log_softmax = {"softmax", *_ends_in(s, "Softmax")}, {"log_softmax", *_ends_in(s, "LogSoftmax")}
    for n in (n for f in s.functions if f.name == "forward" for n in walk(f) if isinstance(n, ast.Return)):
        made = last(n.value.func) if isinstance(n.value, ast.Call) else ""
        if made in softmax:
            yield Hazard("softmax_before_cross_entropy", n.lineno, "the model returns probabilities")
        elif made in log_softmax and not own:
            yield Hazard("logsoftmax_twice", n.lineno, "the model returns log-probabilities")


def _ends_in(s: Syntax, layer: str) -> set[str]:
    """Names of rows of layers that end in a layer."""
    rows = [(n, n.value) for n in s.every(ast.Assign) if isinstance(n.value, ast.Call) and n.value.args]
    ends = [(n, c.args[-1]) for n, c in rows if last(c.func) == "Sequential"]
    return {last(t) for n, end in ends if isinstance(end, ast.Call) and last(end.func) == layer for t in n.targets}


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
        while isinstance(inside, ast.Subscript):
            inside = inside.value
        if inside is None or dotted(call.func).split(".")[0] in ("math", "np", "numpy", "logger", "wandb", "self"):
            continue
        raw = _made_by(s, inside, call) in ("softmax", "sigmoid") or re.search(r"prob", last(inside), re.IGNORECASE)
        if raw and not _SAFE & (names(inside) | _assigned_names(s, inside, call)):
            yield Hazard("log_of_raw", call.lineno)
    for n in s.every(ast.BinOp):
        divisor = s.origin(n.right, n) if isinstance(n.op, ast.Div) else None
        if divisor is not None and (why := _may_be_zero(divisor)) and not _numpy_only(divisor):
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
    for n in (*s.every(ast.Dict), *s.calls_of("dict")):
        keys = [k.arg for k in n.keywords] if isinstance(n, ast.Call) else list(map(constant, n.keys))
        values = [k.value for k in n.keywords] if isinstance(n, ast.Call) else n.values
        pairs = dict(zip(keys, values, strict=True))
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
    for n in (*s.every(ast.AugAssign), *s.calls_of(*_IN_PLACE)):
        changed = n.target if isinstance(n, ast.AugAssign) else receiver(n)
        if changed is None or not _is_parameter(s, changed) or "data" in names(changed):
            continue
        around = [i.context_expr for a in s.above(n) if isinstance(a, ast.With) for i in a.items]
        function = s.function_of(n)
        around += function.decorator_list if function is not None else []
        if not {"no_grad", "inference_mode", "set_grad_enabled"} & names(ast.Tuple(around)):
            yield Hazard("in_place_on_leaf", n.lineno, dotted(changed))


_IN_PLACE = ("mul_", "add_", "sub_", "div_", "zero_", "fill_", "copy_", "clamp_")


def _is_parameter(s: Syntax, value: ast.expr) -> bool:
    """Whether a value is a weight: `layer.weight`, or what a loop takes from `model.parameters()`."""
    if isinstance(value, ast.Attribute):
        return value.attr in ("weight", "bias")
    loops = (a for a in s.above(value) if isinstance(a, ast.For) and last(a.target) == last(value))
    return any(isinstance(a.iter, ast.Call) and last(a.iter.func) == "parameters" for a in loops)


@detects("preference_beta_zero")
def without_beta(code: Code, project: Project) -> Iterator[Hazard]:
    """A preference loss that is multiplied by a beta of zero: it is ln 2 whatever the policy does."""
    for call in code.syntax.calls_of("DPOConfig", "DPOTrainer", "KTOConfig", "KTOTrainer"):
        beta = constant(code.syntax.argument(call, "beta"))
        if isinstance(beta, int | float) and not isinstance(beta, bool) and beta == 0:
            yield Hazard("preference_beta_zero", call.lineno, last(call.func))


# ----------
# Labels, masks and special tokens that are shifted or added once too often, or apart from one another.

_LOSS = re.compile(r"loss_function|ForCausalLMLoss")
_EARLIER_SHIFT = re.compile(r"mask\[[^\]\n]*\w ?- ?1\b")


@detects("mask_shifted_apart", "mask_built")
def apart(code: Code, project: Project) -> Iterator[Hazard]:
    """A loss mask loses its last position where the labels lose their first one."""
    moved = any(_EARLIER_SHIFT.search(c.source) for c in project.codes)
    if moved or project.mentions("loss_mask[len", "prompt_length - 1"):
        return  # the mask is moved already where it is made
    found = False
    for function in code.syntax.functions:
        shifts: dict[str, list[ast.Assign]] = {}
        for n in walk(function):
            if isinstance(n, ast.Assign) and (kind := shift_of(n.value)):
                shifts.setdefault(kind, []).append(n)
        labels = [n for n in shifts.get("next", []) if re.search(r"label|target", last(n.targets[0]))]
        for n in shifts.get("all but last", []):
            name = last(n.targets[0])
            if labels and "mask" in name and "attention" not in name:
                found = True
                yield Hazard("mask_shifted_apart", n.lineno, name)
                yield Hazard("mask_shifted_apart", labels[0].lineno, name)
    if found or project.mentions("[:, :-1]"):
        yield from _built(code)


def _built(code: Code) -> Iterator[Hazard]:
    """Where zeros for the prompt and ones for the answer are put together."""
    for n in code.syntax.every(ast.Assign):
        value = n.value
        joined = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)
        if joined and "mask" in last(n.targets[0]) and sum(isinstance(m, ast.List) for m in walk(value)) >= 2:
            yield Hazard("mask_built", n.lineno, last(n.targets[0]))


@detects("label_shift_twice")
def decoder_shift(code: Code, project: Project) -> Iterator[Hazard]:
    """An encoder-decoder shifts its inputs to the right, and its loss is that of a causal model, which shifts again."""
    s = code.syntax
    if project.mentions("shift_tokens_right(", "_shift_right("):
        for function in s.functions:
            if _LOSS.search(function.name):
                for n in walk(function):
                    if isinstance(n, ast.Assign) and shift_of(n.value) == "next":
                        yield Hazard("label_shift_twice", n.lineno, function.name)
    for call in s.calls_of("shift_tokens_right", "_shift_right"):
        after = [
            c
            for c in s.calls
            if _LOSS.search(last(c.func)) and c.lineno > call.lineno and keyword(c, "labels") is not None
            and keyword(c, "shift_labels") is None
        ]  # fmt: skip
        if after and call.args and last(call.args[0]) == last(keyword(after[0], "labels")):
            yield Hazard("label_shift_twice", call.lineno, last(call.func))
            yield Hazard("label_shift_twice", after[0].lineno, last(after[0].func))


@detects("label_shift_twice")
def collated_shift(code: Code, project: Project) -> Iterator[Hazard]:
    """A collator cuts the first label and the last input of each sample, for a model that shifts by itself."""
    own_loss = project.mentions("cross_entropy(", "CrossEntropyLoss(", "nll_loss(")
    if own_loss or not project.mentions("data_collator", "Trainer(", "AutoModelForCausalLM", "transformers"):
        return
    s = code.syntax
    for function in s.functions:
        cut: dict[str, list[ast.Assign]] = {"label": [], "input": []}
        for n in walk(function):
            if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript) and s.function_of(n) is function:
                for what, bounds in (("label", "1:"), ("input", ":-1")):
                    if _cut(n.value) == bounds and what in _key(s, n.targets[0]):
                        cut[what].append(n)
        if cut["label"] and cut["input"]:
            for n in (cut["label"][-1], cut["input"][-1]):
                yield Hazard("label_shift_twice", n.lineno, function.name)


def _cut(value: ast.expr) -> str:
    """`1:` of `x[k][1:]`; empty for anything that is no slice."""
    return ast.unparse(value.slice) if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice) else ""


def _key(s: Syntax, target: ast.Subscript) -> str:
    """The key that is assigned, or what the loop takes it from."""
    key = target.slice
    if isinstance(key, ast.Constant):
        return str(key.value)
    loops = (n for n in s.above(target) if isinstance(n, ast.For) and last(n.target) == last(key))
    return " ".join([last(key), *(last(loop.iter) for loop in loops)])


@detects("special_tokens_twice")
def templated(code: Code, project: Project) -> Iterator[Hazard]:
    """Text that a chat template has rendered is tokenized with special tokens added once more."""
    s = code.syntax
    rendered = [c for c in s.calls_of("apply_chat_template") if constant(keyword(c, "tokenize")) is False]
    if not rendered or "add_special_tokens" in code.source:
        return
    owners = {last(receiver(c)) for c in rendered}
    plain = [
        c for c in s.calls if c.args and (
            last(c.func).endswith("tokenizer") or last(c.func) in owners
            or (last(c.func) == "encode" and last(receiver(c)) in owners)
        )
    ]  # fmt: skip
    for call in plain[:1]:
        yield Hazard("special_tokens_twice", rendered[0].lineno)
        yield Hazard("special_tokens_twice", call.lineno)


# ----------
# Losses that are cut off from the parameters and told to require gradients, so that backward raises nothing.

_CUT_GRAPHS_LOSS = re.compile(r"(?i)^(?:\w*_)?loss(?:es|_(?:sum|total|mean|value|tensor))?$")
_COPIES = ("tensor", "as_tensor", "Variable", "FloatTensor", "from_numpy")


@detects("loss_made_to_require_grad")
def revived(code: Code, project: Project) -> Iterator[Hazard]:
    """A loss that has no graph is made a leaf of its own: backward runs, and reaches no parameter."""
    if not code.mentions("backward"):
        return
    s = code.syntax
    for call in s.calls_of("requires_grad_"):
        if _CUT_GRAPHS_LOSS.match(last(receiver(call))) and not (call.args and constant(call.args[0]) is False):
            yield Hazard("loss_made_to_require_grad", call.lineno, dotted(call.func))
    for n in s.every(ast.Assign):
        for target in n.targets:
            *owner, name = dotted(target).split(".")
            told = name == "requires_grad" and constant(n.value) is True and owner and _CUT_GRAPHS_LOSS.match(owner[-1])
            if told or (_CUT_GRAPHS_LOSS.match(name) and _is_leaf(n.value)):
                yield Hazard("loss_made_to_require_grad", n.lineno, dotted(target))


def _is_leaf(value: ast.expr) -> bool:
    """Whether a value is a new tensor that is to require gradients, whatever it was made of."""
    asked = keyword(value, "requires_grad") if isinstance(value, ast.Call) and last(value.func) in _COPIES else None
    return asked is not None and constant(asked) is True
