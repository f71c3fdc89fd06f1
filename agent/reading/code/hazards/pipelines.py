"""Data pipelines: worker processes, files opened for each item, errors that swallow samples."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...run.program.syntax import Function, Syntax, constant, dotted, keyword, last, names, receiver, walk
from ..project import Code, Hazard, Project, detects

# Libraries with native thread pools or locks that do not survive a fork of the process.
_THREADED = {
    "polars": "polars", "duckdb": "duckdb", "lance": "lance", "lancedb": "lance", "grpc": "grpc", "jax": "jax",
    "tensorflow": "tensorflow", "pyarrow.dataset": "pyarrow", "pymongo": "pymongo", "rasterio": "gdal",
    "google.cloud": "grpc",
}  # fmt: skip
_THREADED_CALLS = {"ParquetLoader": "polars", "scan_parquet": "polars", "read_parquet_polars": "polars"}
_HEAVY_OPENS = frozenset(
    {"h5py.File", "tarfile.open", "zipfile.ZipFile", "lmdb.open", "pd.read_csv", "pandas.read_csv", "pd.read_parquet",
     "json.load", "pickle.load", "np.load", "torch.load", "pd.read_json", "VideoReader"}
)  # fmt: skip


def loaders(s: Syntax) -> list[ast.Call]:
    """Calls that make a data loader."""
    return [c for c in s.calls if last(c.func).endswith("DataLoader") and (c.args or c.keywords)]


@detects("num_workers_fork_threads")
def forked_threads(code: Code, project: Project) -> Iterator[Hazard]:
    """Worker processes are forked while a library with a native thread pool is in use: its locks hang for good."""
    if project.mentions("spawn", "forkserver"):
        return
    s = code.syntax
    with_workers = [c for c in loaders(s) if constant(keyword(c, "num_workers")) not in (None, 0) or _named(c)]
    if not with_workers:
        return
    used = dict(_threaded(s))
    for line, library in used.items():
        yield Hazard("num_workers_fork_threads", line, library)
    if used:
        for call in with_workers:
            yield Hazard("num_workers_fork_threads", (keyword(call, "num_workers") or call).lineno, "num_workers")


def _named(call: ast.Call) -> bool:
    workers = keyword(call, "num_workers")
    return workers is not None and not isinstance(workers, ast.Constant)


def _threaded(s: Syntax) -> Iterator[tuple[int, str]]:
    """Lines that use such a library."""
    aliases: dict[str, str] = {}
    for n in s.every(ast.Import, ast.ImportFrom):
        for a in n.names:
            full = f"{n.module}.{a.name}" if isinstance(n, ast.ImportFrom) else a.name
            library = next(
                (lib for name, lib in _THREADED.items() if full == name or full.startswith(name + ".")), None
            )
            if library:
                aliases[a.asname or a.name.split(".")[0]] = library
    for call in s.calls:
        if (library := _THREADED_CALLS.get(last(call.func))) or (
            library := aliases.get(dotted(call.func).split(".")[0])
        ):
            yield call.lineno, library


@detects("loader_workers_zero")
def single_process(code: Code, project: Project) -> Iterator[Hazard]:
    """Batches are made in the training process itself, of samples that are not there as tensors already."""
    for call in code.syntax.calls_of("DataLoader"):
        data = call.args[0] if call.args else keyword(call, "dataset")
        if data is None or _in_memory(code.syntax, data, call):
            continue
        workers = keyword(call, "num_workers")
        named = isinstance(workers, ast.Name)
        count = code.syntax.assigned(workers.id, code.syntax.scope_of(call)) if named else [workers]
        spread = any(k.arg is None for k in call.keywords) or len(call.args) > 5
        if (workers is None and not spread) or [constant(c) for c in count] == [0]:
            yield Hazard("loader_workers_zero", (workers or call).lineno, 0)


def _in_memory(s: Syntax, given: ast.expr, at: ast.AST) -> bool:
    """Whether a data set is made of tensors that are at hand: nothing is left for workers to do."""
    values = s.assigned(given.id, s.scope_of(at)) if isinstance(given, ast.Name) else [given]
    return any(isinstance(n, ast.Call) and last(n.func) == "TensorDataset" for v in values for n in walk(v))


@detects("open_in_getitem", "data_errors_swallowed", "mutable_global")
def items(code: Code, project: Project) -> Iterator[Hazard]:
    """What happens for every single item."""
    s = code.syntax
    shared = {
        last(t) for tree in s.trees for n in tree.body
        if isinstance(n, ast.Assign) and _is_container(n.value) for t in n.targets
    }  # fmt: skip
    for function in s.functions:
        if function.name in ("__getitem__", "forward", "training_step"):
            yield from _grows(function, shared)
        if function.name not in ("__getitem__", "__iter__", "collate_fn"):
            continue
        for n in walk(function):
            if isinstance(n, ast.Call) and function.name == "__getitem__":
                yield from _opened(s, n)
            elif isinstance(n, ast.ExceptHandler) and catches_all(n):
                yield Hazard("data_errors_swallowed", n.lineno, function.name)


def _opened(s: Syntax, call: ast.Call) -> Iterator[Hazard]:
    """What a call opens anew for every item, itself or in the method that it is; what is kept once open is left out."""
    inside = [call]
    if isinstance(call.func, ast.Attribute) and dotted(receiver(call)) == "self":
        inside += [c for f in s.functions if f.name == call.func.attr for c in walk(f) if isinstance(c, ast.Call)]
    for c in inside:
        kept = any(isinstance(t, ast.Attribute) for t in getattr(s.parents.get(c), "targets", ()))
        if dotted(c.func) in _HEAVY_OPENS and not (kept and any(isinstance(a, ast.If) for a in s.above(c))):
            yield Hazard("open_in_getitem", c.lineno, dotted(c.func))


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Whether any error ends here unseen."""
    everything = handler.type is None or last(handler.type) in ("Exception", "BaseException")
    return everything and not any(isinstance(b, ast.Raise) for b in walk(handler))


