"""Data pipelines: worker processes, files opened for each item, errors that swallow samples."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..syntax import Function, Syntax, constant, dotted, keyword, last, walk
from .project import Code, Hazard, Project, detects

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
    """Batches are made in the training process itself."""
    for call in code.syntax.calls_of("DataLoader"):
        workers = keyword(call, "num_workers")
        spread = any(k.arg is None for k in call.keywords)
        if (workers is None and not spread and call.args) or constant(workers) == 0:
            yield Hazard("loader_workers_zero", (workers or call).lineno, 0)


@detects("open_in_getitem", "data_errors_swallowed", "mutable_global")
def items(code: Code, project: Project) -> Iterator[Hazard]:
    """What happens for every single item."""
    s = code.syntax
    shared = {
        last(t) for tree in s.trees for n in tree.body
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Dict | ast.List) for t in n.targets
    }  # fmt: skip
    for function in s.functions:
        if function.name in ("__getitem__", "forward", "training_step"):
            yield from _grows(function, shared)
        if function.name not in ("__getitem__", "__iter__", "collate_fn"):
            continue
        for n in walk(function):
            if isinstance(n, ast.Call) and dotted(n.func) in _HEAVY_OPENS and function.name == "__getitem__":
                yield Hazard("open_in_getitem", n.lineno, dotted(n.func))
            elif isinstance(n, ast.ExceptHandler) and catches_all(n):
                yield Hazard("data_errors_swallowed", n.lineno, function.name)


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Whether any error ends here unseen."""
    everything = handler.type is None or last(handler.type) in ("Exception", "BaseException")
    return everything and not any(isinstance(b, ast.Raise) for b in walk(handler))


def _grows(function: Function, shared: set[str]) -> Iterator[Hazard]:
    """Module-level containers that a function adds to."""
    for n in walk(function):
        if isinstance(n, ast.Call) and last(n.func) in ("append", "extend") and isinstance(n.func, ast.Attribute):
            name = last(n.func.value) if isinstance(n.func.value, ast.Name) else ""
        elif isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript):
            name = last(n.targets[0].value) if isinstance(n.targets[0].value, ast.Name) else ""
        else:
            continue
        if name in shared:
            yield Hazard("mutable_global", n.lineno, name)
