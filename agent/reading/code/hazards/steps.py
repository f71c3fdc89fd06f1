"""The training loop: what is kept, what waits for the device, what is stepped and cleared, and in which order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...run.program.syntax import Function, Loop, Syntax, constant, dotted, keyword, last, names, receiver, walk
from ..project import Code, Hazard, Project, detects

OPTIMIZER = re.compile(r"opt(im|imizer)?(_?\w{1,3})?$|^optimizer|optim\b", re.IGNORECASE)
SCHEDULER = re.compile(r"sched", re.IGNORECASE)
_ACCUMULATION = re.compile(
    r"accum|grad_acc|iters_to_acc|sync_grad|is_optim\w*_step|do_(optim|update|step)", re.IGNORECASE
)
_SYNCS = frozenset({"item", "cpu", "numpy", "tolist", "synchronize", "empty_cache"})
_MADE = ("torch.rand", "torch.arange", "torch.tensor", "np.", "numpy.", "random.")
_DETACHED = frozenset({"item", "detach", "tolist", "float", "cpu", "numpy", "data", "reduce_mean", "no_grad"})


def training_loops(s: Syntax) -> list[Loop]:
    """Innermost loops that call `backward`."""
    found = []
    for call in s.calls_of("backward", "manual_backward"):
        if (loop := s.loop_of(call)) is not None and loop not in found:
            found.append(loop)
    return found


def steps_of(node: ast.AST, pattern: re.Pattern[str]) -> list[ast.Call]:
    """Calls `x.step()` below a node where the name of x fits, and `scaler.step(x)`."""
    found = []
    for n in walk(node):
        if isinstance(n, ast.Call) and last(n.func) == "step":
            owner = last(receiver(n))
            scaled = last(n.args[0]) if "scaler" in owner.lower() and n.args else ""
            found += [n] if pattern.search(owner) or (scaled and pattern.search(scaled)) else []
    return found


def _tests(s: Syntax, condition: ast.If) -> list[ast.expr]:
    """A condition, and what its name stands for: `update = (i + 1) % n == 0`, then `if update:`."""
    named = s.assigned(condition.test.id, s.scope_of(condition)) if isinstance(condition.test, ast.Name) else []
    return [condition.test, *named]


def gate_of(s: Syntax, node: ast.AST, loop: Loop) -> ast.If | None:
    """The condition under which a node runs only in every so many turns of the loop, by its test or its name."""
    for n in s.above(node):
        if n is loop:
            return None
        if not isinstance(n, ast.If):
            continue
        counts = any(isinstance(m, ast.Mod) for test in _tests(s, n) for m in walk(test))
        if counts or _ACCUMULATION.search(" ".join(names(n.test))):
            return n
    return None


@detects("item_in_loop", "item_before_backward", "device_transfer_in_loop", needs=("loop", "gpu"))
def waiting(code: Code, project: Project) -> Iterator[Hazard]:
    """Reads of device values in every step. One is customary; several, or one a parameter, cost time."""
    s = code.syntax
    for loop in training_loops(s):
        inside = [n for n in walk(loop, into_functions=False) if isinstance(n, ast.Call)]
        unguarded = [c for c in inside if last(c.func) in _SYNCS and not s.guarded(c, loop)]
        inner = [c for c in unguarded if _repeated(s, c, loop)]
        heavy = [c for c in unguarded if last(c.func) in ("synchronize", "empty_cache")]
        if len(unguarded) >= 3 or inner or heavy:
            for call in (heavy or inner or unguarded)[:3]:
                yield Hazard("item_in_loop", call.lineno, last(call.func))
        asked = [c for c in inside if isinstance(c.func, ast.Name) and c.func.id == "float" and not s.guarded(c, loop)]
        yield from _waits_early(s, loop, sorted([*unguarded, *asked], key=lambda c: c.lineno))
        for call in inside:
            if _fetches(call) and not s.guarded(call, loop):
                yield Hazard("device_transfer_in_loop", call.lineno, dotted(receiver(call)))


def _waits_early(s: Syntax, loop: Loop, unguarded: list[ast.Call]) -> Iterator[Hazard]:
    """A value read in every step while the backward pass is still to be launched: the device runs dry behind it."""
    backward = min(c.lineno for c in s.calls_of("backward", "manual_backward") if s.loop_of(c) is loop)
    lost = {dotted(v) for c in s.calls_of("backward") for v in (receiver(c), *c.args) if v is not None}
    for call in unguarded:
        value = receiver(call) if last(call.func) in ("item", "tolist") else None
        if last(call.func) == "float" and call.args and dotted(call.args[0]) in lost - {""}:
            value = call.args[0]
        if value is not None and call.lineno < backward and not _drawn(value):
            yield Hazard("item_before_backward", call.lineno, dotted(value))
            return


def _fetches(call: ast.Call) -> bool:
    """Whether a call copies a tensor to the host: `x.cpu()`, `x.numpy()`, `x.to("cpu")`."""
    to_cpu = last(call.func) == "to" and "cpu" in [constant(v) for v in (*call.args, keyword(call, "device"))]
    return last(call.func) in ("cpu", "numpy") or to_cpu


def _drawn(value: ast.expr | None) -> bool:
    """Whether a value is made on the spot on the host: `torch.randint(...).tolist()`."""
    return isinstance(value, ast.Call) and dotted(value.func).startswith(_MADE) and keyword(value, "device") is None


def _repeated(s: Syntax, node: ast.AST, loop: Loop) -> bool:
    """Whether a node runs several times in one turn of the loop."""
    for n in s.above(node):
        if n is loop:
            return False
        if isinstance(n, Loop | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp):
            return True
    return False


@detects("graph_kept", "no_detach_for_log", "retain_graph")
def kept(code: Code, project: Project) -> Iterator[Hazard]:
    """A loss with its graph is added to something that outlives the step."""
    s = code.syntax
    for call in s.calls_of("backward", "manual_backward"):
        if any(k.arg == "retain_graph" and constant(k.value) is True for k in call.keywords) and s.loop_of(call):
            yield Hazard("retain_graph", call.lineno)
    for loop in training_loops(s):
        differentiated = {dotted(receiver(c)).split(".")[-1] for c in calls_in(loop, "backward")}
        differentiated |= {last(c.args[0]) for c in calls_in(loop, "backward", "manual_backward") if c.args}
        made = (n for n in walk(loop) if isinstance(n, ast.Assign) and _added_to(n) is None)
        fresh = {t for n in made for t in map(last, n.targets) if t}
        for name, value, line, listed in _additions(loop):
            if name in fresh or name in differentiated or _DETACHED & names(value):
                continue
            if _is_loss(value, differentiated):
                yield Hazard("graph_kept", line, name)
                if listed:
                    yield Hazard("no_detach_for_log", line, name)


def calls_in(node: ast.AST, *wanted: str) -> list[ast.Call]:
    """Calls within a node, in order of the source."""
    return [n for n in walk(node) if isinstance(n, ast.Call) and last(n.func) in wanted]


def _additions(loop: Loop) -> Iterator[tuple[str, ast.expr, int, bool]]:
    """`x += y`, `x = x + y` and `xs.append(y)` in a loop: name, value, line, whether x is a list."""
    for n in walk(loop, into_functions=False):
        if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add):
            listed = n.value.elts if isinstance(n.value, ast.List) else []
            for value in listed or [n.value]:
                yield last(n.target), value, n.lineno, bool(listed)
        elif isinstance(n, ast.Call) and last(n.func) == "append" and n.args:
            held = receiver(n)
            yield last(held.value if isinstance(held, ast.Subscript) else held), n.args[0], n.lineno, True
        elif isinstance(n, ast.Assign) and (value := _added_to(n)) is not None:
            yield last(n.targets[0]), value, n.lineno, False


def _added_to(n: ast.Assign) -> ast.expr | None:
    """What `x = x + y` adds."""
    value, name = n.value, dotted(n.targets[0])
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return None
    return value.right if dotted(value.left) == name else value.left if dotted(value.right) == name else None


def _is_loss(value: ast.expr, differentiated: set[str]) -> bool:
    """Whether a value is the differentiated loss, as it is or scaled."""
    while isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Div):
        value = value.left if not isinstance(value.left, ast.Constant) else value.right
    return isinstance(value, ast.Name | ast.Attribute) and last(value) in differentiated - {""}


@detects("missing_zero_grad", "scheduler_misplaced")
def stepping(code: Code, project: Project) -> Iterator[Hazard]:
    """Gradients that are never cleared; a schedule that moves before, or more often than, the optimizer."""
    s = code.syntax
    cleared = project.mentions("zero_grad", ".grad = None", "accelerator.accumulate", "deepspeed.initialize")
    for loop in training_loops(s):
        optimizers, schedulers = steps_of(loop, OPTIMIZER), steps_of(loop, SCHEDULER)
        if optimizers and not cleared:
            yield Hazard("missing_zero_grad", optimizers[0].lineno)
        if not optimizers or code.mentions("accelerator.accumulate"):
            continue
        for step in schedulers:
            if s.loop_of(step) is not s.loop_of(optimizers[0]) or s.function_of(step) is not s.function_of(
                optimizers[0]
            ):
                continue
            before = step.lineno < min(o.lineno for o in optimizers)
            oftener = gate_of(s, optimizers[0], loop) is not None and gate_of(s, step, loop) is None
            if before or oftener:
                yield Hazard(
                    "scheduler_misplaced", step.lineno, "before the optimizer" if before else "every micro-step"
                )


@detects("clip_before_unscale", "step_without_scaler", needs=("gpu",))
@detects("half_weights_trained")
def half_precision(code: Code, project: Project) -> Iterator[Hazard]:
    """A gradient scaler that is used by halves, or FP16 weights trained without one."""
    s = code.syntax
    scaled = [c for c in s.calls_of("scale") if "scaler" in last(receiver(c)).lower()]
    stepped = [c for c in s.calls_of("step") if "scaler" in last(receiver(c)).lower()]
    for step in stepped:
        scope = s.scope_of(step)
        unscaled = calls_in(scope, "unscale_", "unscale_gradients")
        for clip in calls_in(scope, "clip_grad_norm_", "clip_grad_value_"):
            if clip.lineno < step.lineno and not any(u.lineno < clip.lineno for u in unscaled):
                yield Hazard("clip_before_unscale", clip.lineno)
    if scaled and not stepped:
        for step in steps_of(s.scope_of(scaled[0]), OPTIMIZER)[:1]:
            yield Hazard("step_without_scaler", step.lineno)
    if training_loops(s) and not scaled and not code.mentions("GradScaler", "deepspeed", "loss_scale"):
        for call in s.calls_of("half", "to"):
            held = [dotted(n) for n in (receiver(call), *getattr(s.parents.get(call), "targets", ()))]
            halves = last(call.func) == "half" or any(
                last(v) in ("float16", "half") for v in (*call.args, *(k.value for k in call.keywords))
            )
            if halves and any(re.fullmatch(r"(self\.)?(model|net|unet)(\.\w+)?", name) for name in held):
                yield Hazard("half_weights_trained", call.lineno)


_EVALUATES = re.compile(r"_?(?:(?:run|do|perform|compute)_)?(?:eval|valid|test$|test_(?!_)|predict|inference)")


@detects("eval_without_no_grad", "eval_mode_missing", "train_mode_missing")
def evaluation(code: Code, project: Project) -> Iterator[Hazard]:
    """Evaluation that builds graphs or leaves dropout on, and training that goes on in evaluation mode."""
    s = code.syntax
    for function in s.functions:
        if not _EVALUATES.match(function.name) or calls_in(function, "backward"):
            continue
        if not any(isinstance(n, ast.For | ast.ListComp | ast.GeneratorExp) and _runs_model(n) for n in walk(function)):
            continue
        if not _without_grad(s, function):
            yield Hazard("eval_without_no_grad", function.lineno, function.name)
        if not code.mentions(".eval()", ".train(False)", "evaluating("):
            yield Hazard("eval_mode_missing", function.lineno, function.name)
    modes = [(c, last(c.func) == "train" and not (c.args and constant(c.args[0]) is False))
             for c in s.calls_of("eval", "train") if last(c.func) == "train" or not c.args]  # fmt: skip
    if training_loops(s) and not any(on for _, on in modes) and not code.mentions("set_train"):
        for call, _ in modes:
            if re.search(r"(^|\.)(model|net)$", dotted(receiver(call))) and _in_training(s, call):
                yield Hazard("train_mode_missing", call.lineno)


def _in_training(s: Syntax, call: ast.Call) -> bool:
    """Whether `model.eval()` runs between steps: in a loop, or in a function called from the file's loops."""
    if any(isinstance(n, Loop) for n in s.above(call)):
        return True
    function = s.function_of(call)
    return function is not None and any(
        isinstance(n, Loop) for c in s.calls_of(function.name) for n in s.above(c)
    )  # fmt: skip


