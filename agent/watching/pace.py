"""How the steps go on: of the run and of each rank, by the clock of whoever looks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from .kinds import LIMITS, Found, Told
from .window import Window

_GAPS = 31
_MOST = 4096  # ranks


@dataclass(slots=True)
class Rank:
    """One rank, or one file whose rank nobody knows. Times are of the monotonic clock.

    Attributes:
        behind: by how many steps it was behind each time it wrote.
    """

    step: float = -1.0
    at: float = 0.0
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=_GAPS))
    behind: deque[float] = field(default_factory=lambda: deque(maxlen=LIMITS.lags))
    times: Window = field(default_factory=lambda: Window(32))
    told: Told = field(default_factory=Told)
    file: str = ""
    line: int | None = None


class Pace:
    """The steps of one run.

    Attributes:
        at: when the newest step came; None before the first.
        step: the newest.
        live: whether steps came while we looked: before that, nobody knows how long one takes.
    """

    def __init__(self, limit: float = LIMITS.stall) -> None:
        self.limit = limit
        self.at: float | None = None
        self.step: float | None = None
        self.gaps: deque[float] = deque(maxlen=_GAPS)
        self.ranks: dict[int, Rank] = {}
        self.told = Told()
        self._before: float | None = None  # the step at the last look

    @property
    def live(self) -> bool:
        """Whether steps were seen to come."""
        return len(self.gaps) >= 3

    @property
    def patience(self) -> float:
        """Seconds without a new step that are nothing special."""
        return max(self.limit, LIMITS.stall_times * median(self.gaps)) if self.live else self.limit

    def rank(self, number: int) -> Rank:
        """The state of one rank."""
        if number not in self.ranks and len(self.ranks) >= _MOST:
            number = min(self.ranks)
        return self.ranks.setdefault(number, Rank())

    def step_of(self, step: float, when: float, old: bool, rank: int | None, file: str, line: int | None) -> None:
        """A line names a step. `when`: now, or when the file was written where the line is old."""
        if rank is not None:
            held = self.rank(rank)
            if step != held.step:
                if held.at and not old and when > held.at:
                    held.gaps.append(when - held.at)
                held.step, held.at, held.file, held.line = step, when, file, line
        if step == self.step and self.at is not None:
            return
        if self.at is not None and not old and when > self.at:
            self.gaps.append(when - self.at)
        self.at = when if self.at is None else max(self.at, when)
        self.step = step
        self.told.over("stall")

    def begin(self) -> None:
        """Steps start again from an earlier one."""
        for held in self.ranks.values():
            held.behind.clear()

    def took(self, rank: int, seconds: float) -> None:
        """A rank prints how long its step, or its own part of it, took."""
        self.rank(rank).times.add(seconds)

    def judge(self, now: float, ended: bool) -> Iterator[Found]:
        """What is told of the pace at this look."""
        if self.at is None or ended:
            return
        quiet = now - self.at
        if quiet >= self.patience and self.told.first("stall"):
            usual = f"one each {span(median(self.gaps))}" if self.gaps else ""
            again = self.told.again("stall")
            text = f"no new step for {span(quiet)}" + ("" if self.live else ": it may be over")
            yield Found("stall", text, quiet, usual, None if self.live else "notice", again, self.step)
        if len(self.ranks) > 1:
            yield from self._silent(now)
            yield from self._slow()

    def _silent(self, now: float) -> Iterator[Found]:
        """Ranks without a step while the others have new ones."""
        going = [r for r in self.ranks.values() if len(r.gaps) >= 5]
        if len(going) < 2 or self.at is None:
            return
        for number, held in self.ranks.items():
            if len(held.gaps) < 5:
                continue
            usual = median(held.gaps)
            quiet = self.at - held.at
            if quiet < usual:
                held.told.over("rank_silent")
            bound = max(LIMITS.rank_stall, LIMITS.stall_times * usual)
            others = sum(r.at > now - bound / 2 for r in going)
            if quiet >= bound and 2 * others >= len(going) and held.told.first("rank_silent"):
                again = held.told.again("rank_silent")
                yield Found(
                    "rank_silent", f"rank {number} has no new step for {span(quiet)}; {others} others go on", quiet,
                    f"one each {span(usual)}", None, again, held.step, number, held.file, held.line,
                )  # fmt: skip

    def lag(self, rank: int, stride: float) -> None:
        """A rank wrote: how far it is behind the others just then. `stride`: steps between two of its lines."""
        held = self.ranks.get(rank)
        others = sorted(r.step for n, r in self.ranks.items() if n != rank)
        if held is not None and others:
            held.behind.append((median(others) - held.step) / max(stride, 1.0))

    def _slow(self) -> Iterator[Found]:
        """Ranks that are behind each time they write, or whose steps take longer."""
        timed = {n: r.times.middle()[0] for n, r in self.ranks.items() if len(r.times) >= 16}
        usual = median(timed.values()) if len(timed) >= 2 else 0.0
        for number, held in self.ranks.items():
            behind = held.behind
            if len(behind) == LIMITS.lags and min(behind) > 3 and behind[-1] >= behind[0]:
                text = f"rank {number} is {behind[-1]:.0f} reports behind the others, and falls back"
                yield from self._told_slow(number, held, text, behind[-1], "0")
            elif (mine := timed.get(number)) is not None and len(timed) >= 2 and mine > LIMITS.slower * usual > 0:
                text = f"rank {number} takes {span(mine)} a step"
                yield from self._told_slow(number, held, text, mine, f"{span(usual)} on the others")
            elif behind and max(behind) < 1:
                held.told.over("straggler")

    def _told_slow(self, number: int, held: Rank, text: str, value: float, usual: str) -> Iterator[Found]:
        if held.told.first("straggler"):
            again = held.told.again("straggler")
            yield Found("straggler", text, value, usual, None, again, held.step, number, held.file, held.line)


def span(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
