"""Outputs of the model that are put, with their graph, into a list that outlives the step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...run.program.syntax import Function, Loop, Syntax, constant, dotted, keyword, last, names, receiver, walk
from ..project import Code, Hazard, Project, detects
from .steps import training_loops

_MODEL = re.compile(r"(?:self|(?:self\.)?(?:\w{0,20}model|\w{0,20}net|module|forward|backbone|encoder|decoder))$")
_LETS_GO = {"detach", "item", "no_grad", "inference_mode"}


@detects("graph_kept")
def outputs_kept(code: Code, project: Project) -> Iterator[Hazard]:
    """A training step appends what the model returned, alone or in a record, to a list kept over steps."""
    s = code.syntax
    steps: list[Function | Loop] = [f for f in s.functions if f.name == "training_step"]
    for scope in [*steps, *training_loops(s)]:
        produced = _outputs(scope)
        made_here = {t for n in walk(scope) if isinstance(n, ast.Assign) for t in map(dotted, n.targets)}
        for call in (n for n in walk(scope) if isinstance(n, ast.Call)):
            kept = dotted(receiver(call))
            if last(call.func) != "append" or not call.args or not kept or kept in made_here:
                continue
            outlives = kept.startswith("self.") or isinstance(scope, Loop)
            if outlives and produced & _parts(call.args[0]) and not _let_go(s, scope, call, kept):
                yield Hazard("graph_kept", call.lineno, last(receiver(call)))


def _outputs(scope: ast.AST) -> set[str]:
    """Names that hold what a call of the model returned, and were not cut off from its graph."""
    found: set[str] = set()
    for n in walk(scope):
        if not isinstance(n, ast.Assign):
            continue
        targets = {t.id for target in n.targets for t in ast.walk(target) if isinstance(t, ast.Name)}
        if isinstance(n.value, ast.Call) and _MODEL.match(dotted(n.value.func)):
            found |= targets
        elif _LETS_GO & names(n.value):
            found -= targets
    return found


def _parts(value: ast.expr) -> set[str]:
    """Names that a value is or holds as they are: `x`, `(x, y)`, `{"a": x}`; what goes through a call is another."""
    if isinstance(value, ast.Name):
        return {value.id}
    if isinstance(value, ast.Dict):
        return {name for v in value.values for name in _parts(v)}
    if isinstance(value, ast.Tuple | ast.List):
        return {name for v in value.elts for name in _parts(v)}
    return set()


def _let_go(s: Syntax, scope: ast.AST, call: ast.Call, kept: str) -> bool:
    """Whether the list is emptied in the same step, or filled where no graph is made."""
    emptied = any(
        isinstance(n, ast.Call) and last(n.func) in ("clear", "pop", "popleft") and dotted(receiver(n)) == kept
        for n in walk(scope)
    )
    above = [n for n in s.above(call) if isinstance(n, ast.With)]
    return emptied or any(_LETS_GO & names(item.context_expr) for n in above for item in n.items)


# ----------
# Things that hold on to every batch or sample they have seen.


@detects("cycle_keeps_batches")
def cycles(code: Code, project: Project) -> Iterator[Hazard]:
    """`itertools.cycle` keeps a copy of every batch of a loader."""
    if "def cycle(" in code.source:
        return
    imports = [(n, a) for n in code.syntax.every(ast.Import, ast.ImportFrom) for a in n.names]
    spelled = {"cycle", "itertools.cycle"}
    spelled |= {a.asname for n, a in imports if isinstance(n, ast.ImportFrom) and a.name == "cycle" and a.asname}
    spelled |= {f"{a.asname}.cycle" for _, a in imports if a.name == "itertools" and a.asname}
    for call in (c for c in code.syntax.calls if dotted(c.func) in spelled):
        given = call.args[0] if call.args else None
        if isinstance(given, ast.Call) or re.search(r"loader|dl$", last(given), re.IGNORECASE):
            yield Hazard("cycle_keeps_batches", call.lineno, last(given))


@detects("unbounded_cache")
def unbounded(code: Code, project: Project) -> Iterator[Hazard]:
    """A memo without a bound on a method that is called once a sample or a step."""
    often = {"__getitem__", "get", "load", "forward", "load_image", "_load", "tokenize", "encode"}
    each = [f for f in code.syntax.functions if f.name in ("__getitem__", "__iter__", "forward", "training_step")]
    often |= {last(n.func) for f in each for n in walk(f) if isinstance(n, ast.Call) and n.args}
    for function in code.syntax.functions:
        if function.name not in often:
            continue
        for decorator in function.decorator_list:
            plain = last(decorator) == "cache"
            open_ended = (
                isinstance(decorator, ast.Call)
                and last(decorator.func) == "lru_cache"
                and constant(
                    keyword(decorator, "maxsize") or (decorator.args[0] if decorator.args else ast.Constant(128))
                )
                is None
            )
            if plain or open_ended:
                yield Hazard("unbounded_cache", decorator.lineno, function.name)


# ----------
# Results that are computed and lost, kept for too long, or can never be: dropped nodes, step outputs, patterns.

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
            if (owner := receiver(call)) is not None and isinstance(made := s.origin(owner, call), ast.Call):
                call = made if last(made.func) == "compile" and made.args else call  # of a pattern made beforehand
            if keyword(call, "flags") is not None or len(call.args) > (1 if last(call.func) == "compile" else 2):
                continue
            pattern = s.origin(call.args[0], call)
            text = constant(pattern)
            tagged = isinstance(text, str) and _TAGGED.search(text) and not re.search(r"\(\?\w*s", text)
            if tagged:
                yield Hazard("regex_one_line", pattern.lineno, function.name)
                yield Hazard("regex_one_line", call.lineno, function.name)


@detects("unseeded_replicas", needs=("several_processes",))
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
    for call in s.calls_of("to", "bfloat16", "from_pretrained"):
        if last(call.func) != "bfloat16" and not _in_bfloat16(call):
            continue
        for made in s.every(ast.Assign):
            name = last(made.value.func) if isinstance(made.value, ast.Call) else ""
            optimizer = re.search(r"Adam|SGD|Lion|Adafactor|Muon", name) and "parameters" in names(made.value)
            of_model = re.search(r"model|net", ast.dump(call) + " ".join(last(t) for t in _targets(s, call)))
            if optimizer and of_model:
                yield Hazard("low_precision_weights", call.lineno)
                yield Hazard("low_precision_weights", made.lineno, name)


def _in_bfloat16(call: ast.Call) -> bool:
    kind = keyword(call, "dtype") or keyword(call, "torch_dtype")
    if last(call.func) == "from_pretrained":
        return kind is not None and "bfloat16" in ast.dump(kind)
    return re.search(r"bfloat16|dtype", ast.dump(kind or ast.Tuple(call.args))) is not None


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