def _runs_model(loop: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Call) and re.fullmatch(r"(self\.)?(\w+_)?(model|net|network)", dotted(n.func))
        for n in walk(loop)
    )


def _without_grad(s: Syntax, function: Function) -> bool:
    off = {"no_grad", "inference_mode", "set_grad_enabled", "enable_grad", "no_gradient"}
    if off & names(function):
        return True
    return any(off & names(n) for c in s.calls_of(function.name) for n in s.above(c) if isinstance(n, ast.With))


# ----------
# Gradient accumulation: what is divided, cleared and stepped, and whether every micro-batch counts.

_COUNT = re.compile(r"accum|grad_acc|iters_to_acc", re.IGNORECASE)
_MICRO = re.compile(r"accum|micro_?(?:step|batch)", re.IGNORECASE)
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
        gate = gate_of(s, optimizers[0], loop) or _skips(loop, optimizers[0]) if optimizers else None
        if gate is None or not _COUNT.search(" ".join(_counted(s, gate))):
            continue
        backward = calls_in(loop, "backward", "manual_backward")
        scaled = code.mentions(*_SELF_SCALED) or (code.mentions("accelerator.backward") and not _untold(code, project))
        if not scaled and not _divided(s, loop):
            yield Hazard("unscaled_accumulation", backward[0].lineno)
        for clear in calls_in(loop, "zero_grad"):
            if s.loop_of(clear) is loop and gate_of(s, clear, loop) is None and not s.guarded(clear, loop):
                yield Hazard("zero_grad_in_accumulation", clear.lineno)
        if all(_behind(s, call, gate, loop) and not _pools(s, call, loop, gate) for call in backward):
            yield Hazard("backward_in_gate", backward[0].lineno)


