"""Stacks of running processes, read again and again: the share of samples in each place is a rough profile."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..deadline import check
from ..shell import Completed
from .files import Line
from .live_dumps import Target, why_not
from .stack_dumps import stacks
from .stack_places import user_frame, where

if TYPE_CHECKING:
    from ..workspace import Workspace

SECONDS, MOST = 10.0, 4000  # limit of one dump; samples in all


@dataclass(slots=True)
class Samples:
    """How often the main threads stood where, and one output that shows each."""

    total: int = 0
    places: Counter[str] = field(default_factory=Counter)
    functions: Counter[str] = field(default_factory=Counter)
    shown: dict[str, tuple[Completed, str]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)

    def wheres(self) -> list[tuple[str, float]]:
        """Places with their share of the samples, the largest first."""
        return [(w, n / self.total) for w, n in self.places.most_common()]

    def frames(self) -> list[tuple[str, float, tuple[Completed, str]]]:
        """The user's lines seen most often, with their share."""
        return [(f, n / self.total, self.shown[f]) for f, n in self.functions.most_common(12)]


def sampled(ws: Workspace, found: list[Target], seconds: float, rate: int) -> Samples:
    """Dump each target's main thread over and over; a process that ends or refuses is left out from then on."""
    samples, left = Samples(), list(found)
    until = time.monotonic() + seconds
    while left and samples.total < MOST and time.monotonic() < until:
        began = time.monotonic()
        for t in list(left):
            check()
            done = ws.shell(["py-spy", "dump", "--nonblocking", "--pid", str(t.process.pid)], SECONDS)
            if done.code == 0:
                _count(samples, done)
            else:
                samples.trouble.append(why_not(ws, done, t.process))
                left.remove(t)
        time.sleep(max(0.0, 1 / rate - (time.monotonic() - began)))
    return samples


def _count(samples: Samples, done: Completed) -> None:
    lines = [Line(n, 0, x.encode()) for n, x in enumerate(done.stdout.split("\n"), 1)]
    main = next((s for s in stacks(lines) if s.thread == "MainThread" and s.frames), None)
    if main is None:
        return
    place, frame = where(main)
    samples.total += 1
    samples.places[place] += 1
    samples.shown.setdefault(place, (done, frame.line.text))
    if own := user_frame(main):
        samples.functions[own.text] += 1
        samples.shown.setdefault(own.text, (done, own.line.text))
