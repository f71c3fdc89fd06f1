"""What a checkpoint leaves out, and how it is loaded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...run.program.syntax import Syntax, constant, dotted, keyword, last, receiver, walk
from ..project import OPTIMIZERS, Code, Hazard, Project, detects


@detects("scheduler_not_saved", "optimizer_not_saved", "rng_not_saved", "data_state_not_saved", needs=("resumes",))
def left_out(code: Code, project: Project) -> Iterator[Hazard]:
    """A training checkpoint, saved as a dict, without a part of the state that the file has."""
    s = code.syntax
    resumes = project.mentions("load_state_dict", "resume")
    for call, saved in _saved_dicts(s):
        text = ast.dump(saved).lower()
        if "state_dict" not in text and "model" not in text:
            continue
        progress = any(re.search(r"epoch|step|iter", str(constant(k))) for k in saved.keys)
        if not (progress or "optim" in text):
            continue  # weights alone, for use and not for going on
        if "optim" not in text and _has(s, r"(^|_)optim(izer)?$"):
            yield Hazard("optimizer_not_saved", call.lineno)
        if "sched" not in text and _has(s, r"sched"):
            yield Hazard("scheduler_not_saved", call.lineno)
        if resumes and "optim" in text:
            if "rng" not in text and "random" not in text:
                yield Hazard("rng_not_saved", call.lineno)
            streaming = code.mentions("IterableDataset", "streaming=True", "StreamingDataset", "StreamingDataLoader")
            if streaming and not re.search(r"loader|dataset|sampler|data_", text):
                yield Hazard("data_state_not_saved", call.lineno)


@detects("optimizer_not_saved", needs=("resumes",))
def left_out_of_files(code: Code, project: Project) -> Iterator[Hazard]:
    """A checkpoint of one file a part, with the scheduler's state and without the optimizer's."""
    s = code.syntax
    for function in s.functions:
        saves = [n for n in walk(function) if isinstance(n, ast.Call) and last(n.func) in ("save", "save_on_master")]
        states = [(n, a) for n in saves for a in n.args[:1] if isinstance(a, ast.Call) and last(a.func) == "state_dict"]
        kept = [(n, dotted(receiver(a)).lower()) for n, a in states]
        schedule = next((n for n, owner in kept if "sched" in owner), None)
        if schedule is None or len(kept) < 2 or re.search(r"optim|save_state\b|save_checkpoint\(", _body(function)):
            continue
        yield Hazard("optimizer_not_saved", schedule.lineno)


def _body(function: ast.AST) -> str:
    """What a function does, without its own name."""
    return "\n".join(ast.unparse(n) for n in getattr(function, "body", ())).lower()


def _saved_dicts(s: Syntax) -> Iterator[tuple[ast.expr, ast.Dict]]:
    """Dict literals given to `torch.save`, directly or by name."""
    for call in s.calls_of("save", "save_on_master", "save_checkpoint"):
        for value in (*call.args[:2], *(k.value for k in call.keywords if k.arg == "obj")):
            if (literal := _as_dict(value)) is not None:
                yield value, literal
            elif isinstance(value, ast.Name):
                for made in s.assigned(value.id, s.scope_of(call)):
                    if (literal := _as_dict(made)) is not None:
                        more = [n for n in walk(s.scope_of(call)) if _adds_key(n, value.id)]
                        yield made, _with(literal, more)


def _as_dict(value: ast.expr) -> ast.Dict | None:
    """A dict as it is written: `{"a": x}` or `dict(a=x)`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict" and not value.args:
        keys: list[ast.expr | None] = [ast.Constant(k.arg) if k.arg else None for k in value.keywords]
        return ast.copy_location(ast.Dict(keys, [k.value for k in value.keywords]), value)
    return value if isinstance(value, ast.Dict) else None


def _adds_key(n: ast.AST, name: str) -> bool:
    return (
        isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript) and last(n.targets[0].value) == name
    )  # fmt: skip


def _with(made: ast.Dict, more: list[ast.AST]) -> ast.Dict:
    keys, values = list(made.keys), list(made.values)
    for n in more:
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript):
            keys.append(n.targets[0].slice)
            values.append(n.value)
    return ast.copy_location(ast.Dict(keys, values), made)