@detects("unscaled_accumulation")
def summed(code: Code, project: Project) -> Iterator[Hazard]:
    """An inner loop over micro-batches calls backward on each loss as it is, and one step follows."""
    s = code.syntax
    for inner in s.every(ast.For):
        backward = [c for c in calls_in(inner, "backward", "manual_backward") if s.loop_of(c) is inner]
        ranged = isinstance(inner.iter, ast.Call) and last(inner.iter.func) in ("range", "trange")
        if not backward or not ranged or not _MICRO.search(" ".join(names(inner.iter))) or steps_of(inner, OPTIMIZER):
            continue
        outer = s.loop_of(inner) or s.scope_of(inner)
        if steps_of(outer, OPTIMIZER) and not code.mentions(*_SELF_SCALED) and not _divided(s, inner):
            yield Hazard("unscaled_accumulation", backward[0].lineno)


def _skips(loop: Loop, step: ast.Call) -> ast.If | None:
    """The condition that goes on to the next turn before a step comes: `if i % n != 0: continue`."""
    for n in loop.body:
        if not isinstance(n, ast.If) or n.orelse or n.lineno > step.lineno:
            continue
        if isinstance(n.body[-1], ast.Continue) and any(isinstance(m, ast.Mod) for m in walk(n.test)):
            return n
    return None


