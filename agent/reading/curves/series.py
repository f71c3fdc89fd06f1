"""One measured quantity over a run: its points, where each stands in its file, thinned without losing an extreme."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..run.files import RunFile

KEEP = 20_000  # points kept per series; beyond four times this, buckets keep first, least, greatest and last
_STILL = 4  # points at one step: what is printed there counts something else
_TURNS = 1_000  # changes between finite and not finite that are always kept

Columns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # steps, values, lines, offsets


@dataclass
class Series:
    """Points of one metric from one file (and one rank, and one variant where a file holds several).

    Arrays have equal length and are in file order. `steps` are as printed where `stepped`, otherwise ordinals
    from 1. `lines` count from 1, `offsets` are bytes in the decompressed file. `fair` marks the points that were
    not kept for being extreme: medians and spreads are taken over those. `count`, `nans` and `infs` are exact,
    whatever was thinned. Units: seconds, bytes where the file names a unit, otherwise as printed.
    """

    metric: str
    raw: str
    file: RunFile
    steps: np.ndarray
    values: np.ndarray
    lines: np.ndarray
    offsets: np.ndarray
    fair: np.ndarray
    stepped: bool
    count: int
    nans: int = 0
    infs: int = 0
    rank: int | None = None
    attempt: int | None = None
    variant: str | None = None
    known: bool = True
    attributes: dict[str, float | str] = field(default_factory=dict)  # constant columns of a run in a table
    resets: list[int] = field(default_factory=list)  # lines where the step went back
    rl: bool = False  # stands in a file that also reports rewards
    by_epoch: bool = False  # its steps are epochs
    of_bars: bool = False  # shown beside progress bars, where it is often a running mean
    expression: str = ""  # of the program, that came to these numbers
    meaning: str = ""  # over which steps and ranks a framework takes them
    copy_of: Series | None = None  # the same points, in another file

    def __len__(self) -> int:
        return len(self.values)

    @property
    def label(self) -> str:
        """Name of the variant this belongs to: named, else the file."""
        return self.variant or self.file.variant or self.file.name

    @property
    def finite(self) -> np.ndarray:
        """Mask of finite points."""
        return np.isfinite(self.values)


class Track:
    """Accumulates the points of one series in constant memory."""

    def __init__(self, metric: str, raw: str, *, rank: int | None = None, variant: str | None = None) -> None:
        self.metric, self.raw, self.rank, self.variant = metric, raw, rank, variant
        self.known = True
        self.by_epoch = False
        self.attributes: dict[str, float | str] = {}
        self.count = self.nans = self.infs = 0
        self.drawn = 0  # points that stand beside a progress bar
        self._rows: list[tuple[float, float, int, int]] = []
        self._parts: list[np.ndarray] = []  # (n, 4) steps, values, lines, offsets
        self._fair: list[np.ndarray] = []
        self._size = 0
        self._thinned = False
        self._last_bad = False
        self._turns: set[int] = set()  # offsets of points at a change between finite and not

    @property
    def stepped(self) -> bool:
        """Whether its points name steps."""
        self._flush()
        return any(np.isfinite(part[:, 0]).any() for part in self._parts)

    @property
    def empty(self) -> bool:
        """Whether no point came."""
        return not (self._rows or self._parts)

    def add(self, step: float, value: float, line: int, offset: int) -> None:
        """One point, in file order; `step` NaN when the line names none."""
        self._rows.append((step, value, line, offset))
        if len(self._rows) >= 4096:
            self._flush()

    def extend(self, steps: np.ndarray, values: np.ndarray, lines: np.ndarray, offsets: np.ndarray) -> None:
        """Many points at once, columns of equal length."""
        self._flush()
        self._take(np.column_stack((steps, values, lines, offsets)).astype(np.float64, copy=False))

    def absorb(self, later: Track, lines: int, steps: float) -> None:
        """Take over the points of a later part of the same file, whose lines and steps were counted from 0."""
        self._flush()
        later._flush()
        for part, fair in zip(later._parts, later._fair, strict=True):
            part[:, 2] += lines
            part[:, 0] += steps
            self._parts.append(part)
            self._fair.append(fair)
        self._size += later._size
        self._thinned |= later._thinned
        self._turns |= later._turns
        self.drawn += later.drawn
        self.count, self.nans, self.infs = self.count + later.count, self.nans + later.nans, self.infs + later.infs
        if self._size > 4 * KEEP:
            self._thin()

    def _flush(self) -> None:
        if self._rows:
            rows, self._rows = np.array(self._rows, dtype=np.float64), []
            self._take(rows)

    def _take(self, part: np.ndarray) -> None:
        if not len(part):
            return
        values = part[:, 1]
        nan, inf = np.isnan(values), np.isinf(values)
        self.count += len(part)
        self.nans += int(nan.sum())
        self.infs += int(inf.sum())
        bad = nan | inf
        if len(self._turns) < _TURNS and (bad.any() or self._last_bad):
            changed = np.flatnonzero(np.diff(np.concatenate(([self._last_bad], bad)).astype(np.int8)))
            for i in changed[:_TURNS]:
                self._turns.update((int(part[i, 3]), int(part[max(i - 1, 0), 3])))
        self._last_bad = bool(bad[-1])
        self._parts.append(part)
        self._fair.append(np.ones(len(part), dtype=bool))
        self._size += len(part)
        if self._size > 4 * KEEP:
            self._thin()

    def _thin(self) -> None:
        rows, fair = self._ordered()
        starts = places(rows[:, 3], KEEP // 4)
        keep = extremes(rows[:, 1], starts)
        if self._turns:
            keep |= np.isin(rows[:, 3], np.fromiter(self._turns, float, len(self._turns)))
        first = np.zeros(len(rows), dtype=bool)
        first[starts] = True
        self._parts, self._fair = [rows[keep]], [(fair & first)[keep]]
        self._size = int(keep.sum())
        self._thinned = True

    def _ordered(self) -> tuple[np.ndarray, np.ndarray]:
        """Points so far in file order: fast and slow readers of one block deliver apart."""
        rows, fair = np.concatenate(self._parts), np.concatenate(self._fair)
        if (np.diff(rows[:, 3]) < 0).any():
            order = np.argsort(rows[:, 3], kind="stable")
            rows, fair = rows[order], fair[order]
        return rows, fair

    def finish(self, file: RunFile) -> Series | None:
        """The series, or None without points."""
        self._flush()
        if not self._parts:
            return None
        if self._thinned:
            self._thin()  # the newest points no denser than the oldest, or medians would lean to the end
        rows, fair = self._ordered()
        steps = rows[:, 0]
        stepped = bool(np.isfinite(steps).mean() > 0.5) and not (len(rows) >= _STILL and np.ptp(steps) == 0)
        if not stepped:
            steps = (
                np.arange(1, len(rows) + 1, dtype=np.float64) if self.count == len(rows) else _spread(self.count, rows)
            )
        elif not np.isfinite(steps).all():
            steps = _filled(steps)
        lines = rows[:, 2].astype(np.int64)
        back = np.flatnonzero(np.diff(steps) < 0) + 1 if stepped else np.array([], dtype=np.int64)
        return Series(
            self.metric, self.raw, file, steps, rows[:, 1], lines, rows[:, 3].astype(np.int64), fair,
            stepped, self.count, self.nans, self.infs, self.rank if self.rank is not None else file.rank,
            file.attempt, self.variant or file.variant, self.known, dict(self.attributes),
            [int(lines[i]) for i in back[:100]], by_epoch=self.by_epoch, of_bars=2 * self.drawn > self.count,
        )  # fmt: skip


def extremes(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Mask of the first, last, least and greatest finite value of each bucket; `starts`: where buckets begin."""
    keep = np.zeros(len(values), dtype=bool)
    keep[starts] = True
    keep[np.append(starts[1:], len(values)) - 1] = True
    finite = np.isfinite(values)
    number = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(values))))
    for sign in (1.0, -1.0):
        signed = np.where(finite, sign * values, np.inf)
        least = np.minimum.reduceat(signed, starts)
        hits = np.flatnonzero(signed == least[number])  # never empty: each bucket has a least
        bucket = number[hits]
        keep[hits[np.concatenate(([True], bucket[1:] != bucket[:-1]))]] = True
    return keep


def places(offsets: np.ndarray, buckets: int) -> np.ndarray:
    """Where buckets of equal length in the file begin, at most `buckets` of them.

    Lengths are powers of two from the start of the file, so that thinning what was thinned keeps the same points,
    and early training stays as fine as late.
    """
    width = 2.0 ** np.ceil(np.log2(max(1.0, (offsets[-1] + 1) / buckets)))
    number = (offsets // width).astype(np.int64)
    return np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1])))


def _spread(count: int, rows: np.ndarray) -> np.ndarray:
    return np.linspace(1, count, len(rows)).round()


def _filled(steps: np.ndarray) -> np.ndarray:
    """Steps with gaps filled from the last one named."""
    known = np.isfinite(steps)
    at = np.maximum.accumulate(np.where(known, np.arange(len(steps)), -1))
    return np.where(at >= 0, steps[np.maximum(at, 0)], steps[known][0])


def by_metric(series: Iterable[Series], metric: str) -> list[Series]:
    """The series of one canonical metric, longest first within a file."""
    return sorted((s for s in series if s.metric == metric), key=lambda s: (s.file.name, -s.count))
