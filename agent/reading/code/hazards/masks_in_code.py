"""Masks of a loss: forgotten on one of two paths, or made of ones where labels are to be left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...run.program.syntax import Function, Syntax, constant, dotted, last, names, walk
from ..project import Code, Hazard, Project, detects

_MASK = re.compile(r"mask", re.IGNORECASE)


@detects("mask_not_passed", "sibling_switch")
def forgotten(code: Code, project: Project) -> Iterator[Hazard]:
    """One function multiplies a second mask into the loss mask; a sibling computes the loss with the first alone.

    Cites where the masks are combined, where the bare one is passed, the flag that chooses between the two in
    every file, and where a rollout writes the mask.
    """
    if "mask" not in code.source:
        return
    s = code.syntax
    for first, second, where in combined(s):
        siblings = [f for f in s.functions if f is not s.function_of(where) and _loss_path(f)]
        for sibling in siblings:
            bare = _bare_use(sibling, first)
            if bare is None or _mentions(sibling, second):
                continue
            yield Hazard("mask_not_passed", where.lineno, second)
            yield Hazard("mask_not_passed", bare.lineno, second)
            yield from _switch(code, sibling)


@detects("mask_produced")
def produced(code: Code, project: Project) -> Iterator[Hazard]:
    """Where a rollout writes a mask of what the model sampled, in a project where one path forgets it."""
    if not _forgetful_flags(project)[0]:
        return
    for call in code.syntax.calls_of("append", "extend"):
        if isinstance(call.func, ast.Attribute) and (name := _role_mask(call.func.value)):
            yield Hazard("mask_produced", call.lineno, name)


@detects("sibling_switch")
def switched(code: Code, project: Project) -> Iterator[Hazard]:
    """Where another file sets the flag that chooses the path without the mask."""
    _, flags = _forgetful_flags(project)
    for call in code.syntax.calls:
        for argument in call.keywords:
            if argument.arg in flags:
                yield Hazard("sibling_switch", argument.value.lineno, argument.arg)


def combined(s: Syntax) -> Iterator[tuple[str, str, ast.stmt]]:
    """`mask = mask * other` (or `&`, `*=`): names of both masks as keys or variables, and the place."""
    for function in s.functions:
        known: dict[str, str] = {}
        for n in walk(function):
            if isinstance(n, ast.Assign) and len(n.targets) == 1:
                target = last(n.targets[0])
                if isinstance(n.value, ast.BinOp) and isinstance(n.value.op, ast.Mult | ast.BitAnd):
                    left, right = mask_name(n.value.left), mask_name(n.value.right)
                    if left and right and left != right:
                        yield known.get(left, left), known.get(right, right), n
                elif (name := mask_name(n.value)) and target:
                    known[target] = name
            elif isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Mult | ast.BitAnd):
                left, right = mask_name(n.target), mask_name(n.value)
                if left and right and left != right:
                    yield known.get(left, left), known.get(right, right), n


def mask_name(node: ast.AST) -> str:
    """The name of a mask: of a variable, attribute, string key or `.get("key")`; empty for anything else."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "get" and node.args and isinstance(constant(node.args[0]), str):
            name = str(constant(node.args[0]))
            return name if _MASK.search(name) else ""
        node = node.func.value  # .float(), .to(device), .bool()
    if isinstance(node, ast.Subscript):
        key = constant(node.slice)
        return key if isinstance(key, str) and _MASK.search(key) else mask_name(node.value)
    name = last(node)
    return name if _MASK.search(name) else ""


def _role_mask(node: ast.AST) -> str:
    name = mask_name(node)
    return name if name and "attention" not in name else ""


def _loss_path(function: Function) -> bool:
    return "loss" in function.name.lower() or any(
        isinstance(n, ast.Call) and "loss" in last(n.func).lower() for n in walk(function)
    )


def _bare_use(function: Function, mask: str) -> ast.expr | None:
    """Where a function gives the first mask alone to a call."""
    for n in walk(function):
        if isinstance(n, ast.Call):
            for value in [*n.args, *(k.value for k in n.keywords)]:
                if mask_name(value) == mask and "loss" in (dotted(n.func) + " " + function.name).lower():
                    return value
    return None


