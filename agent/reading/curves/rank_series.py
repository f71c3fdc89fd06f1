"""Metrics that several ranks report: one table of steps by ranks, with the place of every value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .curves import curves
from .series import Series

if TYPE_CHECKING:
    from ..run.workspace import Workspace

MOST = 4096  # steps that are set against each other
FEWEST = 4
EXACT = {"parameter_sum": 1, "param_norm": 2}  # must agree to the last digit: steps that tell
MANY, FEW = 64, 512  # of more ranks than the first, the last steps only: the second


@dataclass(slots=True)
class RankTable:
    """One metric over ranks.

    Attributes:
        metric: canonical name, or the raw one where it is not known.
        ranks: of the columns.
        steps: (steps,) that every rank reports.
        values: (steps, ranks) finite numbers.
        sources: for each rank its series and the index of each step in it.
        hosts: for each rank, where file names tell it.
    """

    metric: str
    ranks: list[int]
    steps: np.ndarray
    values: np.ndarray
    sources: list[tuple[Series, np.ndarray]]
    hosts: list[str | None]

    def source(self, rank: int, row: int = -1) -> tuple[Series, int]:
        """The series of a rank, and the index in it of a row of the table."""
        series, index = self.sources[self.ranks.index(rank)]
        return series, int(index[row])


def rank_tables(ws: Workspace, *metrics: str) -> list[RankTable]:
    """A table for each of these metrics that at least two ranks report at enough common steps.

    Ranks come from labels and file names; a table with a column `rank` is taken apart by it. Where a run has several
    attempts or variants, each has tables of its own.
    """
    columns: dict[tuple, dict[int, Series]] = {}
    for s in _by_rank(ws, metrics):
        rank = s.rank if s.rank is not None else _numbered(s)
        if rank is None or s.file.good:
            continue
        ranks = columns.setdefault((s.file.run, s.attempt, s.variant, s.metric), {})
        if rank not in ranks or s.count > ranks[rank].count:
            ranks[rank] = s
    tables = [_table(key[-1], ranks) for key, ranks in columns.items() if len(ranks) > 1]
    return [t for t in tables if t is not None]


def _numbered(s: Series) -> int | None:
    """The number of a worker that writes a file of its own (`worker2.csv`), for what every replica has alike."""
    m = re.fullmatch(r"worker[-_]?(\d{1,4})", s.file.host or "", re.IGNORECASE) if s.metric in EXACT else None
    return int(m[1]) if m else None


def _by_rank(ws: Workspace, metrics: tuple[str, ...]) -> list[Series]:
    found = curves(ws)
    split = {s.file.name: s for s in found.series if s.raw in ("rank", "global_rank", "local_rank") and s.rank is None}
    whole = [s for s in found.series if s.metric in metrics and s.stepped]
    apart: list[Series] = []
    for s in whole:
        names = split.get(s.file.name)
        if s.rank is not None or names is None:
            apart.append(s)
            continue
        apart += _taken_apart(s, names)
    return apart


def _taken_apart(s: Series, names: Series) -> list[Series]:
    """A column of a table by the rank that stands on the same line."""
    at = dict(zip(names.lines.tolist(), names.values.tolist(), strict=True))
    ranks = np.array([at.get(line, np.nan) for line in s.lines.tolist()])
    found = []
    for rank in np.unique(ranks[np.isfinite(ranks)])[:MOST]:
        rows = ranks == rank
        found.append(Series(
            s.metric, s.raw, s.file, s.steps[rows], s.values[rows], s.lines[rows], s.offsets[rows], s.fair[rows],
            s.stepped, int(rows.sum()), rank=int(rank), attempt=s.attempt, variant=s.variant,
        ))  # fmt: skip
    return found


def _table(metric: str, ranks: dict[int, Series]) -> RankTable | None:
    """Columns at the steps that all have; ranks that stopped early must not empty it, so these are left out."""
    most = max(len(s) for s in ranks.values())
    kept = {r: s for r, s in sorted(ranks.items()) if 2 * len(s) >= most}
    last = {r: _last_of_each(s, MOST if len(kept) <= MANY else FEW) for r, s in kept.items()}
    common = sorted(set.intersection(*(set(at) for at in last.values()))) if len(last) > 1 else []
    least = EXACT.get(metric, FEWEST)
    if len(common) < least:
        return None
    if len(common) > MOST:
        common = [common[i] for i in np.linspace(0, len(common) - 1, MOST).astype(int)]
    index = [np.array([last[r][step] for step in common]) for r in kept]
    values = np.column_stack([s.values[i] for s, i in zip(kept.values(), index, strict=True)])
    good = np.isfinite(values).all(axis=1)
    if good.sum() < least:
        return None
    return RankTable(
        metric, list(kept), np.array(common)[good], values[good],
        [(s, i[good]) for s, i in zip(kept.values(), index, strict=True)], [s.file.host for s in kept.values()],
    )  # fmt: skip


def _last_of_each(s: Series, most: int) -> dict[float, int]:
    """Where each of the last steps stands last: after a restart in one file it is repeated."""
    first = max(0, len(s) - most)
    good = np.isfinite(s.values[first:]).tolist()
    return {step: first + i for i, step in enumerate(s.steps[first:].tolist()) if good[i]}
