"""What the lines say that a running job has written since the last look, in constant memory whatever it writes."""

from __future__ import annotations

import math
import os
import statistics
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from ..errors import ParseError
from ..reading.files import RunFile, head, open_regular
from ..reading.metric_formats.lines import LineReader
from ..reading.roles import role_of
from ..reading.series import Series
from .following_files import Stand

_HEAD = 8192
_FIRST = 64 << 10  # bytes at the end of a file that are read when it is first seen
_MOST = 1 << 20  # bytes of a file that are read at one look; what lies before them is passed over
_KEPT, _LEAST = 200, 20  # losses that the next one is compared with
_TIMES, _SPREADS = 3.0, 20.0  # a spike: so many medians, and so many usual distances from the median


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


@dataclass(slots=True)
class Lines:
    """Reads what was appended to logs and line-wise metrics. Keeps an offset for each file, and the last losses."""

    _at: dict[str, tuple[tuple[int, int], int]] = field(default_factory=dict)
    _of_interest: dict[str, tuple[tuple[int, int], bool]] = field(default_factory=dict)
    _losses: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _came_to: dict[object, float] = field(default_factory=dict)  # the last step of each loss

    def of_interest(self, name: str, stand: Stand) -> bool:
        """Whether a file is one that grows while a job lives: a log or its metrics, no checkpoint, no system log."""
        held = self._of_interest.get(name)
        if held is not None and held[0] == stand.identity:
            return held[1]
        try:
            start = head(stand.path, _HEAD)
        except (ParseError, OSError):
            return False
        wanted = bool(start) and role_of(name, start) in ("log", "metrics")
        if wanted or len(start) >= _HEAD:  # a file that has just begun may yet say what it is
            self._of_interest[name] = (stand.identity, wanted)
        return wanted

    def follows(self, name: str) -> bool:
        """Whether a file was found to be of interest when it was last looked at."""
        return self._of_interest.get(name, (None, False))[1]

    def forget(self, names: list[str]) -> None:
        """Files that are gone."""
        for name in names:
            self._at.pop(name, None)
            self._of_interest.pop(name, None)

    def read(self, written: dict[str, Stand]) -> News:
        """The new lines of some files."""
        news = News()
        for name, stand in sorted(written.items()):
            data = self._appended(name, stand)
            if not data or b"\0" in data[:_HEAD]:
                continue
            if not news.traceback and b"Traceback (most recent call last)" in data:
                news.traceback = name
            file = RunFile(name, stand.path, "log", stand.size)
            tracks = LineReader().read([data]).values()
            for series in (s for t in tracks if (s := t.finish(file)) is not None):
                self._take(series, news)
        return news

    def _appended(self, name: str, stand: Stand) -> bytes:
        """Whole lines from where the last look ended; a bar that is drawn over and over ends its lines with \\r."""
        identity, at = self._at.get(name, (None, -1))
        if at < 0:
            at = max(0, stand.size - _FIRST)
        elif identity != stand.identity or stand.size < at:
            at = 0
        at = max(at, stand.size - _MOST)
        try:
            with open_regular(stand.path) as stream:
                stream.seek(at, os.SEEK_SET)
                data = stream.read(stand.size - at) or b""
        except (ParseError, OSError):
            return b""
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end and len(data) >= _MOST:
            end = len(data)  # a line without end
        self._at[name] = (stand.identity, at + end)
        return data[:end]

    def _take(self, series: Series, news: News) -> None:
        if series.metric in ("step_time", "bar_step_time") and series.finite.any():
            news.step_time = float(statistics.median(series.values[series.finite].tolist()))
        if not series.stepped:
            if series.metric == "loss":
                _take_uncounted(series, news)
            return
        last = float(series.steps[-1])
        newest = news.step is None or last > news.step
        if newest and math.isfinite(last):
            news.step = last
        if series.metric != "loss":
            return
        if newest or news.loss is None:
            news.loss = float(series.values[-1])
        self._begins_again(series, news)
        if len(bad := series.steps[~series.finite]):
            known = news.not_finite is not None and math.isfinite(news.not_finite)
            news.not_finite = min(float(bad[0]), news.not_finite) if known and news.not_finite else float(bad[0])
        steps, values = series.steps[series.finite], series.values[series.finite]
        high = np.flatnonzero(values > self._usual())
        if len(high) and news.spike is None:
            news.spike = (float(steps[high[0]]), float(values[high[0]]))
        self._losses.extend(values[-_KEPT:].tolist())

    def _begins_again(self, series: Series, news: News) -> None:
        """Whether a loss goes on from an earlier step: then those before are no measure of what is usual."""
        key = (series.file.name, series.rank, series.variant)
        before, first = self._came_to.get(key), float(series.steps[0])
        self._came_to[key] = float(series.steps[-1])
        if before is not None and first < before - 1:
            news.again = (before, first)
            self._losses.clear()

    def _usual(self) -> float:
        """The loss from which on one is a spike, by those before; no number until there are some."""
        if len(self._losses) < _LEAST:
            return math.inf
        middle = statistics.median(self._losses)
        spread = statistics.median(abs(v - middle) for v in self._losses)
        return max(_TIMES * middle, middle + _SPREADS * spread) if middle > 0 else math.inf


def _take_uncounted(series: Series, news: News) -> None:
    """Losses of lines that name no step."""
    if news.loss is None:
        news.loss = float(series.values[-1])
    if news.not_finite is None and not series.finite.all():
        news.not_finite = math.nan


def measured(series: list[Series]) -> News | None:
    """The newest step and loss of whole curves; None where no loss of the run has steps."""
    own = [s for s in series if s.metric == "loss" and s.stepped and len(s) and not s.file.good]
    if not own:
        return None
    newest = max(own, key=lambda s: float(s.steps[-1]))
    bad = [float(s.steps[np.argmin(s.finite)]) for s in own if not s.finite.all()]
    return News(float(newest.steps[-1]), float(newest.values[-1]), not_finite=min(bad, default=None))
