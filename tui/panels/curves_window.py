"""Which steps of a curve are looked at, and where the marker stands on them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

_ZOOM, _SLIDE = 2.0, 0.25
_LEAST = 3  # points that are always in view


@dataclass(slots=True)
class Window:
    """A stretch of steps between the first and the last of all; `stops` are those that the marker can stand on."""

    first: float
    last: float
    low: float
    high: float
    near: tuple[float, float]  # what is around the event
    stops: list[float] = field(default_factory=list)
    cursor: float | None = None

    @property
    def whole(self) -> bool:
        """Whether all steps are in view."""
        return self.low <= self.first and self.high >= self.last

    @property
    def has_event(self) -> bool:
        """Whether what is around the event is less than all of it."""
        return self.near != (self.first, self.last)

    def like(self, other: Window) -> None:
        """The same steps and the same marker as on another curve, as far as this one has them."""
        self.cursor = other.cursor
        if other.whole:
            self.low, self.high = self.first, self.last
        elif (other.low, other.high) == other.near:
            self.low, self.high = self.near
        elif other.low < self.last and other.high > self.first:
            self.low, self.high = max(other.low, self.first), min(other.high, self.last)

    def turn(self) -> None:
        """From all steps to those around the event, and back."""
        self.low, self.high = self.near if self.whole and self.has_event else (self.first, self.last)

    def zoom(self, closer: bool, middle: float | None = None) -> None:
        """Half as many steps or twice as many around the marker, else the event, else the middle."""
        wide = self.high - self.low
        around = next((at for at in (self.cursor, middle) if at is not None and self.low <= at <= self.high), None)
        around = (self.low + self.high) / 2 if around is None else around
        wide = max(wide / _ZOOM, min(self._least(), wide)) if closer else wide * _ZOOM
        self._put(around - wide / 2, around + wide / 2)

    def slide(self, right: bool) -> None:
        """A quarter of what is in view to one side."""
        way = (self.high - self.low) * _SLIDE * (1 if right else -1)
        self._put(self.low + way, self.high + way)

    def move(self, right: bool, start: float | None = None) -> None:
        """The marker to the next point, from the event where it was nowhere; the view follows it."""
        if not self.stops:
            return
        if self.cursor is None:
            at = bisect_left(self.stops, start if start is not None else (self.low + self.high) / 2)
        else:
            at = bisect_right(self.stops, self.cursor) if right else bisect_left(self.stops, self.cursor) - 1
        self.cursor = self.stops[min(max(at, 0), len(self.stops) - 1)]
        if not self.low <= self.cursor <= self.high:
            wide = self.high - self.low
            self._put(self.cursor - wide / 2, self.cursor + wide / 2)

    def _put(self, low: float, high: float) -> None:
        wide = min(high - low, self.last - self.first)
        self.low = min(max(low, self.first), self.last - wide)
        self.high = self.low + wide

    def _least(self) -> float:
        steps = len(self.stops)
        return (self.last - self.first) / max(steps - 1, 1) * _LEAST
