"""Results side by side: a quantity computed in several ways, a run beside its continuation, what two logs count.

eager     21.404566                      step   original   resumed
compiled  61.734364                      21     2.3693     2.3693
                                         22     2.2105     1784.9491
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from ..run.files import Line
from ..run.lines import strip, template_of, without_escapes

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
_NAMED = re.compile(
    r"(?i)^\s*[-*|]?\s*(?P<name>(?:(?:torch|hf|pytorch)[ ._-]?)?(?:eager|compiled?|inductor|reference|ref|naive|math|"
    r"sdpa|flash(?:[ _-]?attn|[ _-]?attention)?(?:[ _-]?[234])?|cudnn|triton|liger|fused|unfused|apex|xformers|"
    r"mem(?:ory)?[ _-]?efficient|fp64|fp32|tf32|cpu|cuda|gpu))"
    r"(?P<rest>[ \w()./-]{0,40}?)\s*[:=|]?\s+(?P<value>" + _NUMBER + r")\s*$"
)
_TENSOR = re.compile(r"(?i)tensor\(\s*(" + _NUMBER + r")[^)]*\)")
_COST = re.compile(
    rb"(?i)\b(?:ms|us|sec(?:onds?)?|latency|time|speed\w*|throughput|tok(?:ens)?/s|it/s|[tg]flops?|memory|[mg]i?b)\b"
)
_APART = 12  # lines between two that belong together
_EXACT = 0.02  # relative difference that no rounding makes

_STEP = re.compile(r"(?i)^(?:step|iter(?:ation)?|global_step|batch)$")
_WHOLE = re.compile(r"(?i)orig(?:inal)?|continu(?:ous|ed)|uninterrupted|baseline|reference|expected|straight|before")
_AGAIN = re.compile(r"(?i)resum\w*|restor\w*|(?:re)?loaded|after|restart\w*|from_?(?:ckpt|checkpoint)|with_?resume")


@dataclass(frozen=True)
class Disagreement:
    """Two implementations of the same thing with different results."""

    names: tuple[str, str]
    values: tuple[float, float]
    lines: tuple[Line, Line]


@dataclass(frozen=True)
class Continuation:
    """A continued run beside the one it should equal: the row where they agree, the row where they part."""

    agrees: Line | None
    parts: Line
    step: float
    whole: float
    again: float


def disagreements(lines: Iterable[Line]) -> Iterator[Disagreement]:
    """Neighbouring lines that name two implementations and differ by more than rounding, in one block of lines."""
    block: list[tuple[str, float, Line]] = []
    costs = -_APART  # the last line that speaks of time or memory: implementations differ in those by design
    for line in lines:
        if len(line.data) > 400:
            continue
        if _COST.search(line.data):
            costs, block = line.number, []
        if line.number - costs < _APART:
            continue
        found = _NAMED.match(_TENSOR.sub(r"\1", line.text))
        if not found:
            continue
        name = " ".join(found["name"].lower().split())
        if block and (line.number - block[-1][2].number > _APART or any(n == name for n, _, _ in block)):
            yield from _within(block)
            block = []
        block.append((name, float(found["value"]), line))
    yield from _within(block)


def _within(block: list[tuple[str, float, Line]]) -> Iterator[Disagreement]:
    if len(block) < 2:
        return
    first = block[0]
    for other in block[1:]:
        a, b = first[1], other[1]
        largest = max(abs(a), abs(b))
        far = largest > 1e-6 and abs(a - b) > _EXACT * largest
        if (math.isnan(a) != math.isnan(b)) or far:
            yield Disagreement((first[0], other[0]), (a, b), (first[2], other[2]))
            return


def continuations(lines: Iterable[Line]) -> Iterator[Continuation]:
    """Tables of a run and its continuation: the first row agrees, a later one is off by more than half."""
    columns: tuple[int, int] | None = None
    agrees: Line | None = None
    done = False
    for line in lines:
        cells = line.text.split()
        if cells and _STEP.match(cells[0]):
            whole = next((i for i, c in enumerate(cells) if i and _WHOLE.fullmatch(c)), None)
            again = next((i for i, c in enumerate(cells) if i and _AGAIN.fullmatch(c)), None)
            columns = (whole, again) if whole is not None and again is not None else None
            agrees, done = None, False
            continue
        if columns is None or done:
            continue
        numbers = _numbers(cells, max(columns) + 1)
        if numbers is None:
            columns = None if cells else columns
            continue
        one, two = numbers[columns[0]], numbers[columns[1]]
        if abs(one - two) <= 1e-3 * max(abs(one), 1e-9):
            agrees = line
        elif abs(two - one) > 0.5 * max(abs(one), 1e-9):
            done = True
            yield Continuation(agrees, line, numbers[0], one, two)


def _numbers(cells: list[str], least: int) -> list[float] | None:
    """The leading numbers of a row, where there are enough of them."""
    out: list[float] = []
    for cell in cells:
        try:
            out.append(float(cell))
        except ValueError:
            break
    return out if len(out) >= least else None


# ----------
# What two runs count at their start, each in one line of one wording: 160 images here, 1400 there.

HEAD = 400  # lines of a log in which a run says what it has
_COUNTED = re.compile(
    r"(?i)\b(?:param(?:eter)?s?|weights|samples?|examples?|images?|pictures?|tokens?|rows?|records?|documents?|notes|words"
    r"|sequences?|batch(?:es)?|vocab\w*|layers?|class(?:es)?|labels?|features?|devices?|gpus?|process(?:es)?|ranks?"
    r"|workers?|threads?|world[ _]size)\b"
)
_PASSING = re.compile(
    r"(?i)\b(?:step|epoch|iter\w*|loss|acc\w*|took|time|elapsed|eta|port|pid|[kmgt]i?b|ms|sec\w*|memory|seed|saved"
    r"|per second|\w+/s)\b|\d:\d\d|\d ?s\b|https?:|%"
)
_WHOLE_NUMBER = re.compile(r"(?<![\w.,:/-])\d[\d,]{0,15}(?![\w.:/-])")


@dataclass(frozen=True)
class Counted:
    """One wording with other numbers in two logs; `a` and `b` are the lines of both."""

    wording: str
    a: Line
    b: Line


def counted_apart(one: Iterable[Line], other: Iterable[Line]) -> Iterator[Counted]:
    """Lines that both logs have once at their start, and in which a count differs."""
    first, second = _counts(one), _counts(other)
    for wording, a in first.items():
        b = second.get(wording)
        if a and b and _whole(a) != _whole(b):
            yield Counted(wording, a, b)


def _counts(lines: Iterable[Line]) -> dict[str, Line | None]:
    """By wording the line that counts something; None where it came again."""
    found: dict[str, Line | None] = {}
    for line in islice(lines, HEAD):
        text = line.text
        if len(text) < 400 and _COUNTED.search(text) and not _PASSING.search(text) and _whole(line):
            wording = template_of(line.data)
            found[wording] = None if wording in found else line
    return {wording: line for wording, line in found.items() if wording}


def _whole(line: Line) -> list[str]:
    return [
        n.replace(",", "")
        for n in _WHOLE_NUMBER.findall(strip(without_escapes(line.data).decode(errors="replace")).body)
    ]
