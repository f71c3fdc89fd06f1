"""Labels, masks and special tokens that are shifted or added once too often, or apart from one another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import Syntax, constant, keyword, last, walk
from .losses import shift_of
from .project import Code, Hazard, Project, detects

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
    plain = [c for c in s.calls if last(c.func).endswith("tokenizer") and c.args]
    for call in plain[:1]:
        yield Hazard("special_tokens_twice", rendered[0].lineno)
        yield Hazard("special_tokens_twice", call.lineno)
