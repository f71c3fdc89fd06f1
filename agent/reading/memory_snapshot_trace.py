"""The history in a memory snapshot: how much was live, who held it, which requests failed, what never comes back.

Growth is judged between steps. Memory in training rises and falls with each step; the low points between two rises
(troughs) hold what survives a step. Troughs that rise each time are a leak, and the code whose live bytes grew from
an early trough to the last is where it is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import deadline
from .oom import LIBRARY, Frame

SWING = 0.1  # of the whole range: how far memory must fall and rise again to count as a trough
FEWEST = 4  # troughs below which nothing is said about growth
NATIVE = "code without Python frames"


@dataclass(slots=True)
class Failed:
    """A request that failed: bytes asked for, bytes the driver still had, bytes live in the trace, the frames."""

    asked: int
    free: int
    live: int
    frames: list[Frame] = field(default_factory=list)


@dataclass(slots=True)
class Trace:
    """Bytes over the recorded events. `live` counts what was allocated within the record and not freed yet.

    troughs: live bytes at the low points between rises, in order; grown: bytes by place that came to stay between
    the second trough and the last.
    """

    entries: int = 0
    allocations: int = 0
    peak: int = 0
    live: int = 0
    at_peak: Counter[str] = field(default_factory=Counter)
    ooms: list[Failed] = field(default_factory=list)
    troughs: list[int] = field(default_factory=list)
    grown: Counter[str] = field(default_factory=Counter)

    @property
    def leaks(self) -> bool:
        """Troughs rise, nearly each time, by more than a percent of the peak in all."""
        rises = [b - a for a, b in zip(self.troughs[1:], self.troughs[2:], strict=False)]
        if len(self.troughs) < FEWEST:
            return False
        growth = self.troughs[-1] - self.troughs[1]
        return growth > max(1 << 20, self.peak // 100) and sum(r > 0 for r in rises) >= 0.8 * len(rises)

    @property
    def per_cycle(self) -> float:
        """Bytes that stay after each rise and fall."""
        return (self.troughs[-1] - self.troughs[1]) / max(1, len(self.troughs) - 2)


def frames_of(raw: Sequence[Any]) -> list[Frame]:
    """Frames as the snapshot lists them, innermost first; native ones left out."""
    found = []
    for frame in raw:
        name = str(frame.get("filename", ""))
        if (name and ".py" in name) or "<" in name or "ipykernel" in name:
            found.append(Frame(0, name, str(frame.get("name", "")), f"line {frame.get('line', 0)}"))
    return found


def place_of(raw: Sequence[Any]) -> str:
    """The innermost line of the user's own code, else the innermost Python line: `train.py:30 in step`."""
    frames = frames_of(raw)
    if not frames:
        return NATIVE
    frame = next((f for f in frames if not LIBRARY.search(f.path)), frames[0])
    return f"{'/'.join(frame.path.split('/')[-2:])}:{frame.code.removeprefix('line ')} in {frame.function}"[:200]


def trace_of(entries: list[Any]) -> Trace:
    """Walk through a device's events in order.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: an entry has not the fields of one.
    """
    trace = Trace(entries=len(entries))
    curve, owners = _walk(trace, entries)
    low = _troughs(curve)
    trace.troughs = [curve[i] for i in low]
    if len(low) >= FEWEST:
        early, late = _held(entries, owners, {low[1], low[-1]})
        trace.grown = Counter({k: n - early.get(k, 0) for k, n in late.items() if n > early.get(k, 0)})
    return trace


def _walk(trace: Trace, entries: list[Any]) -> tuple[list[int], list[str]]:
    """Live bytes after each event, and the place of each allocation."""
    sizes: dict[int, tuple[int, str]] = {}
    by_place: Counter[str] = Counter()
    places: dict[tuple[int, ...], str] = {}  # by identity of the frames, which events share
    curve, owners = [0] * len(entries), [""] * len(entries)
    for i, entry in enumerate(entries):
        if i % 4096 == 0:
            deadline.check()
        action = entry["action"]
        if action == "alloc":
            raw = entry.get("frames") or []
            key = tuple(map(id, raw))
            place = places.get(key) or places.setdefault(key, place_of(raw))
            size = int(entry["size"])
            sizes[entry["addr"]] = (size, place)
            owners[i] = place
            trace.allocations += 1
            trace.live += size
            by_place[place] += size
            if trace.live > trace.peak:
                trace.peak = trace.live
        elif action == "free_completed" and (known := sizes.pop(entry["addr"], None)):
            trace.live -= known[0]
            by_place[known[1]] -= known[0]
        elif action == "oom":
            free = int(entry.get("device_free", entry.get("addr", 0)))
            trace.ooms.append(Failed(int(entry["size"]), free, trace.live, frames_of(entry.get("frames") or [])))
            trace.at_peak = Counter({k: n for k, n in by_place.items() if n > 0})
        curve[i] = trace.live
    if not trace.at_peak:
        peak = max(range(len(curve)), key=curve.__getitem__, default=-1)
        trace.at_peak = Counter(_held(entries, owners, {peak})[0]) if peak >= 0 else Counter()
    return curve, owners


def _held(entries: list[Any], owners: list[str], at: set[int]) -> list[dict[str, int]]:
    """Live bytes by place after each of these events, in order."""
    sizes: dict[int, tuple[int, str]] = {}
    now: Counter[str] = Counter()
    found = []
    for i, entry in enumerate(entries):
        if owners[i]:
            sizes[entry["addr"]] = (int(entry["size"]), owners[i])
            now[owners[i]] += int(entry["size"])
        elif entry["action"] == "free_completed" and (known := sizes.pop(entry["addr"], None)):
            now[known[1]] -= known[0]
        if i in at:
            found.append({k: n for k, n in now.items() if n > 0})
    return found


def _troughs(curve: list[int]) -> list[int]:
    """Positions of low points: memory fell there by a share of the range and rose by as much afterwards."""
    if not curve:
        return []
    swing = max(1, int((max(curve) - min(curve)) * SWING))
    found: list[int] = []
    high, low, falling = 0, 0, False
    for i, value in enumerate(curve):
        if falling:
            if value < curve[low]:
                low = i
            elif value - curve[low] >= swing:
                found.append(low)
                high, falling = i, False
        elif value > curve[high]:
            high = i
        elif curve[high] - value >= swing:
            low, falling = i, True
    return found