def _has(s: Syntax, pattern: str) -> bool:
    """Whether the file makes something of such a name."""
    return any(
        re.search(pattern, last(t).lower())
        for n in s.every(ast.Assign)
        if isinstance(n.value, ast.Call)
        for t in (n.targets[0].elts if isinstance(n.targets[0], ast.Tuple) else n.targets)
    )


@detects("strict_false_load", needs=("loads",))
@detects("weights_only_load", needs=("unpickling_refused",))
def loading(code: Code, project: Project) -> Iterator[Hazard]:
    """How strictly weights are loaded, and whether the pickle restriction applies."""
    s = code.syntax
    for call in s.calls:
        name = last(call.func)
        if dotted(call.func) == "torch.load":
            chosen = keyword(call, "weights_only")
            yield Hazard("weights_only_load", call.lineno, "default" if chosen is None else str(constant(chosen)))
        elif name == "load_state_dict" and _lenient(s, call) and not _looked_at(s, call):
            yield Hazard("strict_false_load", call.lineno, dotted(receiver(call)))
        elif name == "from_pretrained" and constant(keyword(call, "ignore_mismatched_sizes")) is True:
            yield Hazard("strict_false_load", call.lineno, "ignore_mismatched_sizes")


def _lenient(s: Syntax, call: ast.Call) -> bool:
    """Whether a load does not mind what is missing: `strict=False`, by its name, its place or in a dict of options."""
    return any(constant(v) is False for v in (s.argument(call, "strict"), *call.args[1:2]))


def _looked_at(s: Syntax, call: ast.Call) -> bool:
    """Whether what was missing or unexpected is kept and used: more is made of it than its count."""
    above = s.parents.get(call)
    if isinstance(above, ast.Expr):
        return False
    if not isinstance(above, ast.Assign):
        return True
    kept = {n.id for target in above.targets for n in walk(target) if isinstance(n, ast.Name)}
    if not all(isinstance(n, ast.Name | ast.Tuple | ast.Load | ast.Store) for t in above.targets for n in walk(t)):
        return True  # kept in an attribute or a table: used elsewhere
    return any(
        isinstance(n, ast.Name) and n.id in kept and isinstance(n.ctx, ast.Load) and not _counted(s, n)
        for n in walk(s.scope_of(call))
    )


def _counted(s: Syntax, name: ast.Name) -> bool:
    """Whether only the length of it is asked for, and told."""
    above = s.parents.get(name)
    if not (isinstance(above, ast.Call) and last(above.func) == "len"):
        return False
    return not any(isinstance(n, ast.If | ast.Assert | ast.IfExp | ast.Compare) for n in s.above(above))


# ----------
# Code that takes a run up again, and leaves behind a part of what was restored.

_POSITION = re.compile(
    r"^(?:train_state|data_state|consumed\w*|start_(?:iter|step|sample|batch|index)\w*|resume\w*|skip_\w*(?:batch|sample|step)\w*)$"
)
_DRIVER = re.compile(r"(?:\S*/)?(?:nvidia-smi|rocm-smi)\b")
_READERS = frozenset({"DataLoader", "DistributedSampler", "RandomSampler", "BatchSampler"})


@detects("optimizer_rebuilt")
def rebuilt(code: Code, project: Project) -> Iterator[Hazard]:
    """An optimizer that was given, or was restored, is replaced by a new one: its moments are gone."""
    s = code.syntax
    for n in s.every(ast.Assign):
        target = last(n.targets[0])
        if not isinstance(n.value, ast.Call) or not re.search(r"optim", target):
            continue
        scope = s.scope_of(n)
        made_anew = _is_class_of(s, n.value.func, target, scope) or _after_its_restore(n, target, scope)
        if made_anew and any(isinstance(a, ast.Call) and last(a.func) == "parameters" for a in walk(n.value)):
            yield Hazard("optimizer_rebuilt", n.lineno, target)


def _is_class_of(s: Syntax, made: ast.expr, target: str, scope: ast.AST) -> bool:
    """Whether what is called is the class of the object of that name: `optimizer.__class__`, `type(optimizer)`."""
    if isinstance(made, ast.Name):  # one step back: names may be assigned in a circle
        return any(
            _is_class_of(s, value, target, scope)
            for value in s.assigned(made.id, scope)
            if not isinstance(value, ast.Name)
        )
    if isinstance(made, ast.Attribute) and made.attr == "__class__":
        return last(made.value) == target
    return isinstance(made, ast.Call) and last(made.func) == "type" and any(last(a) == target for a in made.args)