def _behind(s: Syntax, call: ast.Call, gate: ast.If, loop: Loop) -> bool:
    """Whether a call runs only in the turns that a condition lets through."""
    skipped = isinstance(gate.body[-1], ast.Continue) and call.lineno > (gate.end_lineno or gate.lineno)
    return skipped or gate_of(s, call, loop) is gate


def _pools(s: Syntax, call: ast.Call, loop: Loop, gate: ast.If) -> bool:
    """Whether what is differentiated was collected over the turns before: `losses.append(loss)`, `total += loss`."""
    value = call.args[0] if call.args else receiver(call)
    if value is None:
        return False
    made = [n.value for n in walk(gate) if isinstance(n, ast.Assign) and last(n.targets[0]) == last(value) != ""]
    collected = {name for name, _, line, _ in _additions(loop) if line < call.lineno}
    return any(collected & set(names(v)) for v in (value, *made))


def _counted(s: Syntax, gate: ast.If) -> set[str]:
    """Names that a condition asks about, with those that its own names are made of."""
    return set[str]().union(*map(names, _tests(s, gate)))


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
        told = keyword(made, "gradient_accumulation_steps") or keyword(made, "gradient_accumulation_plugin")
        if told is None or (constant(told) in (1, None) and isinstance(told, ast.Constant)):
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
        if _gradients_of_inputs(loop):
            continue
        housekeeping = [*calls_in(loop, "zero_grad"), *steps_of(loop, SCHEDULER)]
        if housekeeping and not _any_step(s, loop) and not _stepped_by_hand(loop):
            yield Hazard("missing_optimizer_step", calls_in(loop, "backward", "manual_backward")[0].lineno)