def _is_container(value: ast.expr) -> bool:
    made = last(value.func) if isinstance(value, ast.Call) else ""
    return isinstance(value, ast.Dict | ast.List | ast.Set) or made in _CONTAINERS


def _grows(function: Function, shared: set[str]) -> Iterator[Hazard]:
    """Module-level containers that a function adds to."""
    for n in walk(function):
        if isinstance(n, ast.Call) and last(n.func) in _ADDS and isinstance(n.func, ast.Attribute):
            name = last(n.func.value) if isinstance(n.func.value, ast.Name) else ""
        elif isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript):
            name = last(n.targets[0].value) if isinstance(n.targets[0].value, ast.Name) else ""
        else:
            continue
        if name in shared:
            yield Hazard("mutable_global", n.lineno, name)


_CONTAINERS = ("dict", "list", "set", "defaultdict", "OrderedDict")
_ADDS = ("append", "extend", "setdefault", "add", "update", "insert")

# ----------
# Generation, rewards and weight updates of an engine.

_STOPS = ("stop", "stop_strings", "stop_sequences", "stop_words", "until", "stop_str")
_LOADS = frozenset({"load_weights", "update_weights", "load_state_dict", "update_named_param", "collective_rpc",
                    "update_weights_from_tensor", "sync_weights", "set_weights", "update_weight"})  # fmt: skip
_COPIES = frozenset({"clone", "deepcopy", "save", "contiguous", "cpu"})


@detects("stop_string_generic", needs=("generates",))
def stops(code: Code, project: Project) -> Iterator[Hazard]:
    """A stop string that is a plain word, which an answer may well contain."""
    for call in code.syntax.calls:
        for argument in call.keywords:
            if argument.arg in _STOPS and not last(call.func).endswith("Stopping"):
                yield from _plain_words(argument.value)
    for n in code.syntax.every(ast.Assign):
        if any(last(t).lower() in _STOPS for t in n.targets):
            yield from _plain_words(n.value)
    for n in code.syntax.every(ast.Dict):
        for key, value in zip(n.keys, n.values, strict=True):
            if constant(key) in _STOPS:
                yield from _plain_words(value)


def _plain_words(value: ast.expr) -> Iterator[Hazard]:
    listed = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    for element in listed:
        word = constant(element)
        if isinstance(word, str) and re.fullmatch(r"[A-Za-z]{2,14}", word):
            yield Hazard("stop_string_generic", element.lineno, word)


# What is left of a pattern that looks for bare numbers: nothing. `#### (\\d+)` keeps its marks.
_NUMBER_PARTS = re.compile(r"\\[dDsSbBwW.$]|\[[^\]]*\]|\(\?[:=!<]*|[()?*+{},|.$^\s\d-]")


@detects("regex_extraction_last_number")
def extraction(code: Code, project: Project) -> Iterator[Hazard]:
    """The last number of a completion counts as its answer, whatever it is."""
    if not code.mentions("findall"):
        return
    s = code.syntax
    for function in s.functions:
        if not any(
            isinstance(n, ast.Call) and last(n.func) == "findall" and _bare_numbers(s, n) for n in walk(function)
        ):
            continue
        for n in walk(function):
            end = n.slice if isinstance(n, ast.Subscript) else None
            rest = isinstance(n, ast.Tuple | ast.List) and len(n.elts) == 2 and isinstance(n.elts[0], ast.Starred)
            if rest or (isinstance(end, ast.UnaryOp) and constant(end.operand) == 1):
                yield Hazard("regex_extraction_last_number", getattr(n, "lineno", function.lineno), function.name)
                break


def _bare_numbers(s: Syntax, search: ast.Call) -> bool:
    """Whether a search is for numbers, with nothing around them."""
    given: list[ast.expr] = [*search.args]
    if (owner := receiver(search)) is not None and isinstance(made := s.origin(owner, search), ast.Call):
        given += made.args
    patterns = [str(p) for g in given if isinstance(p := constant(s.origin(g, search)), str)]
    return any((r"\d" in p or "0-9" in p) and not _NUMBER_PARTS.sub("", p) for p in patterns)