def _after_its_restore(made: ast.Assign, target: str, scope: ast.AST) -> bool:
    restored = any(
        isinstance(n, ast.Call) and dotted(n.func).endswith(f"{target}.load_state_dict") and n.lineno < made.lineno
        for n in walk(scope)
    )
    return restored and isinstance(made.value, ast.Call) and bool(OPTIMIZERS.search(last(made.value.func)))


@detects("position_unused", needs=("resumes",))
def not_passed_on(code: Code, project: Project) -> Iterator[Hazard]:
    """A function that makes the loader is given how far the run had come, and does not use it."""
    for function in code.syntax.functions:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        given = [a for a in (*function.args.args, *function.args.kwonlyargs) if _POSITION.search(a.arg)]
        body = [n for statement in function.body for n in walk(statement)]
        reader = next((n for n in body if isinstance(n, ast.Call) and last(n.func) in _READERS), None)
        if reader is None:
            continue
        used = {n.id for n in body if isinstance(n, ast.Name)}
        for parameter in given:
            if parameter.arg not in used and "kwargs" not in used and "locals" not in used:
                yield Hazard("position_unused", parameter.lineno, parameter.arg)
                yield Hazard("position_unused", reader.lineno, last(reader.func))


@detects("filtered_load", needs=("loads",))
def filtered(code: Code, project: Project) -> Iterator[Hazard]:
    """Only entries of certain names are taken from a checkpoint, and the load does not mind what is missing."""
    s = code.syntax
    for call in s.calls_of("load_state_dict"):
        if not call.args or not _lenient(s, call):
            continue
        scope, given = s.scope_of(call), call.args[0]
        sources = s.assigned(given.id, scope) if isinstance(given, ast.Name) else [given]
        filters = [n for m in sources for n in (m, *getattr(m, "args", ())) if isinstance(n, _FILTERS)]
        tests = [t for n in filters for t in n.generators[0].ifs]
        if isinstance(given, ast.Name):  # filled in a loop
            put = (n for n in walk(scope) if _adds_key(n, given.id))
            tests += [above.test for n in put for above in s.above(n) if isinstance(above, ast.If)]
        for test in tests:
            if word := _asked_word(test):
                yield Hazard("filtered_load", test.lineno, word)
                yield Hazard("filtered_load", call.lineno, word)


_FILTERS = (ast.DictComp, ast.GeneratorExp, ast.ListComp)


def _asked_word(test: ast.expr) -> str:
    """The text that a name must hold to be kept: `if "detector" in k`, `if k.startswith("model.")`."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In) and isinstance(constant(test.left), str):
        return str(constant(test.left))
    value = constant(test.args[0]) if isinstance(test, ast.Call) and test.args else None
    return value if isinstance(value, str) and last(getattr(test, "func", None)) == "startswith" else ""


@detects("driver_queried", needs=("gpu",))
def asks_the_driver(code: Code, project: Project) -> Iterator[Hazard]:
    """A program is started and waited for in a loop to ask about the GPU: tenths of a second, or seconds."""
    s = code.syntax
    for call in s.calls_of("check_output", "run", "Popen", "call", "check_call", "popen", "getoutput"):
        given = (s.origin(a, call) for a in call.args)
        words = [c.value for a in given for c in walk(a) if isinstance(c, ast.Constant) and isinstance(c.value, str)]
        if any(_DRIVER.match(w) for w in words) and (s.loop_of(call) or _called_in_a_loop(s, project, call)):
            yield Hazard("driver_queried", call.lineno, "nvidia-smi")


def _called_in_a_loop(s: Syntax, project: Project, node: ast.AST) -> bool:
    """Whether the function around a node is called in a loop of any file. At the start of a run it costs nothing."""
    function = s.function_of(node)
    return function is not None and any(
        c.syntax.loop_of(call) for c in project.codes for call in c.syntax.calls_of(function.name)
    )


# ----------
# How saved adapters are taken up again: trained on without being switched on, or laid over a fresh one.

_LOADERS = re.compile(r"(?:^|\.)(?:Auto)?PeftModel(?:For\w+)?\.from_pretrained$")
_HEADED = re.compile(
    r"For(?:SequenceClassification|TokenClassification|QuestionAnswering|MultipleChoice|ImageClassification"
    r"|AudioClassification)\.from_pretrained$"
)
# Ways by which weights of a loaded adapter are switched on, merged or replaced after all.
_SWITCHED = ("is_trainable", "requires_grad", "merge_and_unload", "merge_adapter", "get_peft_model", "add_adapter",
             "peft_config", "inference_mode=False", "for_training(", "add_weighted_adapter", "unload(")  # fmt: skip


@detects("adapter_not_trainable")
def switched_off(code: Code, project: Project) -> Iterator[Hazard]:
    """A saved adapter is handed to a trainer as it was loaded: for inference, with every weight switched off."""
    s = code.syntax
    off = "is_trainable=False" in re.sub(r"\s", "", code.source)
    if project.mentions(*(w for w in _SWITCHED if not (off and w == "is_trainable"))):
        return
    for call in s.calls:
        if not _LOADERS.search(dotted(call.func)) or constant(keyword(call, "is_trainable")) is True:
            continue
        kept = _name_of(s, call)
        if kept and any(_trains(c, kept) for c in s.calls if c.lineno > call.lineno):
            yield Hazard("adapter_not_trainable", call.lineno, kept)


def _name_of(s: Syntax, call: ast.Call) -> str:
    """The variable that takes a call's result."""
    above = s.parents.get(call)
    return dotted(above.targets[0]) if isinstance(above, ast.Assign) and len(above.targets) == 1 else ""


