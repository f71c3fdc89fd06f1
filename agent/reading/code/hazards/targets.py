"""Targets that are not what the model is to predict: the inputs themselves, or pairs that were set in another order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...run.program.syntax import Function, Syntax, constant, dotted, last, names, receiver, walk
from ..project import Code, Hazard, Project, detects
from .losses_in_code import shift_of

_INPUT = re.compile(r"(?:x|xb|xs|x_?batch|inputs?|input_ids|src|tokens|ids|data|seq|idx|context)$", re.IGNORECASE)
_TARGET = re.compile(r"(?:y|yb|ys|y_?batch|targets?|tgt|labels?|next_tokens?|gold)$", re.IGNORECASE)
_SERVES = re.compile(r"__getitem__|__iter__|batch|collate|sample|split|loader|encode|tokenize|pairs?", re.IGNORECASE)
_AS_IT_IS = frozenset({"clone", "copy", "deepcopy", "detach", "to", "cuda", "long", "int", "contiguous", "tensor",
                       "LongTensor", "pin_memory", "from_numpy", "as_tensor", "type"})  # fmt: skip
_OWN_LOSS = ("cross_entropy(", "CrossEntropyLoss", "nll_loss", "NLLLoss", "softmax_cross_entropy")
_OTHERS = ("mlm", "mask_token", "masked_lm", "reconstruct", "utoencoder")  # who fills gaps wants the input back
_LIBRARY = ("ForCausalLM", "LMHeadModel", "Trainer(")  # models that shift what they are given as `labels`


@detects("targets_are_inputs")
def unshifted(code: Code, project: Project) -> Iterator[Hazard]:
    """A next-token loss over targets that are the very inputs: the model learns to copy what it sees."""
    if (
        not project.mentions(*_OWN_LOSS)
        or project.mentions(*_OTHERS)
        or project.once("shifts", lambda: _shifts(project))
    ):
        return
    s = code.syntax
    library = project.mentions(*_LIBRARY)
    for scope in (*s.functions, *s.trees):
        if library and "labels" in {str(getattr(n, "id", getattr(n, "value", ""))) for n in walk(scope)}:
            continue
        for given, wanted in _pairs(s, scope):
            same = _plain(s, given, scope) == _plain(s, wanted, scope)
            if same and not _altered(scope, names(given) | names(wanted)):
                yield Hazard("targets_are_inputs", wanted.lineno)


def _shifts(project: Project) -> bool:
    """Whether any source cuts predictions or targets against each other elsewhere, as in `logits[:, :-1]`."""
    cut = (n for c in project.codes for n in c.syntax.every(ast.Subscript))
    return any(
        shift_of(n) in ("next", "all but last") and re.search(r"logit|pred|out|target|label|lm_", dotted(n.value), re.I)
        for n in cut
    )


def _pairs(s: Syntax, scope: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a scope gives as input and as target: by the names, by a returned pair, by the keys of a dict."""
    inputs: list[ast.expr] = []
    for n in walk(scope, into_functions=False):
        if isinstance(n, ast.Assign) and len(n.targets) == 1:
            target = n.targets[0]
            if isinstance(target, ast.Tuple) and isinstance(n.value, ast.Tuple) and len(target.elts) == 2:
                if len(n.value.elts) == 2 and _named(target.elts[0], target.elts[1]):
                    yield n.value.elts[0], n.value.elts[1]
            elif isinstance(target, ast.Name) and _INPUT.fullmatch(target.id):
                inputs.append(n.value)
                inputs.append(ast.copy_location(ast.Name(target.id, ast.Load()), n.value))
            elif isinstance(target, ast.Name) and _TARGET.fullmatch(target.id):
                yield from ((given, n.value) for given in inputs[-2:])
        elif isinstance(n, ast.Return) and isinstance(n.value, ast.Tuple) and len(n.value.elts) == 2:
            if isinstance(scope, Function) and _SERVES.search(scope.name):
                yield n.value.elts[0], n.value.elts[1]
        elif isinstance(n, ast.Dict):
            keyed = {str(constant(k)): v for k, v in zip(n.keys, n.values, strict=True) if k is not None}
            given = next((v for k, v in keyed.items() if _INPUT.fullmatch(k)), None)
            wanted = next((v for k, v in keyed.items() if _TARGET.fullmatch(k)), None)
            if given is not None and wanted is not None:
                yield given, wanted


def _named(given: ast.expr, wanted: ast.expr) -> bool:
    return bool(_INPUT.fullmatch(last(given)) and _TARGET.fullmatch(last(wanted)))


def _plain(s: Syntax, value: ast.expr, scope: ast.AST, depth: int = 4) -> str:
    """An expression without what leaves its values as they are, names put back to what they were given."""
    while True:
        if isinstance(value, ast.Call) and last(value.func) in _AS_IT_IS:
            own = receiver(value)
            module = own is None or dotted(own) in ("torch", "np", "numpy", "copy", "jnp")
            inner = value.args[0] if module and value.args else own
            if inner is None:
                break
            value = inner
        elif isinstance(value, ast.Name) and depth and len(given := s.assigned(value.id, scope)) == 1:
            value, depth = given[0], depth - 1
        else:
            break
    return ast.dump(value)


def _altered(scope: ast.AST, held: set[str]) -> bool:
    """Whether parts of the values are set afterwards: `labels[mask] = -100`, or a token put before or behind them."""
    for n in walk(scope):
        targets = n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AugAssign) else []
        parts = [t.value for t in targets if isinstance(t, ast.Subscript)]
        if any(names(p) & held or _INPUT.fullmatch(last(p)) or _TARGET.fullmatch(last(p)) for p in parts):
            return True
        if isinstance(n, ast.Call) and last(n.func) in (
            "masked_fill",
            "masked_fill_",
            "where",
            "roll",
            "insert",
            "append",
        ):
            return True
    return False