@detects("unmerge_before_load")
def unmerged(code: Code, project: Project) -> Iterator[Hazard]:
    """Weights are taken while an adapter is merged, the adapter is taken out, and only then they are loaded.

    A state dict holds the live tensors: unmerging changes them back.
    """
    if not code.mentions("unmerge_adapter"):
        return
    for function in code.syntax.functions:
        calls = sorted((n for n in walk(function) if isinstance(n, ast.Call)), key=lambda c: (c.lineno, c.col_offset))
        merges = [c for c in calls if last(c.func) == "merge_adapter"]
        unmerges = [c for c in calls if last(c.func) == "unmerge_adapter"]
        for merge in merges:
            unmerge = next((c for c in unmerges if c.lineno > merge.lineno), None)
            if unmerge is None:
                continue
            between = [c for c in calls if merge.lineno < c.lineno <= unmerge.lineno]
            taken = [c for c in between if last(c.func) == "state_dict"]
            if not taken or any(last(c.func) in _COPIES | _LOADS for c in between):
                continue
            for load in calls:
                if load.lineno > unmerge.lineno and last(load.func) in _LOADS:
                    yield Hazard("unmerge_before_load", unmerge.lineno, function.name)
                    yield Hazard("unmerge_before_load", load.lineno, last(load.func))


@detects("request_order")
def asleep(code: Code, project: Project) -> Iterator[Hazard]:
    """An engine is put to sleep and gets new weights before it is woken."""
    if not code.mentions("sleep", "release_memory"):
        return
    for function in code.syntax.functions:
        sleeping = 0
        for call in sorted(
            (n for n in walk(function) if isinstance(n, ast.Call)), key=lambda c: (c.lineno, c.col_offset)
        ):
            said = _request(call)
            if re.search(r"wake_?up|resume_memory", said):
                sleeping = 0
            elif re.search(r"(^|/|\.)sleep$|release_memory", said) and not said.startswith(("time.", "asyncio.")):
                sleeping = call.lineno
            elif sleeping and re.search(r"update_weight|load_weights|update_named_param|weight_update", said):
                yield Hazard("request_order", sleeping, "sleep")
                yield Hazard("request_order", call.lineno, said.rsplit("/", 1)[-1].rsplit(".", 1)[-1])


def _request(call: ast.Call) -> str:
    """What a call asks for: the end of a URL that it posts to, else its own name."""
    if last(call.func) in ("post", "get", "put", "request"):
        for argument in call.args:
            text = "".join(str(constant(n)) for n in walk(argument) if isinstance(n, ast.Constant))
            if "/" in text:
                return text.split("?")[0]
    return dotted(call.func) if receiver(call) is not None else ""


@detects("reward_errors_swallowed", "reward_returns_nothing")
def rewards(code: Code, project: Project) -> Iterator[Hazard]:
    """Reward functions that turn their own errors into a score, or give none on some path."""
    for function in code.syntax.functions:
        if not re.search(r"reward|score_fn|compute_score|grade|verif", function.name, re.IGNORECASE):
            continue
        inside = [n for n in walk(function) if isinstance(n, ast.ExceptHandler | ast.Call)]
        for n in inside:
            caught = isinstance(n, ast.ExceptHandler) and catches_all(n) and any(map(_scores, walk(n)))
            if caught or (isinstance(n, ast.Call) and _suppresses(n)):
                yield Hazard("reward_errors_swallowed", n.lineno, function.name)
        if _returns(function) and _falls_through(function.body):
            yield Hazard("reward_returns_nothing", function.lineno, function.name)


def _suppresses(call: ast.Call) -> bool:
    return last(call.func) == "suppress" and bool({"Exception", "BaseException"} & names(call))


def _scores(n: ast.AST) -> bool:
    """Whether a statement goes on without the error: with a score, or with nothing."""
    set_to = isinstance(n, ast.Assign) and isinstance(constant(n.value), int | float)
    return set_to or isinstance(n, ast.Return | ast.Pass | ast.Continue)


def _falls_through(body: list[ast.stmt]) -> bool:
    """Whether a block may come to its end without a return."""
    if not body:
        return True
    end = body[-1]
    if isinstance(end, ast.If):
        return _falls_through(end.body) or _falls_through(end.orelse)
    if isinstance(end, ast.Try):
        tried = _falls_through(end.orelse or end.body) or any(_falls_through(h.body) for h in end.handlers)
        return tried and _falls_through(end.finalbody)
    if isinstance(end, ast.With | ast.AsyncWith):
        return _falls_through(end.body)
    if isinstance(end, ast.Match):
        return any(_falls_through(c.body) for c in end.cases)
    endless = isinstance(end, ast.While) and constant(end.test) is True
    return not (endless or isinstance(end, ast.Return | ast.Raise))


def _returns(function: Function) -> bool:
    return any(isinstance(n, ast.Return) and n.value is not None for n in walk(function, False)) and not (
        {"yield"} & names(function)
    )
