"""Results that are computed and lost, kept for too long, or can never be: dropped nodes, step outputs, patterns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import Function, Syntax, constant, dotted, keyword, last, names, walk
from .project import Code, Hazard, Project, detects

_EPOCH_END = ("training_epoch_end", "training_step_end", "on_train_epoch_end", "train_epoch_end")
_LOADS = ("from_pretrained", "load_state_dict", "load_checkpoint", "manual_seed", "set_seed", "seed_everything",
          "manual_seed_all", "set_determinism", "set_random_seed")  # fmt: skip
_MASTER = ("autocast", "MixedPrecision", "deepspeed", "Accelerator", "master_weights", "kahan", "Trainer(")
_TAGGED = re.compile(r"\.[*+]\??.*</\w+>")


@detects("result_dropped")
def dropped(code: Code, project: Project) -> Iterator[Hazard]:
    """The output of an autograd function is thrown away: what it was to add to the gradient never arrives."""
    for n in code.syntax.every(ast.Expr):
        call = n.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "apply":
            continue
        owner = last(call.func.value)
        autograd = re.search(r"(Scaler|Function|Loss|Grad\w*|Op|Reverse|Reversal|Autograd\w*)$", owner) or any(
            c.name == owner and any("Function" in dotted(b) for b in c.bases) for c in code.syntax.every(ast.ClassDef)
        )
        if owner[:1].isupper() and autograd and len(call.args) >= 2:
            yield Hazard("result_dropped", n.lineno, dotted(call.func))


@detects("graph_kept")
def step_outputs(code: Code, project: Project) -> Iterator[Hazard]:
    """A training step hands further losses to the end of the epoch with their graphs."""
    s = code.syntax
    if not any(f.name in _EPOCH_END and len(f.args.args) > 1 for f in s.functions):
        return
    for function in s.functions:
        if function.name != "training_step":
            continue
        for n in walk(function):
            if not isinstance(n, ast.Return) or not isinstance(n.value, ast.Dict):
                continue
            pairs = zip(n.value.keys, n.value.values, strict=True)
            kept = [last(v) for k, v in pairs if constant(k) != "loss" and re.search(r"loss|pred|logits|out", last(v))]
            if kept and not any(_detached(function, name) for name in kept):
                yield Hazard("graph_kept", n.lineno, ", ".join(kept))


def _detached(function: Function, name: str) -> bool:
    for n in walk(function):
        if isinstance(n, ast.Assign) and last(n.targets[0]) == name and {"detach", "item"} & names(n.value):
            return True
    return False


@detects("regex_one_line")
def one_line(code: Code, project: Project) -> Iterator[Hazard]:
    """A reward looks for tags around any text with a pattern whose dot does not match a line break."""
    s = code.syntax
    for function in s.functions:
        if not re.search(r"reward|format|score|extract", function.name, re.IGNORECASE):
            continue
        for call in (n for n in walk(function) if isinstance(n, ast.Call)):
            if last(call.func) not in ("match", "search", "fullmatch", "findall", "compile") or not call.args:
                continue
            if keyword(call, "flags") is not None or len(call.args) > (1 if last(call.func) == "compile" else 2):
                continue
            pattern = _text(s, call.args[0], function)
            text = constant(pattern)
            tagged = isinstance(text, str) and _TAGGED.search(text) and not re.search(r"\(\?\w*s", text)
            if pattern is not None and tagged:
                yield Hazard("regex_one_line", pattern.lineno, function.name)
                yield Hazard("regex_one_line", call.lineno, function.name)


def _text(s: Syntax, value: ast.expr, scope: ast.AST) -> ast.expr | None:
    if isinstance(value, ast.Name):
        return next(iter(s.assigned(value.id, scope)), None)
    return value


@detects("unseeded_replicas")
def replicas(code: Code, project: Project) -> Iterator[Hazard]:
    """Each rank starts from its own random weights, and the wrapper keeps whole replicas without sending them round."""
    if project.mentions(*_LOADS, "sync_module_states", "set_seed", "broadcast("):
        return
    for call in code.syntax.calls_of("FSDP", "FullyShardedDataParallel"):
        strategy = keyword(call, "sharding_strategy")
        if strategy is not None and re.search(r"NO_SHARD|HYBRID_SHARD", dotted(strategy)):
            yield Hazard("unseeded_replicas", strategy.lineno, last(strategy))


@detects("low_precision_weights")
def low_precision(code: Code, project: Project) -> Iterator[Hazard]:
    """Weights kept in 16 bits are given to an optimizer that updates them in place: small updates are rounded away."""
    if project.mentions(*_MASTER):
        return
    s = code.syntax
    if not project.mentions("bfloat16", "bf16"):
        return
    for call in s.calls_of("to", "bfloat16"):
        kind = ast.dump(keyword(call, "dtype") or ast.Tuple(call.args))
        if last(call.func) == "to" and not re.search(r"bfloat16|dtype", kind):
            continue
        for made in s.every(ast.Assign):
            name = last(made.value.func) if isinstance(made.value, ast.Call) else ""
            optimizer = re.search(r"Adam|SGD|Lion|Adafactor|Muon", name) and "parameters" in names(made.value)
            of_model = re.search(r"model|net", ast.dump(call) + " ".join(last(t) for t in _targets(s, call)))
            if optimizer and of_model:
                yield Hazard("low_precision_weights", call.lineno)
                yield Hazard("low_precision_weights", made.lineno, name)


def _targets(s: Syntax, call: ast.Call) -> list[ast.expr]:
    return next((n.targets for n in s.above(call) if isinstance(n, ast.Assign)), [])


@detects("weights_reloaded")
def reloaded(code: Code, project: Project) -> Iterator[Hazard]:
    """The engine loads its checkpoint anew when it wakes: what was synchronised before is overwritten."""
    if not project.mentions("sync_weights", "update_weights", "load_weights", "move_model_to_vllm"):
        return
    for call in code.syntax.calls_of("collective_rpc", "reload_weights"):
        named = constant(call.args[0]) if call.args else None
        if "reload_weights" in (named, last(call.func)):
            yield Hazard("weights_reloaded", call.lineno)
            for wake in code.syntax.calls_of("sync_weights", "update_weights", "move_model_to_vllm")[:1]:
                yield Hazard("weights_reloaded", wake.lineno)
