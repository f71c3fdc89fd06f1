"""Rates whose unit alone says what they count: `4859 tokens/s`, `2240 customers/s 560 steps/s`, `1.4 ms/step`."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .files import Line, RunFile
from .series import Series

if TYPE_CHECKING:
    from ..workspace import Workspace

_BYTES = 32 << 20  # of one log
_FEWEST = 3  # lines
_HINT = re.compile(rb"\d ?[A-Za-z]{2,20}/s")
_RATE = re.compile(r"(?P<n>\d[\d,]*(?:\.\d+)?)\s?(?P<what>[A-Za-z]{2,20})/s(?:ec(?:ond)?)?\b")
_COUNT = re.compile(r"(?P<n>\d[\d,]*)\s(?P<what>[A-Za-z]{2,20})\b(?!/)")
_SECONDS = re.compile(r"(?<![\w.])(?P<n>\d+(?:\.\d+)?)\s?s(?:ec(?:onds)?)?\b(?!/)")
_STEPS = frozenset(
    {"it", "its", "iter", "iters", "iterations", "step", "steps", "batch", "batches", "update", "updates"}
)
_AMOUNTS = re.compile(r"(?i)^(?:[kmgt]?i?b(?:ytes?|its?)?|[kmgtp]?flops?|bytes|ops|io|req\w*|calls?|files?|pages?)$")
_ELSEWHERE = re.compile(r"(?i)\b(?:eval\w*|valid\w*|test(?:ing)?|download\w*|tokeni[sz]\w*|prompt|map|filter)\b")


@dataclass(frozen=True, slots=True)
class Pace:
    """What one log says of its pace: samples (or tokens) a second, and steps a second where it prints both."""

    file: RunFile
    what: str
    line: Line
    rate: float
    steps: float | None
    series: Series

    @property
    def each(self) -> float | None:
        """Samples of one step."""
        return self.rate / self.steps if self.steps else None


@dataclass(frozen=True, slots=True)
class Slowing:
    """A rate of generation that falls as what is generated grows longer: `ratio` of the last to the first."""

    file: RunFile
    line: Line
    ratio: float


def paces_told(ws: Workspace) -> list[Pace]:
    """The pace of each log that prints rates with their units."""
    return ws.memo("rates", lambda: [p for f in ws.by_role("log", "other") if (p := _pace(ws, f)) is not None])


def _lines(ws: Workspace, file: RunFile) -> list[Line]:
    if file.size > _BYTES:
        return []
    return [line for line in ws.lines(file) if len(line.data) < 2000 and _HINT.search(line.data)]


def _pace(ws: Workspace, file: RunFile) -> Pace | None:
    rows: list[tuple[Line, dict[str, float]]] = []
    for line in _lines(ws, file):
        if not _ELSEWHERE.search(line.text):
            rows.append((line, {m["what"].lower(): _number(m["n"]) for m in _RATE.finditer(line.text)}))
    counts = Counter(what for _, rates in rows for what in rates if what not in _STEPS and not _AMOUNTS.match(what))
    if not counts or counts.most_common(1)[0][1] < _FEWEST:
        return None
    what = counts.most_common(1)[0][0]
    same = [(line, rates) for line, rates in rows if rates.get(what)]
    if len(same) < _FEWEST:
        return None
    values = np.array([rates[what] for _, rates in same])
    steps = [next((n for k, n in rates.items() if k in _STEPS and n), None) for _, rates in same]
    known = [n for n in steps if n]
    series = Series(
        "throughput", f"{what}/s", file, np.arange(1.0, len(same) + 1), values,
        np.array([line.number for line, _ in same]), np.array([line.offset for line, _ in same]),
        np.ones(len(same), dtype=bool), False, len(same), rank=file.rank, variant=file.variant,
    )  # fmt: skip
    step_rate = float(np.median(known)) if len(known) == len(same) else None
    return Pace(file, what, same[-1][0], float(np.median(values)), step_rate, series)


def slowing(ws: Workspace) -> list[Slowing]:
    """Logs in which `N notes | t s | R notes/s` tell that longer outputs come at ever lower rates."""
    found = []
    for file in ws.by_role("log", "other"):
        if file.good:
            continue
        points = [p for line in _lines(ws, file) if (p := _generated(line)) is not None]
        points.sort(key=lambda p: p[0])
        if len(points) >= _FEWEST and points[-1][0] >= 4 * points[0][0]:
            ratio = points[-1][1] / points[0][1]
            if ratio < 0.6 and points[-1][1] == min(rate for _, rate, _ in points):
                found.append(Slowing(file, points[-1][2], round(ratio, 3)))
    return found


def _generated(line: Line) -> tuple[float, float, Line] | None:
    """Length and rate of one output: the line also names the seconds that this length took."""
    rates = [(m["what"].lower(), _number(m["n"])) for m in _RATE.finditer(line.text)]
    for what, rate in rates:
        if what in _STEPS or _AMOUNTS.match(what) or rate <= 0:
            continue
        lengths = [_number(m["n"]) for m in _COUNT.finditer(line.text) if m["what"].lower() == what]
        took = [float(m["n"]) for m in _SECONDS.finditer(line.text)]
        for length in lengths:
            if length > 0 and any(t > 0 and abs(length / t - rate) <= 0.05 * rate for t in took):
                return length, rate, line
    return None


def _number(text: str) -> float:
    return float(text.replace(",", ""))
