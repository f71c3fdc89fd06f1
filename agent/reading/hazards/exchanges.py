"""Gradients that travel more often than the optimizer uses them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import dotted, last, names, receiver, walk
from .loops import OPTIMIZER, gate_of, steps_of, training_loops
from .project import Code, Hazard, Project, detects

_TURNED_OFF = (
    "no_sync", "require_backward_grad_sync", "set_requires_gradient_sync", "accelerator.accumulate",
    "deepspeed", "GradientState", "gradient_accumulation_plugin", "no_backward_sync", "set_is_last_backward",
)  # fmt: skip
_ACCUMULATION = re.compile(r"accum|grad_acc|micro_?(steps|batches)|num_micro", re.IGNORECASE)


@detects("sync_each_micro_batch")
def exchanged_each_time(code: Code, project: Project) -> Iterator[Hazard]:
    """A wrapped model accumulates over micro-batches and exchanges its gradients in each of them."""
    s = code.syntax
    wrapped = [c for c in s.calls_of("DistributedDataParallel", "DDP") if c.args]
    if not wrapped or project.mentions(*_TURNED_OFF):
        return
    for loop in training_loops(s):
        backward = next(c for c in s.calls_of("backward", "manual_backward") if s.loop_of(c) is loop)
        inside = steps_of(loop, OPTIMIZER)
        gated = [
            c for c in inside if (gate := gate_of(s, c, loop)) and any(isinstance(n, ast.Mod) for n in walk(gate.test))
        ]
        if (not inside and _accumulates(loop)) or (gated and len(gated) == len(inside)):
            yield Hazard("sync_each_micro_batch", backward.lineno, dotted(receiver(backward)))
            yield Hazard("sync_each_micro_batch", wrapped[0].lineno, last(wrapped[0].func))
            return


def _accumulates(loop: ast.AST) -> bool:
    """Whether a loop counts micro-batches: what it runs over says so, or a loss that is divided by their number."""
    if isinstance(loop, ast.For | ast.AsyncFor) and _ACCUMULATION.search(_words(loop.iter)):
        return True
    divided = [n for n in walk(loop) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
    return any(_ACCUMULATION.search(_words(n.right)) for n in divided)


def _words(value: ast.expr) -> str:
    texts = [str(n.value) for n in ast.walk(value) if isinstance(n, ast.Constant)]
    return " ".join([*names(value), *texts])
