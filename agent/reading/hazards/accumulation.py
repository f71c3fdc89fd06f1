"""Gradient accumulation: what is divided, cleared and stepped, and whether every micro-batch counts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import Syntax, keyword, last, names, receiver, walk
from .loops import OPTIMIZER, SCHEDULER, calls_in, gate_of, steps_of, training_loops
from .project import Code, Hazard, Project, detects

_COUNT = re.compile(r"accum|grad_acc|iters_to_acc", re.IGNORECASE)
_SELF_SCALED = ("accelerator.accumulate", "deepspeed.initialize", "fabric.backward")
# Where `accelerator.backward` learns by how much it divides; told nothing, it divides by one.
_TOLD = ("gradient_accumulation_steps", "gradient_accumulation_plugin", "GradientAccumulationPlugin",
         "deepspeed_plugin", "ACCELERATE_GRADIENT_ACCUMULATION")  # fmt: skip
_TELLS = re.compile(
    r"^(?:print|write|writerow|append|log|log_\w+|info|debug|update|set_postfix\w*|set_description|add_scalar)$"
)
_MOVES = ("add_", "sub_", "addcdiv_", "addcmul_", "lerp_", "copy_", "_foreach_add_", "_foreach_sub_")


@detects("unscaled_accumulation", "zero_grad_in_accumulation", "backward_in_gate")
def gated(code: Code, project: Project) -> Iterator[Hazard]:
    """The optimizer steps in every n-th turn of the loop, but the micro-batches between do not add up."""
    s = code.syntax
    for loop in training_loops(s):
        optimizers = [o for o in steps_of(loop, OPTIMIZER) if s.loop_of(o) is loop]
        gate = gate_of(s, optimizers[0], loop) if optimizers else None
        if gate is None or not _COUNT.search(" ".join(names(gate.test))):
            continue
        backward = calls_in(loop, "backward", "manual_backward")
        scaled = code.mentions(*_SELF_SCALED) or (code.mentions("accelerator.backward") and not _untold(code, project))
        if not scaled and not _divided(s, loop):
            yield Hazard("unscaled_accumulation", backward[0].lineno)
        for clear in calls_in(loop, "zero_grad"):
            if s.loop_of(clear) is loop and gate_of(s, clear, loop) is None and not s.guarded(clear, loop):
                yield Hazard("zero_grad_in_accumulation", clear.lineno)
        if all(gate_of(s, call, loop) is gate for call in backward):
            yield Hazard("backward_in_gate", backward[0].lineno)


def _untold(code: Code, project: Project) -> bool:
    """Whether the file makes its accelerators in plain sight, and nothing tells them of an accumulation."""
    made = code.syntax.calls_of("Accelerator")
    open_ended = any(k.arg is None for call in made for k in call.keywords)
    return bool(made) and not open_ended and not project.mentions(*_TOLD)


def _divided(s: Syntax, loop: ast.AST) -> bool:
    """Whether anything in the loop is divided, or multiplied by a share, but for what is only printed or kept."""
    return any(
        isinstance(n, ast.BinOp | ast.AugAssign)
        and (isinstance(n.op, ast.Div) or (isinstance(n.op, ast.Mult) and "scale" in ast.dump(n).lower()))
        and not _told_only(s, n)
        for n in walk(loop)
    )


def _told_only(s: Syntax, division: ast.AST) -> bool:
    for n in s.above(division):
        if isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Call) and _TELLS.match(last(n.func))):
            return True
        if isinstance(n, ast.stmt):
            return False
    return False


@detects("zero_grad_in_accumulation", "accumulation_not_entered")
def entered(code: Code, project: Project) -> Iterator[Hazard]:
    """An accelerator is told to accumulate, and the loop clears too early or never enters the accumulation."""
    s = code.syntax
    for block in s.every(ast.With):
        if any(last(i.context_expr.func) == "accumulate" for i in block.items if isinstance(i.context_expr, ast.Call)):
            backward = calls_in(block, "backward")
            for clear in calls_in(block, "zero_grad"):
                if backward and clear.lineno < backward[0].lineno and steps_of(block, OPTIMIZER):
                    yield Hazard("zero_grad_in_accumulation", clear.lineno, "before backward")
    if project.mentions(".accumulate(", "no_sync("):
        return
    for made in s.calls_of("Accelerator"):
        if keyword(made, "gradient_accumulation_steps") is None:
            continue
        for loop in training_loops(s):
            for step in steps_of(loop, OPTIMIZER):
                if gate_of(s, step, loop) is None:
                    yield Hazard("accumulation_not_entered", step.lineno)


@detects("missing_optimizer_step")
def unstepped(code: Code, project: Project) -> Iterator[Hazard]:
    """A loop computes gradients, clears them and moves the schedule, and nothing in the project takes a step."""
    if project.mentions(
        "optimizer.step", "optim.step", "opt.step", "scaler.step", "engine.step", "model.step", "Trainer("
    ):
        return
    s = code.syntax
    for loop in training_loops(s):
        housekeeping = [*calls_in(loop, "zero_grad"), *steps_of(loop, SCHEDULER)]
        if housekeeping and not _any_step(s, loop) and not _stepped_by_hand(loop):
            yield Hazard("missing_optimizer_step", calls_in(loop, "backward", "manual_backward")[0].lineno)


def _any_step(s: Syntax, loop: ast.AST) -> bool:
    return any(
        last(c.func) in ("step", "optimizer_step", "train_step", "apply_gradients")
        and not SCHEDULER.search(ast.dump(c.func))
        for c in walk(loop)
        if isinstance(c, ast.Call)
    )


def _stepped_by_hand(loop: ast.AST) -> bool:
    """Weights moved without an optimizer: `p.data -= rate * p.grad`, or `p.sub_(...)` where no gradient is recorded."""
    for n in walk(loop):
        if isinstance(n, ast.Call) and last(n.func) in _MOVES:
            return True
        targets = [n.target] if isinstance(n, ast.AugAssign) else n.targets if isinstance(n, ast.Assign) else []
        if any(isinstance(t, ast.Attribute) and t.attr == "data" for t in targets):
            return True
        if isinstance(n, ast.AugAssign) and any(isinstance(a, ast.Attribute) and a.attr == "grad" for a in walk(n)):
            return True
    return False


@detects("ratio_of_itself")
def ratio(code: Code, project: Project) -> Iterator[Hazard]:
    """A policy ratio of log-probabilities to themselves: always one, so clipping never acts."""
    for n in code.syntax.every(ast.BinOp):
        if not isinstance(n.op, ast.Sub) or not re.search(r"log_?p", last(n.left), re.IGNORECASE):
            continue
        right = n.right
        source = receiver(right) if isinstance(right, ast.Call) and last(right.func) == "detach" else None
        if source is not None and ast.dump(source) == ast.dump(n.left):
            yield Hazard("ratio_of_itself", n.lineno, last(n.left))
