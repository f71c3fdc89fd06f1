"""What a program does, by its own statements: which line makes the optimizer, divides the data, prints the loss.

Facts about the program that ran, for whoever judges it: they tell what the settings act on and what is there at all.
Which calls do what is data, `knowledge/acts.yaml`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from ...core.own_files import KNOWLEDGE, read_table
from ..run.program.statements import Printed
from ..run.program.syntax import Syntax, dotted, names
from .conditions import PERHAPS, SURELY, UNTOLD
from .project import Code, Project

LONG = 100  # characters of a statement that are told
_ONE = ("optimizer", "schedule", "loss", "wrap")  # of which a run has one as a rule, and a program offers several
_LOSS = re.compile(r"(?i)loss(?!less)")


@dataclass(frozen=True, slots=True)
class Act:
    """A statement of a code file at a line (from 1): the name of what it does, what that is in words, its text."""

    name: str
    line: int
    says: str
    text: str
    node: ast.AST | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    says: str
    calls: re.Pattern[str] | None
    bare: bool  # without arguments
    compares: re.Pattern[str] | None
    strides: re.Pattern[str] | None


@cache
def _kinds() -> tuple[_Kind, ...]:
    def pattern(row: dict[str, str], key: str) -> re.Pattern[str] | None:
        return re.compile(row[key]) if key in row else None

    rows = read_table(KNOWLEDGE / "acts.yaml")["acts"]
    found = []
    for name, row in rows.items():
        calls, compares, strides = (pattern(row, key) for key in ("calls", "compares", "strides"))
        found.append(_Kind(name, row["says"], calls, bool(row.get("bare")), compares, strides))
    return tuple(found)


def acts(project: Project, printed: dict[str, Printed]) -> Iterator[tuple[Code, Act]]:
    """What the sources of programs that ran do, where their lines were reached, in the order of the sources.

    Args:
        printed: for each source of a program that ran, the statements of the program that print.
    """
    for code in project.codes:
        if code.file.name not in printed:
            continue
        every = [*_of(code.syntax), *_prints(code, printed[code.file.name])]
        state = {a: project.run.reached(code.file.name, a.line, a.node) for a in every if a.line <= len(code.lines)}
        choices = Counter(a.name for a, reached in state.items() if reached > UNTOLD)
        for act, reached in sorted(state.items(), key=lambda item: item[0].line):
            # of several optimizers, one under each condition, a run makes one
            sure = reached == SURELY or (reached == PERHAPS and choices[act.name] == 1) or act.name not in _ONE
            if reached > UNTOLD and sure:
                yield code, act


def _of(s: Syntax) -> Iterator[Act]:
    seen: set[tuple[str, int]] = set()
    for node in s.every(ast.Call, ast.Compare, ast.Slice, ast.Assign):
        for kind in _kinds():
            line = getattr(node, "lineno", 0)
            if _does(kind, node) and (kind.name, line) not in seen:
                seen.add((kind.name, line))
                yield Act(kind.name, line, kind.says, _text(node), node)


def _does(kind: _Kind, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        if kind.calls is None or not name or (kind.bare and (node.args or node.keywords)):
            return False
        return any(kind.calls.fullmatch(n) for n in (name, name.rpartition(".")[2], ".".join(name.split(".")[-2:])))
    if isinstance(node, ast.Slice):
        return kind.strides is not None and node.step is not None and any(map(kind.strides.fullmatch, names(node)))
    if isinstance(node, ast.Assign):  # `p.requires_grad = False`
        off = isinstance(node.value, ast.Constant) and node.value.value is False
        return kind.name == "freeze" and off and any(dotted(t).endswith(".requires_grad") for t in node.targets)
    words = names(node) | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    return kind.compares is not None and any(map(kind.compares.fullmatch, words))


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= LONG else f"{text[: LONG - 3]}..."


def _prints(code: Code, printed: Printed) -> Iterator[Act]:
    """Statements that print a loss: what its number is stands there."""
    for s in printed.statements:
        if s.file == code.file.name and _LOSS.search(s.fixed) and s.expressions:
            yield Act("print_loss", s.line, "prints a loss", ", ".join(s.expressions)[:LONG])
