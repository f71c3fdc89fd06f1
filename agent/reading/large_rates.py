"""Optimizers whose usual learning rate is large: a rate that would break Adam is ordinary for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .files import Line, RunFile
from .settings import Settings

if TYPE_CHECKING:
    from ..workspace import Workspace

# Name of an optimizer -> the largest rate that is usual for it.
USUAL = {
    "scaledadam": 0.1, "eve": 0.01, "sgd": 0.2, "momentum": 0.2, "nesterov": 0.2, "adafactor": 0.02, "muon": 0.1,
    "adadelta": 1.0, "adagrad": 0.1, "prodigy": 1.0, "dadaptadam": 1.0, "dadaptation": 1.0, "shampoo": 0.1,
    "lars": 10.0, "lamb": 0.02, "rmsprop": 0.01,
}  # fmt: skip
_MADE = re.compile(
    r"\b(?i:(ScaledAdam|Eve|SGD|Adafactor|Muon|Adadelta|Adagrad|Prodigy|DAdaptAdam|Shampoo|LARS|LAMB|RMSprop))\("
)
_FILES, _BYTES = 60, 200_000


def large_rates(ws: Workspace, reading: Settings) -> Iterator[tuple[RunFile, Line, str]]:
    """Where the run names such an optimizer, and nothing it asks for is above what is usual there."""
    asked = [s for s in (*reading.asked("learning_rate"), *reading.used("learning_rate")) if not s.file.good]
    rates = [float(s.value) for s in asked if isinstance(s.value, int | float) and not isinstance(s.value, bool)]
    for file, line, name in _named(ws, reading):
        bound = USUAL.get(re.sub(r"[^a-z]", "", name.lower().rpartition(".")[2]))
        if bound is not None and all(rate <= bound for rate in rates):
            yield file, line, name
            return


def _named(ws: Workspace, reading: Settings) -> Iterator[tuple[RunFile, Line, str]]:
    for s in (*reading.asked("optimizer"), *reading.used("optimizer")):
        if not s.file.good:
            yield s.file, s.line, str(s.value)
    for file in [f for f in ws.by_role("code") if f.size < _BYTES and not f.good][:_FILES]:
        for line in ws.lines(file):
            if m := _MADE.search(line.text):
                yield file, line, m[1]
