"""Masks of reinforcement learning: whose tokens a policy term counts where other text is pasted into the answer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import Function, Syntax, last, names, walk
from .masks import mask_name
from .project import Code, Hazard, Project, detects

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