def _mentions(function: Function, name: str) -> bool:
    return name in names(function) or any(
        isinstance(n, ast.Constant) and n.value == name for n in walk(function)
    )  # fmt: skip


def _forgetful(s: Syntax) -> list[Function]:
    found = []
    for first, second, where in combined(s):
        for f in s.functions:
            if f is not s.function_of(where) and _loss_path(f) and _bare_use(f, first) and not _mentions(f, second):
                found.append(f)
    return found


def _forgetful_flags(project: Project) -> tuple[bool, set[str]]:
    """Whether any path of the project forgets a mask, and the flags that choose such a path."""

    def find() -> tuple[bool, set[str]]:
        found = [(c.syntax, f) for c in project.codes if "mask" in c.source for f in _forgetful(c.syntax)]
        return bool(found), {flag for s, f in found for flag in _flags(s, f)}

    return project.once("forgetful", find)


def _flags(s: Syntax, sibling: Function) -> set[str]:
    """Names tested where the sibling is called."""
    found: set[str] = set()
    for call in s.calls_of(sibling.name):
        for n in s.above(call):
            if isinstance(n, ast.If):
                found |= {name for name in names(n.test) if name not in ("self", "args", "config", "cfg")}
    return found


def _switch(code: Code, sibling: Function) -> Iterator[Hazard]:
    for call in code.syntax.calls_of(sibling.name):
        for n in code.syntax.above(call):
            if isinstance(n, ast.If):
                yield Hazard("sibling_switch", n.lineno, sibling.name)


@detects("mask_of_ones")
def everything_counts(code: Code, project: Project) -> Iterator[Hazard]:
    """A loss mask that nobody gave is made of ones in the labels' shape: labels to be left out count as well.

    Where no label is ever left out, as in plain text, such a mask is right: only a fallback is told, or a file that
    knows of labels to ignore.
    """
    s = code.syntax
    ignores = code.mentions("-100", "ignore_index", "IGNORE_INDEX")
    for n in s.every(ast.Assign):
        value, mask = n.value, dotted(n.targets[0])
        if not re.fullmatch(r"(?i)(?:self\.)?(?:lm_|mtp_)?(?:loss|label|target)_?masks?", mask):
            continue
        if not (ignores or any(isinstance(a, ast.If) and _asks_for(a, mask) for a in s.above(n))):
            continue
        if not isinstance(value, ast.Call) or last(value.func) not in ("ones_like", "full_like") or not value.args:
            continue
        if re.search(r"(?i)label|target", dotted(value.args[0])) and not _narrowed(s, n, mask):
            yield Hazard("mask_of_ones", n.lineno, mask)


def _asks_for(condition: ast.If, name: str) -> bool:
    """Whether a condition is `name is None`."""
    test = condition.test
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) and dotted(test.left) == name


def _narrowed(s: Syntax, made: ast.Assign, mask: str) -> bool:
    """Whether labels to be ignored are taken out of the mask in the same function, by whatever way."""
    for n in walk(s.scope_of(made)):
        if isinstance(n, ast.Compare) and re.search(r"(?i)ignore|pad|-100|100\b", ast.unparse(n)):
            return True
        if isinstance(n, ast.Assign | ast.AugAssign):
            for target in n.targets if isinstance(n, ast.Assign) else [n.target]:
                if isinstance(target, ast.Subscript) and dotted(target.value) == mask:
                    return True
        if isinstance(n, ast.Call) and last(n.func).startswith("masked_fill") and mask in ast.unparse(n):
            return True
    return False


# ----------
# Masks of reinforcement learning: whose tokens a policy term counts where other text is pasted into the answer.

