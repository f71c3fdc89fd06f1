"""What a printed number is, by the expression that the program printed: which loss, of training or of an evaluation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

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
_HELD = frozenset(
    {"val", "valid", "validation", "validate", "test", "eval", "evaluate", "evaluation", "dev", "heldout"}
)
_TRAIN = frozenset({"train", "training", "trn"})
_KEPT_APART = frozenset({"val", "valid", "validation", "validations", "eval", "evals", "evaluation", "evaluations"})
_OF_HELD = {"loss": "eval_loss", "perplexity": "eval_perplexity", "accuracy": "eval_accuracy", "reward": "eval_reward"}
_OF_TRAIN = {held: own for own, held in _OF_HELD.items()}


def explain(ran: Ran, file: RunFile, series: Iterable[Series]) -> None:
    """Set the expression of each curve of a log whose statement is known, and correct what its label did not tell."""
    if ran.of(file) is None:
        return
    for s in list(series)[:_EACH]:
        at = int(s.finite.argmax())
        line = _line(file, int(s.lines[at]), int(s.offsets[at]))
        for _, piece in segments(line.data):
            match = ran.statement(file, strip(piece.decode(errors="replace")).body)
            found = _expression(match, float(s.values[at])) if match is not None else None
            if match is not None and found is not None:
                s.expression = found
                tree = ran.trees.get(match.statement.file)
                s.metric = _metric(s.metric, found, _function(tree, match.statement.line))
                break


def by_file_name(file: RunFile, series: Iterable[Series]) -> None:
    """What stands in `validations.txt` or `eval.csv` is of evaluations, where no statement tells more."""
    words = {w.lower() for w in _WORD.findall(file.path.name)}
    if words & _KEPT_APART and not words & _TRAIN:
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


def _function(tree: ast.Module | None, line: int) -> str:
    """The name of the innermost function around a line."""
    found = [
        n
        for n in (ast.walk(tree) if tree is not None else ())
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.lineno <= line <= (n.end_lineno or n.lineno)
    ]
    return max(found, key=lambda n: n.lineno).name if found else ""


def _metric(metric: str, expression: str, function: str) -> str:
    """The metric, of the mode that its expression names, or else the function that prints it."""
    for source in (expression, function):
        words = {w.lower() for part in _WORD.findall(source) for w in re.sub(r"(?<=[a-z])(?=[A-Z])", " ", part).split()}
        if words & _HELD and not words & _TRAIN:
            return _OF_HELD.get(metric, metric)
        if words & _TRAIN and not words & _HELD and source is expression:
            return _OF_TRAIN.get(metric, metric)
    return metric
