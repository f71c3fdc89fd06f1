"""A fact about curves before it becomes evidence, and the curves that belong together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...run.files import Line, RunFile
from ..curves import home_of
from ..series import Series

FEW = 8  # points
_SHARED = 0.8  # of a validation's lines


@dataclass(frozen=True)
class Finding:
    """A key and a value, at a point of a series or at a line of a file."""

    key: str
    value: Any
    series: Series | None = None
    index: int = 0
    file: RunFile | None = None
    line: Line | None = None

    @property
    def step(self) -> int | None:
        """Training step of the point, where the log names steps."""
        s = self.series
        return int(s.steps[self.index]) if s is not None and s.stepped and not s.by_epoch else None


@dataclass
class Curve:
    """The finite points of a series, with their places in it. `fair` is what medians are taken over."""

    series: Series

    @cached_property
    def index(self) -> np.ndarray:
        """Places of the finite points in the series."""
        return np.flatnonzero(self.series.finite)

    @cached_property
    def values(self) -> np.ndarray:
        """Finite values."""
        return self.series.values[self.index]

    @cached_property
    def steps(self) -> np.ndarray:
        """Steps of the finite values."""
        return self.series.steps[self.index]

    @cached_property
    def fair(self) -> np.ndarray:
        """Finite values that were not kept for being extreme."""
        return self.series.values[self.series.finite & self.series.fair]

    def at(self, key: str, value: Any, position: int) -> Finding:
        """A finding at one of the finite points."""
        return Finding(key, value, self.series, int(self.index[position]))

    def when(self, position: int) -> float | int | str:
        """The step of one of the finite points, as a value."""
        return when(self.series, int(self.index[position]))

    def __len__(self) -> int:
        return len(self.values)


@dataclass
class Group:
    """The curves of one run, rank and variant in one file: by canonical metric, the fullest of each; other losses."""

    series: dict[str, Series] = field(default_factory=dict)
    other_losses: list[Series] = field(default_factory=list)

    def beside(self, held: Series) -> Curve | None:
        """A training loss that stands in the lines of a validation: measured in the same mode, as nothing else is."""
        alike = (s for s in self.other_losses if s.file is held.file and s.finite.any())
        return next((Curve(s) for s in alike if np.isin(held.offsets, s.offsets).mean() >= _SHARED), None)

    def curve(self, *metrics: str) -> Curve | None:
        """The curve of the first of these metrics that is there and has a finite point."""
        for metric in metrics:
            found = self.series.get(metric)
            if found is not None and found.finite.any():
                return Curve(found)
        return None

    @property
    def rl(self) -> bool:
        """Whether this run optimises a reward: its loss then hovers around zero and says little."""
        return any(s.rl for s in self.series.values())

    @property
    def nonfinite(self) -> int:
        """NaN and Inf in all its series."""
        return sum(s.nans + s.infs for s in self.series.values())


def groups(series: Iterable[Series]) -> list[Group]:
    """Curves that belong together: same file (or store of one run), rank and variant."""
    found: dict[tuple, Group] = defaultdict(Group)
    for s in series:
        group = found[(home_of(s.file.name), s.rank, s.variant)]
        held = group.series.get(s.metric)
        less = s
        if held is None or _fullness(s) > _fullness(held):
            group.series[s.metric], less = s, held
        if less is not None and less.metric == "loss":
            group.other_losses.append(less)
    return list(found.values())


def _fullness(s: Series) -> tuple[bool, int]:
    """What is printed in lines of its own comes before what bars show, which is often a running mean."""
    return s.count >= FEW and not s.of_bars, s.count


def when(series: Series, index: int) -> float | int | str:
    """The step of a point, as a value; `epoch 3` where a table counts those, `record 9` where nothing is counted."""
    step = plain(float(series.steps[index]))
    if not series.stepped:
        return f"record {step}"
    return f"epoch {step}" if series.by_epoch else step


def plain(value: float) -> float | int:
    """A number as it would be written: whole numbers without a fraction, seven digits otherwise."""
    if float(value).is_integer() and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.7g}")
