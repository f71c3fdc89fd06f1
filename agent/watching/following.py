"""Several runs followed at once, each by a thread of its own: one on a dead mount costs the others nothing."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from .alarm import Alarm
from .kinds import LIMITS
from .run import Run, State

_REST, _LONGEST = 10.0, 5.0  # seconds of rest for a second that looking keeps a core busy, and at most
_QUEUE = 10_000  # alarms that wait to be told


@dataclass(slots=True)
class _Followed:
    run: Run
    since: float | None = None  # when the look began that is under way
    done: bool = False  # nothing more will come of it
    stuck: bool = False
    fault: BaseException | None = None
    looks: int = 0


@dataclass(slots=True)
class Following:
    """Follows runs until told to stop.

    Attributes:
        every: seconds between two looks.
        once: what has come so far is read and judged, then the run is done.
        linger: seconds after the end of a run until it is done; infinite to stay.
        patience: seconds to wait for something to follow.
        unreachable: seconds that a look may take until the folder counts as dead.
    """

    runs: list[Run]
    every: float = 1.0
    once: bool = False
    linger: float = 600.0
    patience: float = 600.0
    unreachable: float = LIMITS.unreachable
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _queue: queue.Queue[Alarm] = field(default_factory=lambda: queue.Queue(_QUEUE))
    _stop: threading.Event = field(default_factory=threading.Event)
    _followed: list[_Followed] = field(default_factory=list)
    _last: Alarm | None = None

    def start(self) -> None:
        """Begin to look."""
        self._followed = [_Followed(run) for run in self.runs]
        for one in self._followed:  # a daemon: what hangs on a dead server must not keep us from ending
            threading.Thread(target=self._follow, args=(one,), name=f"watch {one.run.root}", daemon=True).start()

    def alarms(self, wait: float) -> Iterator[Alarm]:
        """What came, or nothing after `wait` seconds.

        Raises:
            RuntimeError: a thread died of a bug of ours.
        """
        for one in self._followed:
            if one.fault is not None:
                raise RuntimeError(f"following {one.run.root} failed") from one.fault
            if (alarm := self._unreachable(one)) is not None:
                yield self._counted(alarm)
        try:
            yield self._counted(self._queue.get(timeout=wait))
            while True:
                yield self._counted(self._queue.get_nowait())
        except queue.Empty:
            return

    @property
    def done(self) -> bool:
        """Whether every run is done, and all of it told."""
        return all(f.done or (f.stuck and self.once) for f in self._followed) and self._queue.empty()

    @property
    def followed(self) -> bool:
        """Whether there ever was anything to follow."""
        return any(f.run.followed or f.run.state.step is not None for f in self._followed)

    def states(self) -> list[tuple[str, State]]:
        """How each run stands."""
        return [(str(f.run.root), f.run.state) for f in self._followed]

    def stop(self) -> None:
        """Look no more. What hangs is left behind."""
        self._stop.set()
        for one in self._followed:
            if one.since is None or time.monotonic() - one.since < self.unreachable:
                deadline = time.monotonic() + 2.0
                while not one.done and one.since is not None and time.monotonic() < deadline:
                    time.sleep(0.02)

    def _counted(self, alarm: Alarm) -> Alarm:
        self.counts[(alarm.kind, alarm.severity)] += 1
        return alarm

    def _follow(self, one: _Followed) -> None:
        began = time.monotonic()
        over: float | None = None
        try:
            while not self._stop.is_set():
                one.since, busy = time.monotonic(), time.thread_time()
                last = self.once and one.looks > 0 and not one.run.more
                for alarm in one.run.look(last):
                    self._queue.put(alarm)
                one.looks += 1
                one.since, one.stuck = None, False
                rest = min(_LONGEST, _REST * (time.thread_time() - busy))
                over = (over or time.monotonic()) if one.run.ended else None
                nothing = not one.run.followed and time.monotonic() - began > self.patience
                if last or nothing or (over is not None and time.monotonic() - over >= self.linger):
                    break
                if self.once and nothing is False and not one.run.followed:
                    self._stop.wait(0.2)
                elif not self.once and not one.run.more:
                    self._stop.wait(max(self.every, rest))
        except Exception as e:  # noqa: BLE001 - told by the thread that asks for alarms
            one.fault = e
        finally:
            one.since, one.done = None, True
            one.run.close()

    def _unreachable(self, one: _Followed) -> Alarm | None:
        if one.stuck or one.since is None or time.monotonic() - one.since < self.unreachable:
            return None
        one.stuck = True
        when = datetime.now().astimezone().isoformat(timespec="seconds")
        text = f"it does not answer for {self.unreachable:.0f} s"
        root = str(one.run.root)
        return Alarm(when, "alarm", "unreachable", None, None, root, None, None, "", text, root)


def runs_of(paths: list[Path], kinds: frozenset[str], stall: float, pids: tuple[int, ...]) -> list[Run]:
    """A run for each path; nothing is asked of them yet."""
    return [Run(p, kinds, stall, pids) for p in paths]
