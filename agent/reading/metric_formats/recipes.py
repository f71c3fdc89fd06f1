"""Lines of one wording, read once with care and from then on by one expression.

Two lines have the same wording when they are equal without their digits. What a wording means does not change, so
that a wording without metrics is passed over at once and one with metrics is matched whole: text as it stands,
numbers where they were.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..metric_names import Meaning
from .engines import is_status, status
from .said import Reading
from .stems import may_measure
from .text import NUMBER, read_line

_DIGITS = b"0123456789"
_KEPT = 20_000  # wordings remembered
_RECIPES = 512  # of those with metrics, which cost an expression each
_WANTED = rb"([-+]?[0-9][0-9.,]*(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9]+|[-+]?[nNiI][a-zA-Z]{2,7})"
_PASSED = rb"[-+0-9.,eE]+"


@dataclass(frozen=True)
class _Recipe:
    pattern: re.Pattern[bytes]
    values: list[tuple[int, Meaning, str]]  # group, meaning, raw name
    step: int | None
    epoch: int | None
    rank: int | None


class Wordings:
    """Remembers the wordings of one file."""

    def __init__(self) -> None:
        self._empty: set[bytes] = set()
        self._recipes: dict[bytes, _Recipe | None] = {}

    def read(self, line: bytes) -> Reading | None:
        """What a line says; of a known wording without the places of its numbers."""
        if is_status(line):  # digits amid the line tell whose it is
            return status(line)
        wording = line.translate(None, _DIGITS)
        if wording in self._empty:
            return None
        recipe = self._recipes.get(wording)
        if recipe is not None and (match := recipe.pattern.match(line)):
            return _by_recipe(recipe, match)
        reading = read_line(line) if may_measure(line) else None
        if reading is None:
            if len(self._empty) < _KEPT:
                self._empty.add(wording)
        elif wording not in self._recipes and len(self._recipes) < _KEPT:
            self._recipes[wording] = None  # a wording that comes a second time is worth its expression
        elif recipe is None and len(self._recipes) < _RECIPES:
            self._recipes[wording] = _recipe(line, reading)
        return reading


def _by_recipe(recipe: _Recipe, match: re.Match[bytes]) -> Reading:
    reading = Reading(rank=recipe.rank)
    if recipe.step is not None:
        reading.step = _number(match[recipe.step])
    if recipe.epoch is not None:
        reading.epoch = _number(match[recipe.epoch])
    for group, meant, raw in recipe.values:
        reading.values.append((meant, raw, _number(match[group]) * meant.factor, 0, 0))
    return reading


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        try:
            return float(text.replace(b",", b""))
        except ValueError:
            return float("nan")


def _recipe(line: bytes, reading: Reading) -> _Recipe | None:
    """The expression of a line's wording; None for progress bars and coloured lines, which stay with the reader."""
    if b"\x1b" in line or not reading.learnable or reading.total is not None:
        return None
    if any(m.metric == "bar_step_time" for m, *_ in reading.values):
        return None
    wanted = {start: (meant, raw) for meant, raw, _, start, _ in reading.values}
    parts: list[bytes] = []
    values: list[tuple[int, Meaning, str]] = []
    step = epoch = None
    at = groups = 0
    first = reading.start
    parts.append(re.escape(line[:first]))
    at = first
    passed = False
    for m in NUMBER.finditer(line, first):
        literal = line[at : m.start()]
        takes = m.start() in wanted or m.span() in (reading.step_span, reading.epoch_span)
        if not takes and not any(c in _DIGITS for c in m[0]):
            continue  # the letters `nan` or `inf` in running text
        parts.append(re.escape(literal))
        if takes:
            groups += 1
            parts.append(_WANTED)
            if m.start() in wanted:
                values.append((groups, *wanted[m.start()]))
            elif m.span() == reading.step_span:
                step = groups
            else:
                epoch = groups
        elif literal or not passed:
            parts.append(_PASSED)
        passed, at = not takes, m.end()
    parts.append(re.escape(line[at:]))
    if len(values) != len(wanted):
        return None
    return _Recipe(re.compile(b"".join(parts) + rb"\Z"), values, step, epoch, reading.rank)
