"""How fast counters move: the time between two arrivals of a new value, and the time a step takes."""

from __future__ import annotations

import re
from collections import deque
from statistics import median

_STEP = re.compile(rb"step|^iter|^it$")


class Pace:
    """One counter of a job: a number with a name, or the part done of a total.

    Attributes:
        moves: how many times it had another value than before.
        value: the value it has now; `total` of how many, 0 where that is not said.
    """

    __slots__ = ("_arrived", "_before", "_gaps", "_paces", "moves", "name", "total", "value")

    def __init__(self, name: bytes, total: int = 0) -> None:
        self.name, self.total = name, total
        self.moves = 0
        self.value = -1.0
        self._before = 0.0
        self._arrived: float | None = None
        self._paces: deque[float] = deque(maxlen=64)
        self._gaps: deque[float] = deque(maxlen=64)

    def now_at(self, value: float) -> bool:
        """Take a value that was read. True where it is another one."""
        if value == self.value:
            return False
        self.value = value
        self.moves += 1
        return True

    def arrived(self, now: float) -> None:
        """All values of one look have been taken: they share the time since the look before that brought any."""
        if self._arrived is not None and now > self._arrived:
            gap, count = now - self._arrived, self.value - self._before
            self._gaps.append(gap)
            self._paces.append(gap / count if count > 0 else gap)
        self._arrived, self._before = now, self.value

    @property
    def finished(self) -> bool:
        """Whether it has reached its total: a bar that is full says nothing of what comes after it."""
        return self.total > 0 and self.value >= self.total

    @property
    def weight(self) -> tuple[bool, int, int]:
        """The counter of a job's steps is the one of most weight: it moves still, is named so, has moved most.

        That it moves is known once its values came twice: output in blocks brings many of them at the first time.
        """
        kind = 2 if _STEP.search(self.name) else 1 if self.is_step else 0
        return not self.finished and bool(self._gaps), kind, self.moves

    @property
    def is_step(self) -> bool:
        """Whether its value is a step, not an epoch, a number of tokens or a share of something."""
        return (self.total > 0 and self.name != b"%") or bool(_STEP.search(self.name))

    @property
    def seconds(self) -> float | None:
        """Median seconds a step."""
        return median(self._paces) if self._paces else None

    @property
    def gap(self) -> float:
        """Median seconds between two arrivals, or a third of the longest where that is more.

        A job logs each tenth step, or its output comes in blocks: between two of them it is silent as a rule.
        """
        return max(median(self._gaps), max(self._gaps) / 3) if self._gaps else 0.0