def _trains(call: ast.Call, model: str) -> bool:
    """Whether a call is a trainer or an optimizer made with the model; a reference or reward model is none."""
    name = last(call.func)
    if name.endswith("Trainer"):
        given = keyword(call, "model")
        return dotted(given if given is not None else (call.args[0] if call.args else None)) == model
    if not OPTIMIZERS.match(name):
        return False
    return any(isinstance(n, ast.Name | ast.Attribute) and dotted(n) == model for a in call.args for n in walk(a))


@detects("adapter_over_adapter")
def doubled(code: Code, project: Project) -> Iterator[Hazard]:
    """A saved adapter is loaded into a model that already carries a fresh one: its names no longer fit."""
    s = code.syntax
    for fresh in s.calls_of("get_peft_model"):
        kept = _name_of(s, fresh)
        for call in s.calls if kept else ():
            late = call.lineno > fresh.lineno and s.scope_of(call) is s.scope_of(fresh)
            if not late or not _LOADERS.search(dotted(call.func)) or not call.args or dotted(call.args[0]) != kept:
                continue
            if _same_branch(s, fresh, call) and not _made_anew(s, kept, fresh, call):
                yield Hazard("adapter_over_adapter", fresh.lineno, kept)
                yield Hazard("adapter_over_adapter", call.lineno, kept)


def _same_branch(s: Syntax, first: ast.AST, second: ast.AST) -> bool:
    """Whether the second call always comes after the first: they are no alternatives of one condition."""
    return _branches(s, first) <= _branches(s, second)


def _branches(s: Syntax, node: ast.AST) -> set[tuple[int, str]]:
    """The branch of each condition around a node."""
    found: set[tuple[int, str]] = set()
    inner = node
    for above in s.above(node):
        if isinstance(above, ast.If | ast.Try | ast.IfExp):
            part = next((name for name, value in ast.iter_fields(above) if _holds(value, inner)), "")
            found.add((id(above), part))
        inner = above
    return found


def _holds(value: object, node: ast.AST) -> bool:
    return value is node or (isinstance(value, list) and any(v is node for v in value))


def _made_anew(s: Syntax, name: str, first: ast.Call, second: ast.Call) -> bool:
    """Whether the variable is given another model between two calls."""
    return any(
        first.lineno < n.lineno < second.lineno and any(dotted(t) == name for t in n.targets)
        for n in s.every(ast.Assign)
    )


@detects("adapter_on_new_head")
def new_head(code: Code, project: Project) -> Iterator[Hazard]:
    """A saved adapter is loaded into a base model whose head for the task is new: right only if it was saved too."""
    s = code.syntax
    heads = {
        _name_of(s, c): c
        for c in s.calls
        if _HEADED.search(dotted(c.func)) and not any(k.arg == "config" for k in c.keywords)
    }
    for call in s.calls:
        base = dotted(call.args[0]) if call.args else ""
        if base and base in heads and _LOADERS.search(dotted(call.func)) and call.lineno > heads[base].lineno:
            yield Hazard("adapter_on_new_head", call.lineno, last(receiver(heads[base])))
