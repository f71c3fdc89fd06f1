"""What a checkpoint leaves out, and how it is loaded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..syntax import Syntax, constant, dotted, keyword, last, receiver, walk
from .project import Code, Hazard, Project, detects


@detects("scheduler_not_saved", "optimizer_not_saved", "rng_not_saved", "data_state_not_saved")
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


@detects("optimizer_not_saved")
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
        for value in call.args[:2]:
            if isinstance(value, ast.Dict):
                yield value, value
            elif isinstance(value, ast.Name):
                for made in s.assigned(value.id, s.scope_of(call)):
                    if isinstance(made, ast.Dict):
                        more = [n for n in walk(s.scope_of(call)) if _adds_key(n, value.id)]
                        yield made, _with(made, more)


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


@detects("weights_only_load", "strict_false_load")
def loading(code: Code, project: Project) -> Iterator[Hazard]:
    """How strictly weights are loaded, and whether the pickle restriction applies."""
    s = code.syntax
    for call in s.calls:
        name = last(call.func)
        if dotted(call.func) == "torch.load":
            chosen = keyword(call, "weights_only")
            yield Hazard("weights_only_load", call.lineno, "default" if chosen is None else str(constant(chosen)))
        elif name == "load_state_dict" and constant(keyword(call, "strict")) is False and not _looked_at(s, call):
            yield Hazard("strict_false_load", call.lineno, dotted(receiver(call)))
        elif name == "from_pretrained" and constant(keyword(call, "ignore_mismatched_sizes")) is True:
            yield Hazard("strict_false_load", call.lineno, "ignore_mismatched_sizes")


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


@detects("hard_coded_path")
def fixed_paths(code: Code, project: Project) -> Iterator[Hazard]:
    """Absolute paths in calls that load or save."""
    for call in code.syntax.calls_of("from_pretrained", "load", "save", "load_dataset", "load_from_disk", "open"):
        value = constant(call.args[0]) if call.args else None
        if isinstance(value, str) and re.match(r"/(home|mnt|data|root|scratch|workspace|Users|opt|tmp)/", value):
            yield Hazard("hard_coded_path", call.lineno, value[:200])
