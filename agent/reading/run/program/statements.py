"""The statements of a program that print, as templates: which of them printed a line, and what its numbers are.

found = statements(tree, "train.py")              # print, loggers, progress bars, writes to a stream
printed = Printed(found)
printed.of("iter 30: loss 2.31, time 12.00ms")    # the statement, and the text of each expression in it
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

_LETTERS = 4  # of fixed text, the fewest by which a statement is known
_PIECES = 40
_LOGS = frozenset(
    {"log", "log_message", "write", "set_description", "set_description_str", "set_postfix_str", "secho", "echo"}
)
_LEVELS = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "deprecation"})
# What a wrapper says beside the level: `rank_zero_warn`, `warning_once`, `info_rank0`, `log_dist`, `termwarn`.
_BESIDE = frozenset(
    {"log", "logger", "rank", "zero", "0", "on", "all", "ranks", "main", "once", "only", "advice", "dist"}
)
_PERCENT = re.compile(r"%(?:\(\w+\))?[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?[diouxXeEfFgGcrsa]|%%")
_BRACES = re.compile(r"\{\{|\}\}|\{[^{}]*\}")
_NUMBER = r"[-+]?(?:\d[\d,_]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that prints.

    `pieces` are its fixed texts and, between them, the source of each expression: `("iter ", None)`, `(None, "it")`.
    `level` is that of a logger, empty for print.
    """

    file: str
    line: int
    pieces: tuple[tuple[str | None, str | None], ...]
    level: str = ""

    @property
    def fixed(self) -> str:
        return "".join(text or "" for text, _ in self.pieces)

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(e for _, e in self.pieces if e is not None)

    @property
    def anchor(self) -> str:
        """Its longest fixed text without outer blanks."""
        return max((_SPACES.sub(" ", t or "").strip() for t, _ in self.pieces), key=len, default="")


@dataclass(frozen=True, slots=True)
class Match:
    """A line that a statement printed, with the text that each of its expressions came to."""

    statement: Statement
    values: tuple[str, ...]

    @property
    def payload(self) -> bool:
        """Whether most of the line is text that an expression held, not words of the program."""
        free = sum(len(v) for v in self.values if not re.fullmatch(_NUMBER + r"\S{0,3}", v.strip()))
        return free > 2 * len(self.statement.fixed) and any(" " in v.strip() for v in self.values)


def statements(tree: ast.AST, file: str) -> list[Statement]:
    """Every statement of a tree that prints some fixed text."""
    found = []
    scopes = _Scopes(tree)
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        if (level := _prints(call)) is None:
            continue
        for given in scopes.arguments(call):
            pieces = tuple(_joined(given))[:_PIECES]
            if sum(c.isalpha() for text, _ in pieces for c in text or "") >= _LETTERS:
                found.append(Statement(file, call.lineno, pieces, level))
    return found


def _prints(call: ast.Call) -> str | None:
    """The level of a call that prints, `""` for print; None for any other call."""
    name = _called(call)
    return _level(name) if call.args and name else None


@cache
def _level(name: str) -> str | None:
    words = re.sub(r"^_*term(?=log$|warn$|error$)", "", name.lower()).strip("_").replace("rank0", "rank_0").split("_")
    levels = [w for w in words if w in _LEVELS]
    if len(levels) == 1 and _BESIDE.issuperset(w for w in words if w not in _LEVELS):
        return levels[0]
    if words[0] == "log" and len(words) > 1 and _BESIDE.issuperset(words):
        return "info"
    return "" if "print" in name.lower() or name in _LOGS else None


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


class _Scopes:
    """Names that a scope assigns a text to: `line = f"..."`, then `print(line)`."""

    def __init__(self, tree: ast.AST) -> None:
        self._texts: dict[str, list[ast.expr]] = defaultdict(list)
        grown = {n.target.id for n in ast.walk(tree) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AugAssign):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name) and _is_text(node.value):
                        self._texts[target.id].append(node.value)
                        if target.id in grown:
                            self._texts[target.id].append(_with_more(node.value, isinstance(node, ast.AugAssign)))

    def arguments(self, call: ast.Call) -> Iterator[list[ast.expr]]:
        """What a call prints, once for each text that a name in it is given."""
        args = list(call.args)
        name = _called(call)
        if name == "log" and len(args) > 1 and not _is_text(args[0]):
            args = args[1:]  # logger.log(level, message)
        text = args[0].value if isinstance(args[0], ast.Constant) and isinstance(args[0].value, str) else ""
        marks = len([m for m in _PERCENT.findall(text) if m != "%%"])
        if _level(name) and not marks:
            args = args[:1]  # behind a warning's text stand its category and its place
        held = self._texts.get(args[0].id, ()) if len(args) == 1 and isinstance(args[0], ast.Name) else ()
        if held:
            yield from ([text] for text in held)
        elif len(args) > 1 and marks >= len(args) - 1 and (_level(name) or name in _LOGS):
            yield [ast.copy_location(ast.BinOp(args[0], ast.Mod(), ast.Tuple(args[1:], ast.Load())), call)]
        else:
            yield args