_ROLE_MASK = re.compile(r"info_mask|loss_mask|state_mask|tool_mask|env_mask|obs\w*_mask")
_TERM = re.compile(r"kl|loss|log_?prob")
# Text that the policy did not sample, appended to what it did.
_PASTED = re.compile(
    r"\b(?:next_)?obs(?:ervation)?s?_(?:ids|tokens|len\w*)\b|\bobservation\b|tool_(?:result|output|response)"
)
_PENALTY = re.compile(r"^(?:\w+_)?(?:kl|kld|kl_(?:loss|div|divergence|penalty|term))$")
_FOREIGN = re.compile(r"^(?:state|obs|observation)s?_mask$")


@detects("mask_attention_only")
def environment_tokens(code: Code, project: Project) -> Iterator[Hazard]:
    """A KL or policy term masked by the attention mask alone: it counts every token, also those never sampled.

    Through a variable it is the ordinary way of a single turn, and a hazard where observations are pasted in.
    """
    for function in code.syntax.functions:
        if _ROLE_MASK.search(ast.dump(function)):
            continue
        cuts = _cuts(function) if project.once("pasted", lambda: _pastes(project)) else {}
        for n in walk(function):
            if not isinstance(n, ast.BinOp) or not isinstance(n.op, ast.Mult) or not _TERM.search(last(n.left)):
                continue
            if _cut(n.right):
                yield Hazard("mask_attention_only", n.lineno, last(n.left))
            elif isinstance(n.right, ast.Name) and (made := cuts.get(n.right.id)):
                yield Hazard("mask_attention_only", made, last(n.left))
                yield Hazard("mask_attention_only", n.lineno, last(n.left))


@detects("mask_inverted")
def only_foreign(code: Code, project: Project) -> Iterator[Hazard]:
    """A mask that is one on states or observations goes into the loss as it is, instead of its complement."""
    for function in code.syntax.functions:
        ones = {
            mask_name(n.targets[0]): n.lineno
            for n in walk(function)
            if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript)
            and isinstance(n.value, ast.Constant) and n.value.value in (1, True)
        }  # fmt: skip
        for n in walk(function):
            if not isinstance(n, ast.Assign) or not re.search(r"(?:loss|response)_mask", last(n.targets[0])):
                continue
            for name in (mask_name(part) for part in _factors(n.value)):
                if _FOREIGN.match(name) and name in ones:
                    yield Hazard("mask_inverted", ones[name], name)
                    yield Hazard("mask_inverted", n.lineno, name)


@detects("penalty_subtracted")
def paid_penalty(code: Code, project: Project) -> Iterator[Hazard]:
    """A KL penalty is subtracted from a loss that is minimised, which pays for leaving the reference."""
    s = code.syntax
    for n in s.every(ast.BinOp):
        if isinstance(n.op, ast.Sub) and "loss" in last(n.left).lower() and "kl" not in last(n.left).lower():
            terms = n.right if isinstance(n.right, ast.BinOp) and isinstance(n.right.op, ast.Mult) else None
            if terms and any(_PENALTY.match(last(x)) for x in (terms.left, terms.right)) and not _negated(s, n):
                yield Hazard("penalty_subtracted", n.lineno, last(n.left))


def _negated(s: Syntax, node: ast.AST) -> bool:
    """Whether a minus stands before the whole, or it is what is maximised."""
    return any(isinstance(a, ast.UnaryOp) and isinstance(a.op, ast.USub) for a in s.above(node))


def _factors(node: ast.expr) -> list[ast.expr]:
    """The factors of a product of masks; a complement (`1 - mask`, `~mask`) is none."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.BitAnd):
        return [*_factors(node.left), *_factors(node.right)]
    return [] if isinstance(node, ast.BinOp | ast.UnaryOp) else [node]


def _cut(node: ast.AST) -> bool:
    """`attention_mask[:, -response_length:]`."""
    return (
        isinstance(node, ast.Subscript)
        and mask_name(node.value) == "attention_mask"
        and "response" in " ".join(names(node.slice))
    )


def _cuts(function: Function) -> dict[str, int]:
    return {
        n.targets[0].id: n.lineno
        for n in walk(function)
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name) and _cut(n.value)
    }


def _pastes(project: Project) -> bool:
    return any(_PASTED.search(c.source) for c in project.codes)
