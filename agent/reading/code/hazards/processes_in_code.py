"""Code that runs in several processes: devices, collectives under a condition, samplers, seeds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...run.program.syntax import Syntax, constant, dotted, keyword, last, names, receiver, walk
from ..project import Code, Hazard, Project, detects
from .steps import OPTIMIZER, calls_in

_RANK = re.compile(
    r"rank|is_main_process|is_world_process_zero|is_master|is_global_zero|is_local_main|master_process|(?:^|\.)gpu$",
    re.I,
)
_COLLECTIVES = frozenset(
    {"barrier", "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "broadcast", "all_to_all",
     "all_gather_object", "broadcast_object_list", "gather_object", "scatter", "wait_for_everyone", "monitored_barrier",
     "save_state", "gather_for_metrics", "get_state_dict", "get_model_state_dict", "get_optimizer_state_dict",
     "optim_state_dict", "full_optim_state_dict"}
)  # fmt: skip
_GROUP = re.compile(r"dist|distributed|accelerator|fabric|fsdp|comm|hvd|strategy|collectives|pg|group", re.IGNORECASE)
_CUDA = re.compile(r"^cuda:\d+$")


@detects("default_device", needs=("several_processes", "gpu"))
def one_device(code: Code, project: Project) -> Iterator[Hazard]:
    """A device with a fixed number in code that runs once per GPU."""
    s = code.syntax
    for call in s.calls:
        name = last(call.func)
        if name == "add_argument" and _CUDA.match(str(constant(keyword(call, "default")))):
            default = keyword(call, "default")
            yield Hazard("default_device", default.lineno if default else call.lineno, constant(default))
        elif name in ("to", "device", "cuda", "set_device") and call.args and _fixed(call.args[0], name):
            chosen = any(isinstance(n, ast.IfExp | ast.If) for n in s.above(call))
            if not chosen:
                yield Hazard("default_device", call.lineno, constant(call.args[0]))
    for function in s.functions:
        for default in [*function.args.defaults, *function.args.kw_defaults]:
            if default is not None and _CUDA.match(str(constant(default))):
                yield Hazard("default_device", default.lineno, constant(default))
    for n in s.every(ast.Assign):
        if _CUDA.match(str(constant(n.value))) and "device" in last(n.targets[0]).lower():
            yield Hazard("default_device", n.lineno, constant(n.value))


def _fixed(value: ast.expr, function: str) -> bool:
    found = constant(value)
    if function in ("set_device", "cuda"):
        return isinstance(found, int) and not isinstance(found, bool)
    return bool(_CUDA.match(str(found)))


@detects("collective_under_rank", needs=("several_processes",))
def lonely(code: Code, project: Project) -> Iterator[Hazard]:
    """A collective that only some ranks reach: under a condition on the rank, or after others have returned."""
    s = code.syntax
    for n in s.every(ast.If):
        kind = _rank_test(n.test)
        if not kind:
            continue
        inside = [c for part in n.body for c in walk(part, False) if isinstance(c, ast.Call) and _collective(c, code)]
        otherwise = {last(c.func) for part in n.orelse for c in walk(part) if isinstance(c, ast.Call)}
        for call in inside:
            if last(call.func) not in otherwise and not _paired(s, n, last(call.func)):
                yield Hazard("collective_under_rank", call.lineno, last(call.func))
                yield Hazard("collective_under_rank", n.lineno, "the condition")
        if kind == "one":
            yield from _wrapped_forward(code, n)
        function = s.function_of(n)
        if function is not None and n.body and isinstance(n.body[-1], ast.Return) and not n.orelse:
            for call in walk(function, False):
                if isinstance(call, ast.Call) and _collective(call, code) and call.lineno > n.lineno + len(n.body):
                    yield Hazard("collective_under_rank", call.lineno, last(call.func))


def _wrapped_forward(code: Code, condition: ast.If) -> Iterator[Hazard]:
    """A wrapped model runs on one rank only: its forward pass is a collective."""
    wrapped = {
        last(n.targets[0])
        for n in code.syntax.every(ast.Assign)
        if isinstance(n.value, ast.Call)
        and last(n.value.func) in ("DDP", "DistributedDataParallel", "FSDP", "FullyShardedDataParallel", "fully_shard")
    }
    for part in condition.body:
        for call in walk(part, False):
            if not isinstance(call, ast.Call) or not wrapped:
                continue
            runs = last(call.func) in wrapped and not isinstance(call.func, ast.Call)
            given = re.match(r"_?(eval|valid|test|sample|generate)", last(call.func)) and any(
                isinstance(a, ast.Name) and a.id in wrapped for a in call.args
            )
            if runs or given:
                yield Hazard("collective_under_rank", call.lineno, "forward of a wrapped model")
                yield Hazard("collective_under_rank", condition.lineno, "the condition")


def _rank_test(test: ast.expr) -> str:
    """`one` where a test holds on a single rank, `others` where on all but one, empty where it says no such thing."""
    if isinstance(test, ast.BoolOp):
        return next((kind for v in test.values if (kind := _rank_test(v))), "") if isinstance(test.op, ast.And) else ""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _rank_test(test.operand)
        if inner:
            return "others" if inner == "one" else "one"
        return "one" if re.search(r"rank$", last(test.operand), re.IGNORECASE) else ""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and _RANK.search(dotted(test.left)):
        compared = constant(test.comparators[0])
        if compared == 0 and not isinstance(compared, bool):
            return (
                "one"
                if isinstance(test.ops[0], ast.Eq)
                else "others"
                if isinstance(test.ops[0], ast.NotEq | ast.Gt)
                else ""
            )
        return ""
    name = last(test.func) if isinstance(test, ast.Call) else last(test)
    return (
        "one"
        if re.search(r"is_(\w+_)?(main|master|rank_?0|rank_zero|process_zero|global_zero)|master_process", name)
        else ""
    )


def _collective(call: ast.Call, code: Code) -> bool:
    name = last(call.func)
    if name == "save_checkpoint":
        holder = last(receiver(call))
        if holder == "trainer":  # Lightning ends it in a barrier of its strategy
            return code.mentions("is_global_zero") or code.mentions("lightning")
        return code.mentions("deepspeed") and bool(re.search(r"engine|model", holder))
    return name in _COLLECTIVES and bool(_GROUP.search(dotted(receiver(call))) or isinstance(call.func, ast.Name))


def _paired(s: Syntax, condition: ast.If, name: str) -> bool:
    """Whether the function also calls it under the opposite condition (main process first, the rest after)."""
    kind = _rank_test(condition.test)
    scope = s.scope_of(condition)
    return any(
        isinstance(n, ast.If) and _rank_test(n.test) not in ("", kind)
        and any(isinstance(c, ast.Call) and last(c.func) == name for c in walk(n))
        for n in walk(scope)
    ) or any(
        isinstance(n, ast.If) and n is not condition and dotted(n.test) == "?" and name in {
            last(c.func) for c in walk(n) if isinstance(c, ast.Call)} and _mentions_ranks(n.test)
        for n in walk(scope)
    )  # fmt: skip


def _mentions_ranks(test: ast.expr) -> bool:
    return any(_RANK.search(name) for name in names(test)) and any(
        isinstance(c, ast.NotIn | ast.In) for c in walk(test)
    )


@detects("shuffle_with_sampler")
@detects("sampler_no_set_epoch", "no_distributed_sampler", "drop_last_missing", needs=("several_processes",))
def samplers(code: Code, project: Project) -> Iterator[Hazard]:
    """How data is divided among ranks."""
    s = code.syntax
    made = s.calls_of("DistributedSampler")
    loops = [*((n.target, n.iter) for n in s.every(ast.For)), *((n.test,) for n in s.every(ast.While))]
    epochs = any(re.search(r"epoch", " ".join(names(part)), re.IGNORECASE) for loop in loops for part in loop)
    if epochs and not project.mentions("set_epoch"):
        for call in made:
            if constant(keyword(call, "shuffle")) is not False:
                yield Hazard("sampler_no_set_epoch", call.lineno)
    wrapped = code.mentions("DistributedDataParallel(", "DDP(")
    divided = project.mentions(
        "DistributedSampler", "accelerator.prepare", "split_dataset_by_node", "setup_dataloaders", "sampler"
    )
    divided = divided or any(map(_own_share, [*s.every(ast.Slice), *s.calls_of("shard")]))
    for call in s.calls_of("DataLoader"):
        shuffle, sampler = (
            keyword(call, name) or next(iter(call.args[at : at + 1]), None)
            for at, name in ((2, "shuffle"), (3, "sampler"))
        )
        none = sampler is None or (isinstance(sampler, ast.Constant) and sampler.value is None)
        if not none and constant(shuffle) is True:
            yield Hazard("shuffle_with_sampler", call.lineno)
        if wrapped and not divided and keyword(call, "batch_sampler") is None:
            yield Hazard("no_distributed_sampler", call.lineno)
        open_ended = bool(call.args) and all(k.arg not in (None, "drop_last") for k in call.keywords)
        if open_ended and code.mentions("IterableDataset"):
            yield Hazard("drop_last_missing", call.lineno)


def _own_share(node: ast.AST) -> bool:
    """Whether each rank takes a part of the data for itself: `files[rank::world]`, `data.shard(world, rank)`."""
    if isinstance(node, ast.Call):
        return bool(node.args or node.keywords)
    step = " ".join(names(node.step)) if isinstance(node, ast.Slice) and node.step is not None else ""
    return re.search(r"(?i)world|size|rank|replica|proc|shard", step) is not None


_SENT_ROUND = ("DistributedDataParallel", "DDP(", "FSDP", "FullySharded", "deepspeed", "prepare(", "load_state_dict(",
               "from_pretrained")  # fmt: skip


@detects("seed_per_rank", needs=("several_processes",))
def seeds(code: Code, project: Project) -> Iterator[Hazard]:
    """A seed that differs between ranks, which replicas that are initialized one by one do not survive.

    A wrapper sends the weights of the first rank round, but not what is drawn once and never trained. Where all ranks
    had a seed in common before, the weights are made already.
    """
    if project.mentions(*_SENT_ROUND) and not project.mentions("requires_grad=False", "register_buffer"):
        return
    s = code.syntax
    made = s.calls_of("manual_seed", "seed_everything", "set_seed", "manual_seed_all")
    own = [c for c in made if c.args and any(re.search(r"rank", name) for name in _of_what(s, c.args[0], c))]
    common = [c for c in made if c.args and c not in own]
    for call in own:
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
            continue  # a generator of its own draws data, not weights
        if not any(s.scope_of(c) is s.scope_of(call) and c.lineno < call.lineno for c in common):
            yield Hazard("seed_per_rank", call.lineno)


def _of_what(s: Syntax, value: ast.expr, at: ast.AST) -> set[str]:
    """Names that a value is made of, one assignment back."""
    before = s.assigned(value.id, s.scope_of(at)) if isinstance(value, ast.Name) else []
    return names(value).union(*map(names, before))


@detects("map_location_missing", needs=("several_processes", "gpu", "loads"))
def loaded_on_one(code: Code, project: Project) -> Iterator[Hazard]:
    """Every process loads a checkpoint onto the device it was saved from."""
    s = code.syntax
    imported = any(n.module == "torch" and any(a.name == "load" for a in n.names) for n in s.every(ast.ImportFrom))
    spelled = ("torch.load", "load") if imported else ("torch.load",)
    for call in s.calls_of("load"):
        if dotted(call.func) in spelled and keyword(call, "map_location") is None and len(call.args) < 2:
            yield Hazard("map_location_missing", call.lineno)


# ----------
# Data-parallel replicas that come apart: never made equal, or synchronized in another turn than they are stepped.

_MADE_EQUAL = (
    "broadcast", "DistributedDataParallel", "DDP(", "FSDP", "FullySharded", "fully_shard", "deepspeed", "prepare(",
    "from_pretrained", "load_state_dict", "sync_module_states", "_sync_module", "set_seed", "seed_everything", "bcast",
)  # fmt: skip
_REPLICATED = ("DistributedDataParallel", "DDP")
_WITHOUT = frozenset({"no_grad", "inference_mode"})
_SEEDS = ("manual_seed", "manual_seed_all", "seed")
Turn = tuple[str, str, int]  # a counter, its modulus, and in which of its turns something happens


@detects("unseeded_replicas", needs=("several_processes",))
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


@detects("ddp_bypassed", needs=("several_processes",))
def bypassed(code: Code, project: Project) -> Iterator[Hazard]:
    """A training step calls the module inside of DDP: backward then averages no gradients, each rank trains alone."""
    s = code.syntax
    wrapped = {last(t) for n in s.every(ast.Assign) if _wrap_in(n.value) is not None for t in n.targets}
    inner = _inside_of(s, wrapped)
    for call in s.calls:
        *owner, inside = dotted(call.func).removesuffix(".forward").split(".")
        loop = s.loop_of(call)
        held = inside == "module" and bool(owner) and owner[-1] in wrapped
        if loop is None or not (held or (inside in inner and not any(calls_in(loop, w) for w in wrapped))):
            continue
        if calls_in(loop, "backward") and not any(_WITHOUT & _entered(n) for n in s.above(call)):
            yield Hazard("ddp_bypassed", call.lineno, dotted(call.func))


def _wrap_in(value: ast.expr) -> ast.Call | None:
    """The call that wraps a model, also of one that is wrapped only where there are several processes."""
    if isinstance(value, ast.IfExp):
        return _wrap_in(value.body) or _wrap_in(value.orelse)
    return value if isinstance(value, ast.Call) and last(value.func) in _REPLICATED else None


def _inside_of(s: Syntax, wrapped: set[str]) -> set[str]:
    """Names of the modules inside of wrapped ones: `net = ddp.module`, and the `net` of `ddp = DDP(net)`."""
    found: set[str] = set()
    for n in s.every(ast.Assign):
        held, wrap = n.value, _wrap_in(n.value)
        if isinstance(held, ast.Attribute) and held.attr == "module" and last(held.value) in wrapped:
            found |= {last(t) for t in n.targets}
        elif wrap is not None and wrap.args:
            found.add(last(wrap.args[0]))
    return found - wrapped - {"", "?"}


def _entered(node: ast.AST) -> set[str]:
    """What a `with` statement enters, by the last names of its calls."""
    items = node.items if isinstance(node, ast.With) else []
    return {last(i.context_expr.func) for i in items if isinstance(i.context_expr, ast.Call)}


@detects("sync_in_other_turn", needs=("several_processes",))
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


# ----------
# Objects handed twice to the library that wraps them for distributed training.

_PREPARES = {"prepare": re.compile(r"accelerator$", re.I), "setup": re.compile(r"fabric$", re.I)}
_WRAPPERS = ("DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "initialize")


@detects("prepared_twice")
def prepared_twice(code: Code, project: Project) -> Iterator[Hazard]:
    """A model, optimizer or scheduler that is prepared a second time: a scheduler then steps twice in each step."""
    s = code.syntax
    seen: dict[str, ast.Call] = {}
    for call in s.calls_of(*_PREPARES):
        owner = receiver(call)
        made = s.origin(owner, call) if owner is not None else None
        owners = [last(owner), last(made.func) if isinstance(made, ast.Call) else ""]
        if not any(_PREPARES[last(call.func)].search(o) for o in owners):
            continue
        for name in filter(None, map(dotted, call.args)):
            before = seen.get(name)
            if before is None or _apart(s, before, call) or _made_anew(s, name, before, call):
                seen[name] = call
            else:
                yield Hazard("prepared_twice", call.lineno, name)
    for call in s.calls_of(*_WRAPPERS):
        for given in (*call.args, *(k.value for k in call.keywords if k.arg == "model")):
            before = seen.get(dotted(given) or "")
            if before is not None and not _apart(s, before, call):
                yield Hazard("prepared_twice", call.lineno, dotted(given))


def _apart(s: Syntax, one: ast.Call, other: ast.Call) -> bool:
    """Whether the two stand in branches of which only one runs, or in different functions."""
    if s.function_of(one) is not s.function_of(other):
        return True
    for branch in (n for n in s.above(one) if isinstance(n, ast.If)):
        first = any(one in ast.walk(n) for n in branch.body)
        if (first and any(other in ast.walk(n) for n in branch.orelse)) or (
            not first and any(other in ast.walk(n) for n in branch.body)
        ):
            return True
    return False


def _made_anew(s: Syntax, name: str, before: ast.Call, again: ast.Call) -> bool:
    """Whether the name is given a new object between the two calls."""
    for n in s.every(ast.Assign):
        if before.lineno < n.lineno < again.lineno and any(dotted(t) == name for t in n.targets):
            return True
    return False