def _with_more(text: ast.expr, before: bool) -> ast.expr:
    """A text of a name that grows: something stands behind it, or before it."""
    more = ast.Name("...", ast.Load())
    return ast.BinOp(*((more, ast.Add(), text) if before else (text, ast.Add(), more)))


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.Call):
        called = node.func
        return isinstance(called, ast.Attribute) and called.attr in ("format", "join") and _is_text(called.value)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _joined(args: list[ast.expr]) -> Iterator[tuple[str | None, str | None]]:
    for number, node in enumerate(args):
        if number:
            yield " ", None
        yield from _pieces(node)


def _pieces(node: ast.expr) -> Iterator[tuple[str | None, str | None]]:
    """Fixed texts and expressions of what is printed, in order."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value, None
    elif isinstance(node, ast.JoinedStr):
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield None, _source(part.value)
            else:
                yield from _pieces(part)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _is_text(node):
        yield from _pieces(node.left)
        yield from _pieces(node.right)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left):
        values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        yield from _filled(node.left, _PERCENT, [_source(v) for v in values])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        named = {k.arg: _source(k.value) for k in node.keywords if k.arg}
        yield from _filled(node.func.value, _BRACES, [_source(v) for v in node.args], named)
    else:
        yield None, _source(node)


def _filled(
    text: ast.expr, marks: re.Pattern[str], values: list[str], named: dict[str, str] | None = None
) -> Iterator[tuple[str | None, str | None]]:
    """The pieces of a format string: `%s` and `{}` replaced by what they are given, in order."""
    given = iter(values)
    for fixed, source in _pieces(text):
        at = 0
        for m in marks.finditer(fixed or ""):
            if m[0] in ("%%", "{{", "}}"):  # one character of text
                yield (fixed or "")[at : m.start() + 1], None
                at = m.end()
                continue
            yield (fixed or "")[at : m.start()], None
            name = re.split(r"[:!.\[]", m[0].strip("{}"))[0]
            yield None, (named or {}).get(name) or next(given, name or "?")
            at = m.end()
        if fixed:
            yield fixed[at:], None
        elif source:
            yield None, source


def _source(node: ast.AST) -> str:
    try:
        return ast.unparse(node)[:200]
    except (ValueError, RecursionError):
        return "?"


class Printed:
    """Statements made ready to be found by the lines that they print."""

    def __init__(self, found: Iterable[Statement]) -> None:
        self.statements = list(found)

    @cached_property
    def _ready(self) -> list[tuple[str, re.Pattern[str], Statement]]:
        ready = []
        for statement in sorted(self.statements, key=lambda s: -len(s.fixed)):
            for pattern, anchor in _patterns(statement):
                ready.append((anchor, pattern, statement))
        return ready

    def of(self, body: str) -> Match | None:
        """The statement that printed a line; of several that fit, the one with the most fixed text.

        Args:
            body: the line without what its surroundings put before it (`lines.strip`).
        """
        return next(iter(self.all_of(body)), None)

    def all_of(self, body: str) -> list[Match]:
        """Every statement that may have printed a line, of those with the most fixed text."""
        text = _SPACES.sub(" ", body[:2000]).strip()
        found: list[Match] = []
        for anchor, pattern, statement in self._ready if text else ():
            if found and len(statement.fixed) < len(found[0].statement.fixed):
                break
            if anchor in text and (m := pattern.match(text)):
                found.append(Match(statement, tuple(g or "" for g in m.groups())))
        return found


def lines_of(statement: Statement) -> Iterator[list[tuple[str | None, str | None]]]:
    """The pieces of each line that a statement prints, where it has fixed text of its own; blanks as one."""
    lines: list[list[tuple[str | None, str | None]]] = [[]]
    for text, source in statement.pieces:
        for number, part in enumerate((text or "").split("\n") if source is None else [None]):
            if number:
                lines.append([])
            lines[-1].append((_SPACES.sub(" ", part) if part is not None else None, source))
    for pieces in lines:
        if sum(c.isalpha() for t, _ in pieces for c in t or "") >= _LETTERS:
            yield pieces


def _patterns(statement: Statement) -> Iterator[tuple[re.Pattern[str], str]]:
    """One expression for each line that a statement prints."""
    for pieces in lines_of(statement):
        body = "".join(re.escape(t).replace("\\ ", " ?") if t is not None else "(.+?)" for t, _ in pieces)
        anchor = max((t.strip() for t, _ in pieces if t), key=len)
        try:
            # a logger's own head may hold a name or a time of any form; what print writes begins its line
            head = r"(?:^|^.{0,80}?[\s\]|:>-])" if statement.level else r"(?:^|^.{0,80}?(?:[\]|>:] ?| - ))"
            yield re.compile(rf"{head}{body.strip()}\s*$"), anchor
        except re.error:
            continue
