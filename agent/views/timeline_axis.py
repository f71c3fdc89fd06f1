"""A common axis for what several logs tell: their times where these can be compared, else their steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from ..reading.clocks import Stamp
from .timeline_spans import Span

DAY = 86_400.0
Basis = Literal["time", "step", "none"]


@dataclass(frozen=True, slots=True)
class Axis:
    """From where to where the bars go.

    Attributes:
        basis: what is compared; `none` where nothing is.
        clock: the kind of stamps that stand on it.
        why: one line on what the bars mean, and why no more can be said.
    """

    basis: Basis
    start: float = 0.0
    end: float = 0.0
    clock: str = ""
    why: str = ""

    def at(self, stamp: Stamp | None) -> float | None:
        """Where a stamp stands on an axis of times; None where it cannot be compared."""
        if stamp is None or self.basis != "time":
            return None
        value = _value(stamp, self.clock)
        if value is not None and self.clock == "clock" and value < self.start:
            value += DAY  # times of day alone: what is earlier than the start is of the next day
        return value

    def share(self, value: float) -> float:
        """A place as a share of the axis, within 0 and 1."""
        width = self.end - self.start
        return min(1.0, max(0.0, (value - self.start) / width)) if width > 0 else 1.0

    @property
    def ends(self) -> tuple[str, str, str]:
        """The start, the length and the end in words."""
        if self.basis == "step":
            return f"step {self.start:,.0f}", "", f"step {self.end:,.0f}"
        if self.basis == "none":
            return "", "", ""
        width = self.end - self.start
        return _clock(self.start, self.clock, width), duration(width), _clock(self.end, self.clock, width)


def axis(spans: list[Span]) -> Axis:
    """The axis that most spans can stand on."""
    ends = [(s.first or s.last, s.last or s.first) for s in spans]
    stamped = [(a, b) for a, b in ends if a and b]
    clock = _common(s for pair in stamped for s in pair) if stamped else ""
    if clock == "uptime" and len({s.file.host or s.file.name for s in spans}) > 1:
        clock, why = "", "seconds since boot of several hosts cannot be compared"
    else:
        why = "no stamps" if not stamped else "the stamps are of kinds that cannot be compared"
    placed = [(a, b) for x, y in stamped if (a := _value(x, clock)) is not None and (b := _value(y, clock)) is not None]
    if clock and 2 * len(placed) >= len(spans):
        start = min(a for a, _ in placed)
        later = DAY if clock == "clock" else 0.0
        end = max(b + (later if b < a else 0.0) for a, b in placed)
        if end > start:
            return Axis("time", start, end, clock, _told(clock, stamped))
        why = "all stamps are of one moment"
    steps = [s.step for s in spans if s.step is not None]
    if len(steps) >= 2:
        low, high = min(steps), max(steps)
        low = max(0, low - max(1, (high - low) // 4))  # the furthest behind keeps a bar too
        return Axis("step", low, high, "", f"Bars go to the last step, not by time: {why}.")
    return Axis("none", why=f"In which order they ended is not known: {why}, and no steps to compare.")


def duration(seconds: float) -> str:
    """A length of time in at most two units."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds % 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _common(stamps: Iterable[Stamp]) -> str:
    """The kind of stamps that the axis takes: dates and days go together, without the year."""
    kinds = Counter(s.kind for s in stamps)
    dated = kinds["date"] + kinds["day"]
    best = max(("clock", kinds["clock"]), ("uptime", kinds["uptime"]), key=lambda kv: kv[1])
    if dated >= best[1]:
        return "day" if kinds["day"] else "date"
    return best[0]


def _value(stamp: Stamp, clock: str) -> float | None:
    if stamp.kind == clock:
        return stamp.value
    if stamp.kind != "date" or clock != "day":
        return None
    when = datetime.fromtimestamp(stamp.value, UTC)
    return (when.replace(year=2000) - datetime(2000, 1, 1, tzinfo=UTC)).total_seconds()


def _clock(value: float, clock: str, width: float) -> str:
    if clock == "uptime":
        return f"{value:.1f} s"
    when = datetime(2000 if clock == "day" else 1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
    if clock == "clock" or (width < DAY / 2 and clock != "date"):
        return f"{when:%H:%M:%S}"
    return f"{when:%m-%d %H:%M}" if width >= DAY / 2 else f"{when:%H:%M:%S}"


def _told(clock: str, stamped: list[tuple[Stamp, Stamp]]) -> str:
    """What to bear in mind of times that are compared."""
    if clock == "clock":
        return "Times of day only: a day more or less is not seen."
    zones = {_zoned(s.text) for pair in stamped for s in pair if s.kind == "date"}
    return "Some stamps name a time zone and some do not: hours may be off." if len(zones) > 1 else ""


def _zoned(text: str) -> bool:
    tail = text[19:]
    return "Z" in tail or "UTC" in tail or "+" in tail or "-" in tail