def _gradients_of_inputs(loop: ast.AST) -> bool:
    """Whether a loop asks for the gradient of what it goes over: of images for a map, of what is attacked."""
    over = set(names(loop.target)) if isinstance(loop, ast.For) else set()
    return any(isinstance(n, ast.Attribute) and n.attr == "grad" and last(n.value) in over for n in walk(loop))


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
    s = code.syntax
    for n in s.every(ast.BinOp):
        if not isinstance(n.op, ast.Sub) or not re.search(r"log_?p", last(n.left), re.IGNORECASE):
            continue
        right = n.right
        if isinstance(right, ast.Name):
            made = s.assigned(right.id, s.scope_of(n))
            once = not isinstance(n.left, ast.Name) or len(s.assigned(n.left.id, s.scope_of(n))) < 2
            right = made[0] if len(made) == 1 and once else right
        bare = _attached(right)
        if bare is not right and ast.dump(bare) == ast.dump(n.left):
            yield Hazard("ratio_of_itself", n.lineno, last(n.left))


def _attached(value: ast.expr) -> ast.expr:
    """What a value is before it is cut off from its graph: `x` of `x.clone().detach()`."""
    inner = value
    while isinstance(inner, ast.Call) and last(inner.func) in ("detach", "clone") and receiver(inner) is not None:
        inner = receiver(inner) or inner
    cut = any(isinstance(n, ast.Call) and last(n.func) == "detach" for n in ast.walk(value))
    return inner if cut else value


# ----------
# Gradients that travel more often than the optimizer uses them.

_TURNED_OFF = (
    "no_sync", "require_backward_grad_sync", "set_requires_gradient_sync", "accelerator.accumulate",
    "deepspeed", "GradientState", "gradient_accumulation_plugin", "no_backward_sync", "set_is_last_backward",
)  # fmt: skip
_EXCHANGES_ACCUMULATION = re.compile(r"accum|grad_acc|micro_?(steps|batches)|num_micro", re.IGNORECASE)


@detects("sync_each_micro_batch", needs=("several_processes",))
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
    if isinstance(loop, ast.For | ast.AsyncFor) and _EXCHANGES_ACCUMULATION.search(_words(loop.iter)):
        return True
    divided = [n for n in walk(loop) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
    return any(_EXCHANGES_ACCUMULATION.search(_words(n.right)) for n in divided)


def _words(value: ast.expr) -> str:
    texts = [str(n.value) for n in ast.walk(value) if isinstance(n, ast.Constant)]
    return " ".join([*names(value), *texts])
