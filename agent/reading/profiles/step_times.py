"""Who is slow: seconds a step of several ranks set against each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..curves.curves import line_at, named_series
from ..curves.rank_series import RankTable
from ..curves.series import Series
from ..run.files import Line, RunFile
from ..stacks.flight_recordings import Recording, groups
from .profile_tables import part_of

if TYPE_CHECKING:
    from ..run.workspace import Workspace

RATIO = 1.15  # a rank that needs this much longer than the middle one is slow
SHARE = 0.7  # of the steps in which a persistent one is among the slow
WARM_UP = 2  # first steps, which hold compiling and allocating
FEWEST = 6  # steps, or collectives, needed to judge
CLEAR = 1.5  # ratio in every single step from which fewer steps are enough
CLEAR_STEPS = 4
LATE = 0.003  # seconds after the middle rank below which arrivals count as equal


@dataclass(slots=True)
class Skew:
    """How the ranks of one table differ.

    Attributes:
        ratio: of the slowest rank of a step to the middle one, middle over the steps.
        slow: ranks that are slow in most steps, slowest first, each with its own ratio to the middle rank.
        share: of the steps in which the slowest of them is slow.
        in_turns: steps are uneven, but another rank is slow each time.
        lost: seconds a step that the others wait, by the middle over the steps.
    """

    ratio: float
    slow: list[tuple[int, float]] = field(default_factory=list)
    share: float = 0.0
    in_turns: bool = False
    lost: float = 0.0
    steps: int = 0


def skew(table: RankTable, waiting: bool = False) -> Skew | None:
    """Judge a table of seconds; None where there are too few steps.

    Args:
        waiting: the numbers are time spent waiting for others, so that the slow rank is the one that waits least.
    """
    values = table.values[WARM_UP:] if len(table.values) > FEWEST + WARM_UP else table.values
    if len(values) < CLEAR_STEPS or values.min() < 0:
        return None
    if waiting:  # what a rank waits less than the one that waits most, it computed longer
        behind = values.max(axis=1, keepdims=True) - values
        base = float(np.median(values.max(axis=1)))
        values = base + behind
    middle = np.median(values, axis=1) if values.shape[1] > 2 else values.min(axis=1)
    middle = np.maximum(middle, 1e-9)
    ratios = values / middle[:, None]
    slowest = ratios.max(axis=1)
    if len(values) < FEWEST and not (
        float(slowest.min()) > CLEAR and len(set(np.argmax(ratios, axis=1).tolist())) == 1
    ):
        return None
    found = Skew(float(np.median(slowest)), steps=len(values), lost=float(np.median(values.max(axis=1) - middle)))
    shares = (ratios > RATIO).mean(axis=0)
    own = np.median(ratios, axis=0)
    found.slow = sorted(
        ((table.ranks[i], float(own[i])) for i in np.flatnonzero((shares >= SHARE) & (own > RATIO))),
        key=lambda x: -x[1],
    )
    if found.slow:
        found.share = float(shares[table.ranks.index(found.slow[0][0])])
    else:
        turns = Counter(np.argmax(ratios[slowest > RATIO], axis=1).tolist())
        uneven = sum(turns.values()) / len(values)
        found.in_turns = uneven >= SHARE and len(turns) > 1 and max(turns.values()) < SHARE * len(values)
    return found


@dataclass(slots=True)
class Arrivals:
    """Who enters the collectives of a group last: `late` seconds after the middle rank, in `share` of them."""

    group: str
    rank: int
    late: float
    share: float
    count: int
    record: int


def arrivals(recording: Recording) -> Arrivals | None:
    """The rank that enters the collectives of the largest group last, most of the time; None where none does."""
    known = sorted(groups(recording), key=lambda g: -len(g.work))
    if not known or len(known[0].work) < 2:
        return None
    group = known[0]
    columns = []
    for work in group.work.values():
        rows = {row[0]: int(at) for row, at in zip(work.rows, work.created.tolist(), strict=True) if at}
        columns.append(rows)
    common = sorted(set.intersection(*(set(c) for c in columns)))[WARM_UP:]
    if len(common) < FEWEST:
        return None
    times = np.array([[c[n] for c in columns] for n in common], dtype=np.float64) / 1e9
    middle = np.median(times, axis=1) if times.shape[1] > 2 else times.min(axis=1)
    late = times - middle[:, None]
    uneven = late.max(axis=1) > LATE  # several collectives of one step follow each other at once: one counts
    if uneven.sum() < FEWEST:
        return None
    last = Counter(np.argmax(late[uneven], axis=1).tolist()).most_common(1)[0]
    share = last[1] / int(uneven.sum())
    if share < SHARE:
        return None
    rank = list(group.work)[last[0]]
    return Arrivals(
        group.label, rank, float(np.median(late[uneven][:, last[0]])), share, int(uneven.sum()),
        group.work[rank].records[-1],
    )  # fmt: skip


# ----------
# Where a run says itself that its time goes: several durations on each line, columns of them, a table at the end.
#
# What the parts are called stands in `knowledge/profiles.yaml` (`breakdown`). Whether the time of a `step` holds the
# waiting for its batch is told by the numbers; where they do not tell, the smaller share is taken.

_BYTES = 32 << 20  # of one log
_FEWEST = 3  # lines that say the same
_UNITS = {
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "min": 60.0,
}
_HINT = re.compile(rb"\d ?(?:ms|us|\xc2\xb5s|s|secs?|seconds?|min)\b(?!/)")
_DURATION = re.compile(
    r"(?P<label>[A-Za-z][\w+-]*(?:[ /][A-Za-z][\w+-]*){0,2}?)(?:\s*[:=]\s*|\s+in\s+|\s+took\s+|\s*\(|\s+)"
    r"(?P<n>\d+(?:\.\d+)?)\s?(?P<unit>ms|us|µs|s|secs?|seconds?)\b(?!/)"
)
_ROW = re.compile(
    r"^[\s|*#-]*(?P<label>[A-Za-z][\w+/ .-]{1,40}?)\s*[:|]?\s+(?P<n>\d+(?:\.\d+)?)\s?(?P<unit>ms|s|secs?|seconds?|min)"
    r"\b[\s|,(]*(?P<share>\d{1,3}(?:\.\d+)?)\s?%"
)
_TIMED = re.compile(
    r"(?i)(?:^|[/_.])(?:time|timing|timers?|t|perf)[/_.]|_(?:ms|us|s|secs?|seconds|time)$|_time_(?:ms|s|sec)$"
)
_SPLIT = re.compile(r"[\s_/+.-]+")
_DRESS = frozenset({
    "time", "timing", "timers", "timer", "t", "perf", "ms", "us", "s", "sec", "secs", "seconds", "avg", "mean", "the",
    "took", "in", "train", "duration", "elapsed",
})  # fmt: skip
_SECONDS = frozenset({"step_time", "data_time", "generation_time", "update_time"})  # read in seconds already


@dataclass(frozen=True, slots=True)
class TimeShare:
    """The share of the time (0 to 1) that a part takes, with a line that says so."""

    part: str
    share: float
    file: RunFile
    line: Line
    rank: int | None = None


@lru_cache(maxsize=4096)
def part_named(label: str) -> str | None:
    """The part of a step that a label speaks of, or None; the last words count where a sentence stands before."""
    words = [w for w in _SPLIT.split(label.lower()) if w]
    words = [w for w in words if w not in _DRESS] or words
    for cut in range(len(words)):
        if part := part_of(" ".join(words[cut:]), "breakdown"):
            return part
    return None


def time_shares(ws: Workspace) -> list[TimeShare]:
    """Shares of the time by part, of every file that tells them."""
    return ws.memo("time_shares", lambda: list(_found(ws)))


def _found(ws: Workspace) -> Iterator[TimeShare]:
    for file in ws.by_role("log", "other"):
        if not file.good and file.size <= _BYTES:
            yield from _of_log(ws, file)
    yield from _of_columns(ws)


def _of_log(ws: Workspace, file: RunFile) -> Iterator[TimeShare]:
    rows: list[tuple[str | None, float, Line]] = []
    said: list[tuple[dict[str, float], Line]] = []
    for line in ws.lines(file):
        if not _HINT.search(line.data) or len(line.data) > 2000:
            if rows:
                yield from _of_table(file, rows)
            rows = []
            continue
        text = line.text
        if row := _ROW.match(text):
            rows.append((part_named(row["label"]), float(row["share"]) / 100, line))
            continue
        if len(parts := durations(text)) >= 2:
            said.append((parts, line))
    yield from _of_table(file, rows)
    yield from _of_lines(file, said)


def durations(text: str) -> dict[str, float]:
    """Seconds of each part that a line names, those of one part added up."""
    parts: dict[str, float] = {}
    for found in _DURATION.finditer(text):
        if part := part_named(found["label"]):
            parts[part] = parts.get(part, 0.0) + float(found["n"]) * _UNITS[found["unit"]]
    return parts


def _of_table(file: RunFile, rows: list[tuple[str | None, float, Line]]) -> Iterator[TimeShare]:
    """A table of three rows or more whose shares make up the whole."""
    if len(rows) < _FEWEST or not 0.85 <= sum(share for _, share, _ in rows) <= 1.02:
        return
    parts: dict[str, tuple[float, Line]] = {}
    for part, share, line in rows:
        if part:
            held, at = parts.get(part, (0.0, line))
            parts[part] = (held + share, at)
    for part, (share, line) in parts.items():
        yield TimeShare(part, share, file, line, file.rank)


def _of_lines(file: RunFile, said: list[tuple[dict[str, float], Line]]) -> Iterator[TimeShare]:
    """The lines that name the same parts, where most that name any do; the first holds the warm-up."""
    if not said:
        return
    shape, count = Counter(frozenset(parts) for parts, _ in said).most_common(1)[0]
    if count < _FEWEST or 2 * count < len(said):
        return
    same = [(parts, line) for parts, line in said if parts.keys() == shape]
    same = same[1:] if len(same) > _FEWEST else same
    middle = {part: float(np.median([parts[part] for parts, _ in same])) for part in shape}
    for part, share in shares_of(middle).items():
        yield TimeShare(part, share, file, same[-1][1], file.rank)


def shares_of(seconds: dict[str, float]) -> dict[str, float]:
    """The share of each part; nothing where it is not known what the rest of the time is."""
    whole = seconds.get("whole")
    parts = {
        ("data" if part == "batch" else part): took
        for part, took in seconds.items()
        if part != "whole" and not (part == "batch" and not _beside(seconds))
    }
    total = sum(parts.values())
    if whole is None and "compute" not in parts:
        return {}
    base = total if whole is None else whole if whole >= 0.95 * total else whole + total
    return {part: took / base for part, took in parts.items()} if base > 0 else {}


def _beside(seconds: dict[str, float]) -> bool:
    """Whether the time of a `batch` is that of getting it: what is done with it has a time of its own."""
    return "data" not in seconds and ("whole" in seconds or "compute" in seconds)


def _of_columns(ws: Workspace) -> Iterator[TimeShare]:
    """Curves whose names speak of durations, of one file and rank."""
    groups: dict[tuple[str, int | None, str | None], dict[str, list[Series]]] = {}
    for s in named_series(ws, _TIMED, b""):
        part = part_named(s.raw) if len(s) >= _FEWEST and "tfevents" not in s.file.path.name else None
        if part:
            groups.setdefault((s.file.name, s.rank, s.variant), {}).setdefault(part, []).append(s)
    for parts in groups.values():
        seconds = {part: sum(_middle(s) for s in found) for part, found in parts.items()}
        for part, share in shares_of(seconds).items():
            s = max(parts[part if part in parts else "batch"], key=_middle)
            yield TimeShare(part, share, s.file, line_at(s, len(s) - 1), s.rank)


def _middle(s: Series) -> float:
    """Seconds a point by the middle; a curve with few points beside others (a save now and then) weighs by its sum."""
    values = s.values[s.finite]
    values = values[1:] if len(values) > _FEWEST else values
    factor = 1.0 if s.metric in _SECONDS else _UNITS.get(_SPLIT.split(s.raw.lower())[-1], 1.0)
    return float(np.median(values)) * factor if len(values) else 0.0
