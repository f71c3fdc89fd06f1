"""The last values of a curve in constant memory, with their median and spread."""

from __future__ import annotations

import math
from array import array
from collections import deque
from statistics import median

_STALE = 16  # values after which median and spread are computed anew
_FADES, _ROSE, _BACK = 0.998, 1.2, 1.1  # a block; of the best: risen by so much, come back to it
_NORMAL = 1.4826  # the median distance of a normal curve, as its standard deviation


class Window:
    """A ring of numbers. `middle` may be up to 16 values old, which is nothing to a median of a hundred."""

    __slots__ = ("_known", "_next", "_ratio", "_since", "_size", "_values")

    def __init__(self, size: int) -> None:
        self._size, self._next, self._since = size, 0, _STALE
        self._values = array("d")
        self._known, self._ratio = (math.nan, math.nan), 0.0

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """One more; the oldest goes."""
        if len(self._values) < self._size:
            self._values.append(value)
        else:
            self._values[self._next] = value
        self._next = (self._next + 1) % self._size
        self._since += 1

    def clear(self) -> None:
        """Forget all."""
        self.__init__(self._size)

    def values(self) -> list[float]:
        """The oldest first."""
        if len(self._values) < self._size:
            return self._values.tolist()
        return (self._values[self._next :] + self._values[: self._next]).tolist()

    def middle(self) -> tuple[float, float]:
        """Median, and the usual distance from it."""
        if self._since >= _STALE and len(self._values):
            values = self._values.tolist()
            at, _ = self._known = spread(values)
            least = max(abs(at) / 100, 1e-300)  # a value of 0 has no logarithm
            self._ratio = spread([math.log(max(v, least)) for v in values])[1]
            self._since = 0
        return self._known

    def ratio(self) -> float:
        """The usual distance between the logarithms, as of the last `middle`."""
        return self._ratio


def spread(values: list[float]) -> tuple[float, float]:
    """Median, and the usual distance from it; of a normal curve its standard deviation."""
    at = median(values)
    return at, _NORMAL * median([abs(v - at) for v in values])


class Levels:
    """Medians of blocks of a curve: what it does beneath its noise. Keeps the last ones and the best."""

    def __init__(self, block: int, kept: int) -> None:
        self._size = block
        self._open: list[float] = []
        self.last: deque[float] = deque(maxlen=kept)
        self.best = math.inf
        self.returned = 0.0  # the highest level that it rose to and came back from; fades
        self._highest = 0.0  # since the best
        self.swing = 0.0  # usual distance of a value from its block's level; follows what is calmer sooner
        self.noise = 0.0  # usual distance of a value from its block's level, as a share of that

    def add(self, value: float) -> bool:
        """One more; whether a block is full with it."""
        self._open.append(value)
        if len(self._open) < self._size:
            return False
        level, noise = spread(self._open)
        self._open = []
        self.last.append(level)
        if len(self.last) >= 3:  # one low block of a noisy loss is no level
            self._calm_level(median(list(self.last)[-3:]))
        if len(self.last) == 1:
            self.swing, self.noise = noise, noise / max(abs(level), 1e-300)
        self.swing += (0.2 if noise < self.swing else 0.02) * (noise - self.swing)
        noise /= max(abs(level), 1e-300)
        self.noise += 0.1 * (noise - self.noise)
        return True

    def _calm_level(self, level: float) -> None:
        self.returned *= _FADES
        self._highest = max(self._highest, level)
        if level < self.best:
            if self._highest > _ROSE * self.best:
                self.returned = max(self.returned, self._highest)
            self.best, self._highest = level, level
        elif level < _BACK * self.best and self._highest > _ROSE * self.best:
            self.returned, self._highest = max(self.returned, self._highest), level
