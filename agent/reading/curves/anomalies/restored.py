"""What a resume took over, by the code that was reached: the lines that it printed, and the states that it loaded.

A program says in its own words that it goes on from a save. Its words are known by where they stand: beside the calls
that load the optimizer's state or the counter of steps. Who loads weights alone begins anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...run.files import Line, RunFile
from ...run.lines import segments, strip
from ...run.program.statements import Printed, Statement
from ...run.program.syntax import constant, dotted, last, receiver, walk

if TYPE_CHECKING:
    from ...run.workspace import Workspace

_LOADS = ("load_state_dict", "load_state", "load_checkpoint", "restore")
_PARTS = (
    ("optimizer", re.compile(r"(?i)opt(?!ion)|adam|sgd")),
    ("scheduler", re.compile(r"(?i)sched|warm|plan|lr|cosine|decay")),
    ("loss scaler", re.compile(r"(?i)scaler|amp")),
    ("data position", re.compile(r"(?i)load(?:er)?$|sampler|data|stream|batches")),
    ("averaged weights", re.compile(r"(?i)ema|swa|averag")),
)
_RNG = frozenset({"set_rng_state", "set_rng_state_all", "setstate"})
_COUNTER = re.compile(r"(?i)(?:^|_)(?:steps?|iter(?:ation)?s?(?:_num)?|epochs?|updates?|num_updates)$")
_COUNTED = re.compile(r"(?i)step|iter|epoch|update|first|start|begin|done|at\b")
_WHOLE = re.compile(r"\s*(\d{1,12})\s*$")
_LOG = 64 << 20  # bytes
_NEAR = 3  # lines
_MOST = 50  # resumes of one log


@dataclass(slots=True)
class Restoring:
    """A stretch of code that takes over the state of a training: its file and lines, and what it loads, by line."""

    file: str
    first: int
    last: int
    parts: dict[str, int] = field(default_factory=dict)

    def holds(self, statement: Statement) -> bool:
        return statement.file == self.file and self.first <= statement.line <= self.last


@dataclass(frozen=True, slots=True)
class Resumed:
    """A line of a log that such a stretch printed, and the step that it names."""

    file: RunFile
    line: Line
    step: float | None
    by: Restoring


def resumed_by_code(ws: Workspace) -> list[Resumed]:
    """The resumes that the logs' own programs tell of; looked for once."""
    return ws.memo("resumed by code", lambda: list(_resumed(ws)))


def _resumed(ws: Workspace) -> Iterator[Resumed]:
    for program in ws.ran.programs:
        stretches = list(_stretches({n: t for n in program.reached if (t := ws.ran.trees.get(n)) is not None}))
        beside = [
            (s, by) for s in ws.ran.printed(program).statements for by in [_around(s, stretches)] if by is not None
        ]
        if not beside:
            continue
        printed, of = Printed(s for s, _ in beside), {id(s): by for s, by in beside}
        for file in (f for f in ws.files if f.name in program.logs and f.size <= _LOG):
            count = 0
            for line in ws.lines(file):
                for _, piece in segments(line.data):
                    match = printed.of(strip(piece[:2000].decode(errors="replace")).body)
                    if match is None or count >= _MOST or ws.ran.statement(file, strip(line.text).body) is None:
                        continue
                    count += 1
                    pairs = zip(match.statement.expressions, match.values, strict=False)
                    steps = [float(m[1]) for e, v in pairs if _COUNTED.search(e) and (m := _WHOLE.match(v))]
                    yield Resumed(file, line, steps[0] if steps else None, of[id(match.statement)])


def _around(statement: Statement, stretches: list[Restoring]) -> Restoring | None:
    """The narrowest stretch that a statement stands in."""
    return min((s for s in stretches if s.holds(statement)), key=lambda s: s.last - s.first, default=None)


def _stretches(trees: dict[str, ast.Module]) -> Iterator[Restoring]:
    """Branches and functions that load the state of a training, and branches that call such a function."""
    functions: dict[str, Restoring] = {}
    blocks = [b for name, tree in trees.items() for b in _blocks(tree, name)]
    for block, node in blocks:
        _load(block, node)
    own = [(b, n) for b, n in blocks if _takes_over(b)]
    for block, node in own:
        if isinstance(node, ast.FunctionDef) and not _trains(node):
            functions[node.name] = block
        if any(_within(other, block) for other, _ in own):
            continue
        if isinstance(node, ast.FunctionDef):  # a whole program may be one function
            lines = block.parts.values()
            block = Restoring(block.file, min(lines) - _NEAR, max(lines) + _NEAR, block.parts)
        yield block
    for block, node in blocks:
        calls = (last(n.func) for n in walk(node) if isinstance(n, ast.Call))
        called = next((functions[name] for name in calls if name in functions), None)
        if called is not None and not isinstance(node, ast.FunctionDef) and not block.parts:
            yield Restoring(block.file, block.first, block.last, called.parts)


def _trains(node: ast.AST) -> bool:
    """Whether a function makes the steps itself: who calls it trains, and `model.train()` is no call of it."""
    return any(isinstance(n, ast.Call) and last(n.func) in ("backward", "zero_grad") for n in walk(node))


def _within(inner: Restoring, outer: Restoring) -> bool:
    return inner is not outer and inner.file == outer.file and outer.first <= inner.first and inner.last <= outer.last


def _blocks(tree: ast.Module, name: str) -> Iterator[tuple[Restoring, ast.AST]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.FunctionDef | ast.Try):
            body = node.body[-1]
            yield Restoring(name, node.lineno, body.end_lineno or body.lineno), node


def _load(block: Restoring, node: ast.AST) -> None:
    """Note what a block loads."""
    for n in walk(node):
        line = getattr(n, "lineno", block.first)
        if not block.first <= line <= block.last:
            continue
        if isinstance(n, ast.Call) and last(n.func) in _LOADS:
            held = dotted(receiver(n))
            part = next((name for name, pattern in _PARTS if pattern.search(held.rpartition(".")[2])), "model")
            block.parts.setdefault(part, line)
        elif isinstance(n, ast.Call) and last(n.func) in _RNG:
            block.parts.setdefault("random state", line)
        elif isinstance(n, ast.Assign) and _counter(n.value):
            block.parts.setdefault("step", line)


def _counter(value: ast.expr) -> bool:
    """Whether a value is a count that was saved: `state["step"]`, `ckpt.get("epoch", 0) + 1`."""
    keys = [constant(n.slice) for n in walk(value) if isinstance(n, ast.Subscript)]
    keys += [constant(n.args[0]) for n in walk(value) if isinstance(n, ast.Call) and last(n.func) == "get" and n.args]
    return any(isinstance(k, str) and _COUNTER.search(k) for k in keys)


def _takes_over(block: Restoring) -> bool:
    return "optimizer" in block.parts or ("step" in block.parts and "model" in block.parts)
