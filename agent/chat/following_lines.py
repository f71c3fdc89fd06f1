"""What the lines say that a running job has written since the last look, in constant memory whatever it writes."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

from ..jobs.growing import Tail
from ..jobs.watching.point_readers import OnPoint, Point, Shared, TextReader
from ..jobs.watching.watched_folder import HEAD, Seen, kind_of
from ..reading.curves.series import Series

_FIRST = 64 << 10  # bytes at the end of a file that are read when it is first seen
_MOST = 1 << 20  # bytes of a file that are read at one look; what lies before them is passed over
_KEPT, _LEAST = 200, 20  # losses that the next one is compared with
_TIMES, _SPREADS = 3.0, 20.0  # a spike: so many medians, and so many usual distances from the median


def compared(before: dict[str, Seen], now: dict[str, Seen]) -> dict[str, list[str]]:
    """Names of files by what became of them; a rotated one is another file of that name, a cut one has fewer bytes."""
    changes: dict[str, list[str]] = defaultdict(list)
    for name, one in now.items():
        held = before.get(name)
        if held is None or held.identity != one.identity:
            changes["rotated" if held else "new"].append(name)
        elif (one.size, one.written) != (held.size, held.written):
            changes["cut" if one.size < held.size else "grown"].append(name)
    if gone := [name for name in before if name not in now]:
        changes["gone"] = gone
    return changes


@dataclass(slots=True)
class News:
    """What the new lines of one look say: the newest step and loss, the first loss that was not finite, a spike.

    Attributes:
        not_finite: its step; NaN where the line names none.
        again: the last step before and the first after, where a log that had come further goes on from an earlier one.
    """

    step: float | None = None
    loss: float | None = None
    step_time: float | None = None  # seconds, as printed
    not_finite: float | None = None
    spike: tuple[float, float] | None = None  # step and loss
    again: tuple[float, float] | None = None
    traceback: str = ""  # the file that printed one


class _Text(TextReader):
    """Lines; what is made of records holds none. A traceback may stand behind a bar, in a line with metrics."""

    def __init__(self, shared: Shared, point: OnPoint, traceback: Callable[[], None]) -> None:
        super().__init__(shared, point, lambda *_: None, lambda *_: None)
        self._traceback = traceback

    def take(self, data: bytes, line: int | None, last: bool) -> int:
        if b"\0" in data[:HEAD]:
            return len(data)
        end = super().take(data, line, last)
        if b"Traceback (most recent call last)" in data[:end]:
            self._traceback()
        return end


@dataclass(slots=True)
class Lines:
    """Reads what was appended to logs and line-wise metrics. Keeps a tail for each file, and the last losses."""

    _tails: dict[str, Tail | None] = field(default_factory=dict)  # None: of no interest
    _shared: Shared = field(default_factory=Shared)
    _losses: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _came_to: dict[object, float] = field(default_factory=dict)  # the last step of each loss
    _spike: float = math.inf  # from which loss on one is a spike
    _news: News = field(default_factory=News)
    _ends: dict[object, Point] = field(default_factory=dict)  # of this look, by file, name and rank
    _times: list[float] = field(default_factory=list)

    def of_interest(self, one: Seen) -> bool:
        """Whether a file is one that grows while a job lives: a log or its metrics, no checkpoint, no system log."""
        if one.name not in self._tails:
            role, start = kind_of(one)
            wanted = role in ("log", "metrics")
            if not wanted and len(start) < HEAD:  # a file that has just begun may yet say what it is
                return False
            self._tails[one.name] = self._tail(one) if wanted else None
        return self.follows(one.name)

    def follows(self, name: str) -> bool:
        """Whether a file was found to be of interest when it was last looked at."""
        return self._tails.get(name) is not None

    def forget(self, names: list[str]) -> None:
        """Files that are gone."""
        for name in names:
            self._tails.pop(name, None)

    def read(self, written: list[Seen]) -> News:
        """The new lines of some files."""
        news = self._news = News()
        self._ends, self._times = {}, []
        for name in sorted(one.name for one in written):
            self._spike = self._usual()
            if (tail := self._tails.get(name)) is not None:
                with suppress(OSError, ValueError):  # gone: the next look tells
                    tail.read()
        steps = [p.step for p in self._ends.values() if p.step is not None]
        news.step = max((s for s in steps if math.isfinite(s)), default=None)
        losses = {key: p for key, p in self._ends.items() if p.metric == "loss"}
        newest = max(losses.values(), key=lambda p: -math.inf if p.step is None else p.step, default=None)
        news.loss = newest.value if newest is not None else None
        news.step_time = median(self._times) if self._times else None
        self._came_to.update({key: p.step for key, p in losses.items() if p.step is not None})
        return news

    def _tail(self, one: Seen) -> Tail:
        def traceback() -> None:
            self._news.traceback = self._news.traceback or one.name

        reader = _Text(self._shared, lambda p: self._take(p, one.name), traceback)
        at = max(0, one.size - _FIRST)
        return Tail(one.name, one.path, one.identity, reader, _MOST, 0, at, None)

    def _take(self, point: Point, name: str) -> None:
        news, value, step = self._news, point.value, point.step
        if point.metric in ("step_time", "bar_step_time") and math.isfinite(value):
            self._times.append(value)
        key = (name, point.raw, point.rank)
        if point.metric == "loss":
            if step is not None and key not in self._ends:
                self._begins_again(self._came_to.get(key), step)
            if not math.isfinite(value):
                known = [s for s in (news.not_finite, step) if s is not None and math.isfinite(s)]
                news.not_finite = min(known, default=math.nan)
            elif step is not None:
                if value > self._spike and news.spike is None:
                    news.spike = (step, value)
                self._losses.append(value)
        if step is not None or point.metric == "loss":
            self._ends[key] = point

    def _begins_again(self, before: float | None, first: float) -> None:
        """Where a loss goes on from an earlier step, those before are no measure of what is usual."""
        if before is not None and first < before - 1:
            self._news.again = (before, first)
            self._losses.clear()
            self._spike = math.inf

    def _usual(self) -> float:
        """The loss from which on one is a spike, by those before; no number until there are some."""
        if len(self._losses) < _LEAST:
            return math.inf
        middle = median(self._losses)
        spread = median(abs(v - middle) for v in self._losses)
        return max(_TIMES * middle, middle + _SPREADS * spread) if middle > 0 else math.inf


def measured(series: list[Series]) -> News | None:
    """The newest step and loss of whole curves; None where no loss of the run has steps."""
    own = [s for s in series if s.metric == "loss" and s.stepped and len(s) and not s.file.good]
    if not own:
        return None
    newest = max(own, key=lambda s: float(s.steps[-1]))
    bad = [float(s.steps[s.finite.argmin()]) for s in own if not s.finite.all()]
    return News(float(newest.steps[-1]), float(newest.values[-1]), not_finite=min(bad, default=None))
