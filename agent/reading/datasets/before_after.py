"""Scores of one benchmark before and after training: two text files that differ in one word of their name, or rows
`name  0.78 -> 0.59`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..files import Line, RunFile

if TYPE_CHECKING:
    from ...workspace import Workspace

SIZE = 1 << 20
_BEFORE = re.compile(r"(?i)(?<![a-z])(before|base(?:line)?|orig(?:inal)?|pre|vanilla|untuned|init(?:ial)?)(?![a-z])")
_AFTER = re.compile(r"(?i)(?<![a-z])(after|tuned|finetuned|ft|sft|post|trained|merged|lora|dpo|final)(?![a-z])")
_ROW = re.compile(r"^\s*(?P<name>[A-Za-z][\w .()/,@-]{1,70}?)\s*[:=]\s*(?P<value>\d+(?:\.\d+)?) ?%?\s*$")
_ARROW = re.compile(
    r"^\s*(?P<name>[A-Za-z][\w .()/,@-]{1,70}?)\s*[:=|]?\s+(?P<before>\d+(?:\.\d+)?) ?%?"
    r"\s*(?:->|=>|\u2192)\s*(?P<after>\d+(?:\.\d+)?) ?%?\s*$"
)
_NO_SCORE = re.compile(
    r"(?i)loss|perplexity|\bppl\b|\blr\b|rate|time|memory|size|steps?\b|scale|norm|version|\bms\b|gpus?\b"
)
_LOSS = 0.1  # share of the score that is gone
_LEAST = 0.02  # of the scale, so that small scores do not count


@dataclass(frozen=True)
class Change:
    """A score before and after, each with its line."""

    name: str
    before: float
    after: float
    files: tuple[RunFile, RunFile]
    lines: tuple[Line, Line]

    @property
    def fell(self) -> bool:
        """Whether the score fell by more than noise would explain."""
        scale = 100.0 if max(self.before, self.after) > 1.0 else 1.0
        return self.before - self.after > max(_LOSS * self.before, _LEAST * scale)

    @property
    def rose(self) -> bool:
        """Whether the score rose by as much."""
        scale = 100.0 if max(self.before, self.after) > 1.0 else 1.0
        return self.after - self.before > max(_LOSS * self.before, _LEAST * scale)


def changes(ws: Workspace) -> Iterator[Change]:
    """Scores with the same name in a file of before and its counterpart of after."""
    small = [f for f in ws.files if not f.good and f.size <= SIZE and f.name.endswith((".txt", ".log", ".md", ".out"))]
    for file in small:
        rows = list(_arrows(ws, file))
        if len(rows) >= 2:  # one alone may be anything
            yield from rows
    earlier = {_BEFORE.sub("*", f.name, count=1): f for f in small if _BEFORE.search(f.name)}
    for file in small:
        match = _AFTER.search(file.name)
        other = earlier.get(_AFTER.sub("*", file.name, count=1)) if match else None
        if other is None or other is file:
            continue
        old, new = scores(ws, other), scores(ws, file)
        for name in old.keys() & new.keys():
            yield Change(name, old[name][0], new[name][0], (other, file), (old[name][1], new[name][1]))


def _arrows(ws: Workspace, file: RunFile) -> Iterator[Change]:
    """Rows of one file that hold both scores."""
    for line in ws.lines(file):
        if len(line.data) <= 300 and (row := _ARROW.match(line.text)) and not _NO_SCORE.search(row["name"]):
            name = " ".join(row["name"].lower().split())
            yield Change(name, float(row["before"]), float(row["after"]), (file, file), (line, line))


def scores(ws: Workspace, file: RunFile) -> dict[str, tuple[float, Line]]:
    """Named scores of a text file: `name: value` lines and rows of the harness's tables."""
    found: dict[str, tuple[float, Line]] = {}
    for line in ws.lines(file):
        if len(line.data) > 300:
            continue
        if row := _ROW.match(line.text):
            found.setdefault(" ".join(row["name"].lower().split()), (float(row["value"]), line))
        elif line.text.startswith("|") and (cells := _table_row(line.text)):
            found.setdefault(cells[0], (cells[1], line))
    return found


def _table_row(text: str) -> tuple[str, float] | None:
    """Task, metric and value of a row as lm-evaluation-harness prints them."""
    cells = [c.strip() for c in text.strip().strip("|").split("|")]
    if len(cells) < 7 or not cells[0]:
        return None
    value = next((c for c in cells[5:] if re.fullmatch(r"\d+\.\d+", c)), None)
    return (f"{cells[0]} {cells[4]}".lower(), float(value)) if value else None
