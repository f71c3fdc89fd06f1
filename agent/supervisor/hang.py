"""Whether a job stands still. Silence alone is none: the rule, in the order in which it is asked.

1. Life is a counter that moves, a kind of line that was never seen before, or more than `DATA` bytes a second read and
   written by the job's processes (a checkpoint is being saved or loaded). A stopped process (Ctrl-Z) is no standstill.
   Lines that repeat themselves, as watchdogs print them, and use of the processor, as ranks spin while they wait for
   one another, are no life.
2. A job whose counter has moved in at least two looks, and is not at its end, may be without life for the most of the
   limit, ten times its median step, and three times its usual silence between two new steps.
3. A job that has shown no counter may be without life for twice the limit, if it has ranks or has never printed
   anything, and only while all its processes together use less than `IDLE` of one processor: compiling, loading and
   preparing data burn it, waiting for a rank that never comes does not.
4. A process at work is life for six times as long: one that uses the processor, or waits for its turn on it, in most
   looks. This holds for the only rank of a job, for what it started (an evaluation, a pool that packs or tokenizes) and
   for what ranks started; not for a rank among several, which spins while it waits for the others.
5. Then the stacks of its ranks are looked at several times. Where a rank works and its stack keeps changing, it is a
   long evaluation, say, that prints nothing: that counts as life, once more the whole time.
6. What is left is a standstill. The job is told nothing of it; if it goes on, that is said once and its patience is
   from then on twice the time that it stood still.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from .progress import Progress
from .tree import Process, Tree

DATA = 1 << 20  # bytes a second
IDLE = 0.05  # of one processor
STEPS, USUAL = 10.0, 3.0
WORKING, MOST_LOOKS = 0.2, 0.6  # of one processor; of the looks
AT_WORK = 6.0  # times the limit that a process at work may be without other life


@dataclass(slots=True)
class Standstill:
    """A job without life: for how long, against which limit, seconds."""

    quiet: float
    limit: float
    step: int | None


class Patience:
    """Watches for a standstill. Times are `time.monotonic()`; `limit` is what the user set, 0 for never."""

    def __init__(self, limit: float, now: float) -> None:
        self.limit = limit
        self._least = limit
        self._life = now  # from other signs than the output
        self._bytes: tuple[float, int] | None = None
        self._cpu: tuple[float, dict[tuple[int, int], float]] | None = None
        self._busy = now
        self._worked: deque[bool] = deque(maxlen=4)

    def look(self, now: float, progress: Progress, tree: Tree) -> Standstill | None:
        """After each whole scan of the processes: a standstill whose stacks are to be looked at, or None."""
        if self.limit <= 0 or not tree.all:
            return None
        self._processor(now, tree)
        if any(p.state in "Tt" for p in tree.ranks()):
            self._life = now
        limit = self._allowed(progress, tree)
        if limit is None:
            return None
        quiet = now - max(self._life, progress.moved)
        if quiet < limit / 4:
            self._bytes = None
            return None
        if self._data(now, tree):
            self._life = now
            return None
        if quiet < limit or (not progress.stepping and now - self._busy < limit):
            return None
        if quiet < AT_WORK * limit and self._at_work():
            return None
        return Standstill(quiet, limit, progress.last)

    def works(self, now: float) -> None:
        """Its stacks change: it lives."""
        self._life = now

    def went_on(self, now: float, quiet: float) -> None:
        """It went on by itself after a standstill: it may stand still for twice as long from now on."""
        self._life = now
        self._least = max(self._least, 2 * quiet)

    def _allowed(self, progress: Progress, tree: Tree) -> float | None:
        main = progress.main
        if progress.stepping and main is not None:
            return max(self._least, STEPS * (main.seconds or 0.0), USUAL * main.gap)
        if not progress.printed or any(p.main for p in tree.all.values()):
            return 2 * self._least
        return None

    def _processor(self, now: float, tree: Tree) -> None:
        used = tree.cpu
        if self._cpu is not None:
            then, before = self._cpu
            over = max(now - then, 0.1)
            spent = {key: seconds - before.get(key, 0.0) for key, seconds in used.items()}
            if sum(spent.values()) > IDLE * over:
                self._busy = now
            self._worked.append(
                any(p.state == "R" or spent[p.pid, p.born] > WORKING * over for p in _whose_work_counts(tree))
            )
        self._cpu = (now, used)

    def _at_work(self) -> bool:
        return len(self._worked) > 1 and sum(self._worked) >= MOST_LOOKS * len(self._worked)

    def _data(self, now: float, tree: Tree) -> bool:
        moved, before = tree.moved_bytes(), self._bytes
        self._bytes = (now, moved)
        return before is not None and moved - before[1] > DATA * (now - before[0])


def _whose_work_counts(tree: Tree) -> list[Process]:
    """Those that do not spin while they wait for one another: all where there is one rank at most, else no rank."""
    alone = len({p.rank for p in tree.all.values() if p.main}) < 2
    return [p for p in tree.all.values() if alone or not p.main]
