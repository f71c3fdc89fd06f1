"""What a printed number is: by the expression that the program printed, or by the framework whose line it stands in."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from ....core.own_files import KNOWLEDGE, read_table
from ...run.files import Line, RunFile, open_regular
from ...run.lines import segments, strip
from ..series import Series

if TYPE_CHECKING:
    from ...run.program.statements import Match
    from ...run.what_ran import Ran

_HEAD = 1 << 14  # bytes of a line
_EACH = 64  # series of one file
_WORD = re.compile(r"[A-Za-z]+")
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)", re.IGNORECASE)
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_HELD = frozenset(
    {"val", "valid", "validation", "validate", "test", "eval", "evaluate", "evaluation", "dev", "heldout"}
    | {"evaluator", "validator", "tester"}
)
_TRAIN = frozenset({"train", "training", "trn"})
_KEPT_APART = frozenset({"val", "valid", "validation", "validations", "eval", "evals", "evaluation", "evaluations"})
_MEASURED = frozenset({"loss", "losses", "metrics", "results", "result", "scores", "accuracy"})
_OF_HELD = {"loss": "eval_loss", "perplexity": "eval_perplexity", "accuracy": "eval_accuracy", "reward": "eval_reward"}
_OF_TRAIN = {held: own for own, held in _OF_HELD.items()}


def explain(ran: Ran, file: RunFile, series: Iterable[Series]) -> None:
    """Set what each curve of a log is, and correct what its label did not tell.

    A statement of the program gives the expression, the line of a framework over which steps and ranks it is taken.
    """
    for s in list(series)[:_EACH]:
        at = int(s.finite.argmax())
        line = _line(file, int(s.lines[at]), int(s.offsets[at]))
        for _, piece in segments(line.data):
            body = strip(piece.decode(errors="replace")).body
            match = ran.statement(file, body)
            if match is not None:
                s.expression = _expression(match, float(s.values[at])) or ""
                tree = ran.trees.get(match.statement.file)
                s.metric = _metric(s.metric, s.expression, _around(tree, match.statement.line))
            if s.expression:
                break
            if match is None and (meaning := of_framework(body, s.raw)):
                s.meaning = meaning
                break


def of_framework(body: str, name: str) -> str:
    """What a framework takes a number over, by the line that it prints it in; empty where no line is known.

    Args:
        body: the line without its prefixes.
        name: of the number, as it stands there.
    """
    for line, numbers in _lines():
        if line.search(body):
            return next((told for pattern, told in numbers if pattern.fullmatch(name.strip())), "")
    return ""


@cache
def _lines() -> tuple[tuple[re.Pattern[str], tuple[tuple[re.Pattern[str], str], ...]], ...]:
    """The rows of `printed_numbers.yaml`."""
    rows = read_table(KNOWLEDGE / "printed_numbers.yaml")["lines"]
    return tuple((re.compile(r["line"]), tuple((re.compile(n, re.I), told) for n, told in r["numbers"])) for r in rows)


def by_file_name(file: RunFile, series: Iterable[Series]) -> None:
    """What stands in `validations.txt` or `test_losses.log` is of evaluations, where no statement tells more.

    A `test.log` may be of a training that is tried out.
    """
    words = {w.lower() for w in _WORD.findall(file.path.name)}
    if (words & _KEPT_APART or ("test" in words and words & _MEASURED)) and not words & _TRAIN:
        for s in series:
            s.metric = s.metric if s.expression else _OF_HELD.get(s.metric, s.metric)


def _line(file: RunFile, number: int, offset: int) -> Line:
    with open_regular(file.path) as stream:
        stream.seek(offset)
        return Line(number, offset, (stream.read(_HEAD) or b"").partition(b"\n")[0])


def _expression(match: Match, value: float) -> str | None:
    """The one expression that came to a value."""
    found = [
        source
        for source, text in zip(match.statement.expressions, match.values, strict=False)
        if any(_is(m[0], value) for m in [_NUMBER.match(text.strip())] if m is not None)
    ]
    return found[0] if len(set(found)) == 1 else None


def _is(text: str, value: float) -> bool:
    number = float(text.replace(",", ""))
    return number == value or abs(number - value) <= 1e-9 * abs(value)


def _around(tree: ast.Module | None, line: int) -> str:
    """The name of the innermost function around a line; of what is called by the name of its class, the class's."""
    found = [
        n
        for n in (ast.walk(tree) if tree is not None else ())
        if isinstance(n, _NAMED) and n.lineno <= line <= (n.end_lineno or n.lineno)
    ]
    named = [n.name for n in sorted(found, key=lambda n: -n.lineno) if not n.name.startswith("__")]
    return named[0] if named else ""


def _metric(metric: str, expression: str, function: str) -> str:
    """The metric, of the mode that its expression names, or else the function or class that prints it."""
    for source in (expression, function):
        words = {w.lower() for part in _WORD.findall(source) for w in re.sub(r"(?<=[a-z])(?=[A-Z])", " ", part).split()}
        if words & _HELD and not words & _TRAIN:
            return _OF_HELD.get(metric, metric)
        if words & _TRAIN and not words & _HELD and source is expression:
            return _OF_TRAIN.get(metric, metric)
    return metric
