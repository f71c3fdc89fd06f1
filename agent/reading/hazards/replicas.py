"""Data-parallel replicas that come apart: never made equal, or synchronized in another turn than they are stepped."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..syntax import Syntax, constant, dotted, last, names, receiver
from .loops import OPTIMIZER, calls_in
from .project import Code, Hazard, Project, detects

_MADE_EQUAL = (
    "broadcast", "DistributedDataParallel", "DDP(", "FSDP", "FullySharded", "fully_shard", "deepspeed", "prepare(",
    "from_pretrained", "load_state_dict", "sync_module_states", "_sync_module", "set_seed", "seed_everything", "bcast",
)  # fmt: skip
_REPLICATED = ("DistributedDataParallel", "DDP")
_WITHOUT = frozenset({"no_grad", "inference_mode"})
_SEEDS = ("manual_seed", "manual_seed_all", "seed")
Turn = tuple[str, str, int]  # a counter, its modulus, and in which of its turns something happens


@detects("unseeded_replicas")
def averaged_by_hand(code: Code, project: Project) -> Iterator[Hazard]:
    """Gradients are averaged by hand, but nothing ever makes the weights of the ranks equal."""
    s = code.syntax
    averaged = [
        c for c in s.calls_of("all_reduce") if c.args and any(part == "grad" for part in dotted(c.args[0]).split("."))
    ]
    if not averaged or project.mentions(*_MADE_EQUAL):
        return
    seeds = [c for c in s.calls_of(*_SEEDS) if c.args and not dotted(receiver(c)).startswith(("random", "np", "numpy"))]
    seeds = [c for c in seeds if not isinstance(receiver(c), ast.Call)]  # of a generator of its own
    own = [c for c in seeds if any("rank" in n.lower() for n in names(c.args[0]))]
    if len(own) == len(seeds):
        for call in (*own[:1], averaged[0]):
            yield Hazard("unseeded_replicas", call.lineno, last(call.func))


@detects("ddp_bypassed")
def bypassed(code: Code, project: Project) -> Iterator[Hazard]:
    """A training step calls the module inside of DDP: backward then averages no gradients, each rank trains alone."""
    s = code.syntax
    wrapped = {
        last(t)
        for n in s.every(ast.Assign)
        if isinstance(n.value, ast.Call) and last(n.value.func) in _REPLICATED
        for t in n.targets
    }
    for call in s.calls:
        *owner, inside = dotted(call.func).removesuffix(".forward").split(".")
        loop = s.loop_of(call)
        if inside != "module" or not owner or owner[-1] not in wrapped or loop is None:
            continue
        if calls_in(loop, "backward") and not any(_WITHOUT & _entered(n) for n in s.above(call)):
            yield Hazard("ddp_bypassed", call.lineno, dotted(call.func))


def _entered(node: ast.AST) -> set[str]:
    """What a `with` statement enters, by the last names of its calls."""
    items = node.items if isinstance(node, ast.With) else []
    return {last(i.context_expr.func) for i in items if isinstance(i.context_expr, ast.Call)}


@detects("sync_in_other_turn")
def misplaced_sync(code: Code, project: Project) -> Iterator[Hazard]:
    """Of the backward passes of an update, not the last one synchronizes: what comes after it stays on its rank."""
    s = code.syntax
    stepped = {
        t: call for call in s.calls_of("step") if OPTIMIZER.search(last(receiver(call))) for t in _gates(s, call)
    }
    for call in s.calls_of("no_sync"):
        for turn in _synced(s, call):
            for other, step in stepped.items():
                if other[:2] == turn[:2] and other[2] != turn[2]:
                    yield Hazard("sync_in_other_turn", call.lineno, "no_sync")
                    yield Hazard("sync_in_other_turn", step.lineno, "step")
                    return


def _gates(s: Syntax, call: ast.Call) -> Iterator[Turn]:
    """The turns in which a call is made, by the conditions around it."""
    below: ast.AST = call
    for n in s.above(call):
        if isinstance(n, ast.If) and not _within(below, n.orelse) and (turn := _turn(s, n.test, call)) and turn[1]:
            yield turn[0]
        below = n


def _synced(s: Syntax, call: ast.Call) -> Iterator[Turn]:
    """The turns in which gradients are exchanged, where `no_sync` is chosen by a condition on a counter."""
    below: ast.AST = call
    for n in s.above(call):
        if isinstance(n, ast.IfExp | ast.If) and (found := _turn(s, n.test, call)):
            turn, when = found
            otherwise = _within(below, n.orelse)
            if when == otherwise:  # no_sync stands where the test fails, and the test names one turn; or the reverse
                yield turn
        below = n


def _within(node: ast.AST, part: ast.expr | list[ast.stmt]) -> bool:
    return node is part or (isinstance(part, list) and node in part)


def _turn(s: Syntax, test: ast.expr, at: ast.AST) -> tuple[Turn, bool] | None:
    """`(i + 1) % n == 0` as the turn n - 1 of i, and whether the test holds in that turn alone or in all others."""
    if isinstance(test, ast.Name):
        assigned = [v for v in s.assigned(test.id, s.scope_of(at)) if isinstance(v, ast.Compare | ast.UnaryOp)]
        return _turn(s, assigned[0], at) if len(assigned) == 1 else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _turn(s, test.operand, at)
        return (inner[0], not inner[1]) if inner else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq | ast.NotEq):
        return None
    left, right = test.left, constant(test.comparators[0])
    if not (isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod)) or not isinstance(right, int):
        return None
    counter, shift = _shifted(left.left)
    return (counter, ast.dump(left.right), right - shift), isinstance(test.ops[0], ast.Eq)


def _shifted(value: ast.expr) -> tuple[str, int]:
    """`i + 1` as i and 1."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub):
        by = constant(value.right)
        if isinstance(by, int) and not isinstance(by, bool):
            return ast.dump(value.left), by if isinstance(value.op, ast.Add) else -by
    return ast.dump(value), 0
