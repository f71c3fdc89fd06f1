"""Metric lines of a text file, block by block: known layouts in numpy, the rest line by line."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ...run.files import open_regular, raw_blocks
from ...run.metric_names import Meaning
from ..series import Track
from .metric_text import NUMBER, Layout, Reading, candidates, is_status, learn, may_measure, read_line, status

# ----------
# Lines of one wording, read once with care and from then on by one expression.
#
# Two lines have the same wording when they are equal without their digits. What a wording means does not change, so
# that a wording without metrics is passed over at once and one with metrics is matched whole: text as it stands,
# numbers where they were.


_DIGITS = b"0123456789"
_KEPT = 20_000  # wordings remembered
_RECIPES = 512  # of those with metrics, which cost an expression each
_WANTED = rb"([-+]?[0-9][0-9.,]*(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9]+|[-+]?[nNiI][a-zA-Z]{2,7})"
_PASSED = rb"[-+0-9.,eE]+"


@dataclass(frozen=True)
class _Recipe:
    pattern: re.Pattern[bytes]
    values: list[tuple[int, Meaning, str]]  # group, meaning, raw name
    step: int | None
    epoch: int | None
    rank: int | None


class Wordings:
    """Remembers the wordings of one file."""

    def __init__(self) -> None:
        self._empty: set[bytes] = set()
        self._recipes: dict[bytes, _Recipe | None] = {}

    def read(self, line: bytes) -> Reading | None:
        """What a line says; of a known wording without the places of its numbers."""
        if is_status(line):  # digits amid the line tell whose it is
            return status(line)
        wording = line.translate(None, _DIGITS)
        if wording in self._empty:
            return None
        recipe = self._recipes.get(wording)
        if recipe is not None and (match := recipe.pattern.match(line)):
            return _by_recipe(recipe, match)
        reading = read_line(line) if may_measure(line) else None
        if reading is None:
            if len(self._empty) < _KEPT:
                self._empty.add(wording)
        elif wording not in self._recipes and len(self._recipes) < _KEPT:
            self._recipes[wording] = None  # a wording that comes a second time is worth its expression
        elif recipe is None and len(self._recipes) < _RECIPES:
            self._recipes[wording] = _recipe(line, reading)
        return reading


def _by_recipe(recipe: _Recipe, match: re.Match[bytes]) -> Reading:
    reading = Reading(rank=recipe.rank)
    if recipe.step is not None:
        reading.step = _number(match[recipe.step])
    if recipe.epoch is not None:
        reading.epoch = _number(match[recipe.epoch])
    for group, meant, raw in recipe.values:
        reading.values.append((meant, raw, _number(match[group]) * meant.factor, 0, 0))
    return reading


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        try:
            return float(text.replace(b",", b""))
        except ValueError:
            return float("nan")


def _recipe(line: bytes, reading: Reading) -> _Recipe | None:
    """The expression of a line's wording; None for progress bars and coloured lines, which stay with the reader."""
    if b"\x1b" in line or not reading.learnable or reading.total is not None:
        return None
    if any(m.metric == "bar_step_time" for m, *_ in reading.values):
        return None
    wanted = {start: (meant, raw) for meant, raw, _, start, _ in reading.values}
    parts: list[bytes] = []
    values: list[tuple[int, Meaning, str]] = []
    step = epoch = None
    at = groups = 0
    first = reading.start
    parts.append(re.escape(line[:first]))
    at = first
    passed = False
    for m in NUMBER.finditer(line, first):
        literal = line[at : m.start()]
        takes = m.start() in wanted or m.span() in (reading.step_span, reading.epoch_span)
        if not takes and not any(c in _DIGITS for c in m[0]):
            continue  # the letters `nan` or `inf` in running text
        parts.append(re.escape(literal))
        if takes:
            groups += 1
            parts.append(_WANTED)
            if m.start() in wanted:
                values.append((groups, *wanted[m.start()]))
            elif m.span() == reading.step_span:
                step = groups
            else:
                epoch = groups
        elif literal or not passed:
            parts.append(_PASSED)
        passed, at = not takes, m.end()
    parts.append(re.escape(line[at:]))
    if len(values) != len(wanted):
        return None
    return _Recipe(re.compile(b"".join(parts) + rb"\Z"), values, step, epoch, reading.rank)


# ----------

_PART = 64 << 20  # bytes of a file that are worth a thread of their own
_MIN_ROWS = 24  # rows of one length worth learning a layout for
_MAX_LAYOUTS = 512
_MAX_FAILURES = 64  # lines without columns after which no more are tried
_LINE_LIMIT = 1 << 14
_GULP = 4 << 20  # bytes taken at once: numpy passes over small blocks cost more in calls than in work
_CARRIED = 4096  # bytes of an unfinished line carried to the next block at most

_RATES = ("it/s", "s/it")

Key = tuple[str, str, int | None]


@dataclass(slots=True)
class _Counter:
    """A count of steps: those of the epochs before, the highest of this one, its number."""

    base: float
    highest: float = 0.0
    epoch: float | None = None


class LineReader:
    """Reads the metrics of one text file; feed it blocks in order, then take `tracks`."""

    def __init__(self, offset: int = 0) -> None:
        self.tracks: dict[Key, Track] = {}
        self.lines = 0
        self._offset = offset
        self._rest = b""
        self._layouts: dict[int, list[Layout]] = {}
        self._learned = self._failures = 0
        self._wordings = Wordings()
        self._base = 0.0  # steps of the parts of the file before
        self._counters: dict[float | None, _Counter] = {}  # by what they count up to
        self._redrawn: tuple[object, ...] = ()

    def read(self, blocks: Iterable[bytes]) -> dict[Key, Track]:
        """All tracks of a stream of blocks."""
        held: list[bytes] = []
        for block in blocks:
            held.append(block)
            if sum(map(len, held)) >= _GULP:
                self.feed(b"".join(held))
                held = []
        self.feed(b"".join(held), last=True)
        return self.tracks

    def follow(self, later: LineReader) -> None:
        """Take over what was read of the part of the file that follows."""
        for key, track in later.tracks.items():
            held = self.tracks.get(key)
            if held is None:
                held = self.tracks[key] = Track(track.metric, track.raw, rank=track.rank)
            held.absorb(track, self.lines, self._counted)
        self.lines += later.lines
        self._base = self._counted + later._counted

    @property
    def _counted(self) -> float:
        """Steps of the epochs that were counted to their end."""
        return max((c.base for c in self._counters.values()), default=self._base)

    def feed(self, block: bytes, *, last: bool = False) -> None:
        """One more block; an unfinished line waits for the next."""
        data = self._rest + block
        if last:
            body, self._rest = (data if not data or data.endswith(b"\n") else data + b"\n"), b""
        else:
            cut = data.rfind(b"\n") + 1
            body, self._rest = data[:cut], data[cut:]
            if len(self._rest) > 8 << 20:  # a line without end: only its head is looked at
                self._offset += len(self._rest) - _CARRIED
                self._rest = self._rest[:_CARRIED]
        if body:
            self._body(body)

    def _body(self, body: bytes) -> None:
        array = np.frombuffer(body, np.uint8)
        ends = np.flatnonzero(array == 10)
        starts = np.concatenate(([0], ends[:-1] + 1))
        lengths = ends - starts
        done = np.zeros(len(ends), dtype=bool)
        for length, layouts in self._layouts.items():
            taken = {id(layout): self._apply(layout, array, starts, lengths, done, length) for layout in layouts}
            layouts.sort(key=lambda layout: -taken[id(layout)])  # the commonest of this stretch first in the next
        if not done.all():
            self._slow(body, array, starts, lengths, done)
        self.lines += len(ends)
        self._offset += len(body)

    def _apply(
        self, layout: Layout, array: np.ndarray, starts: np.ndarray, lengths: np.ndarray, done: np.ndarray, length: int
    ) -> int:
        """Take every open line of a layout; how many there were."""
        rows = np.flatnonzero((lengths == length) & ~done)
        if not len(rows) or not length:
            return 0
        window = np.lib.stride_tricks.sliding_window_view(array, length)
        same, steps, values = layout.read(window[starts[rows]])
        rows = rows[same]
        if not len(rows):
            return 0
        done[rows] = True
        at_steps = np.full(len(rows), np.nan) if steps is None else steps
        lines, offsets = rows + self.lines + 1, starts[rows] + self._offset
        for (meant, raw, _), column in zip(layout.values, values, strict=True):
            self._track(meant.metric, raw, layout.rank).extend(at_steps, column, lines, offsets)
        return len(rows)

    def _slow(self, body: bytes, array: np.ndarray, starts: np.ndarray, lengths: np.ndarray, done: np.ndarray) -> None:
        # Where most lines were read as columns, the few left are looked at without a search of the whole.
        if done.mean() < 0.8 and (possible := candidates(body, starts)) is not None:
            wanted = np.flatnonzero(possible & ~done)
        else:
            wanted = np.flatnonzero(~done)
        open_lengths = Counter(lengths[wanted].tolist())
        for i in wanted.tolist():
            if done[i]:
                continue
            start, length = int(starts[i]), int(lengths[i])
            if length < 6:
                continue
            line = body[start : start + min(length, _LINE_LIMIT)].rstrip(b"\r")
            for piece in line.split(b"\r") if b"\r" in line else (line,):
                reading = self._wordings.read(piece)
                if reading is not None:
                    self._record(reading, self.lines + i + 1, self._offset + start)
                    if open_lengths[length] >= _MIN_ROWS and self._failures < _MAX_FAILURES + 4 * self._learned:
                        self._learn(line, i, array, starts, lengths, done, open_lengths)

    def _learn(
        self, line: bytes, i: int, array: np.ndarray, starts: np.ndarray, lengths: np.ndarray, done: np.ndarray,
        open_lengths: Counter[int],
    ) -> None:  # fmt: skip
        reading = read_line(line)  # once more: a wording that is known does not say where its numbers stand
        layout = learn(line, reading) if reading and len(self._layouts) < _MAX_LAYOUTS else None
        if layout is None:
            self._failures += 1
            return
        done[i] = True  # this one was recorded already
        taken = self._apply(layout, array, starts, lengths, done, len(line))
        open_lengths[len(line)] -= taken + 1
        if taken < 4:
            self._failures += 1
            return
        self._learned += 1
        self._layouts.setdefault(len(line), []).append(layout)

    def _record(self, reading: Reading, line: int, offset: int) -> None:
        step = self._global_step(reading)
        if reading.total is not None:
            drawn = (line, step, *((raw, value) for _, raw, value, _, _ in reading.values if raw not in _RATES))
            if drawn == self._redrawn:
                return  # a bar drawn again is no further point
            self._redrawn = drawn
        for meant, raw, value, _, _ in reading.values:
            if meant.metric == "bar_step_time" and reading.total is not None:
                raw = f"{raw} of {reading.total:g}"  # bars of an evaluation count up to another number
            track = self._track(meant.metric, raw, reading.rank)
            track.add(step, value, line, offset)
            track.drawn += reading.total is not None

    def _global_step(self, reading: Reading) -> float:
        """The step, counted on over epochs where a counter begins anew in each."""
        if reading.step is None:
            return float("nan")
        counter = self._counters.setdefault(reading.total, _Counter(self._base))
        step = reading.step
        if reading.epoch is not None:
            if counter.epoch is not None and reading.epoch == counter.epoch + 1 and step <= counter.highest:
                counter.base += max(reading.total or 0.0, counter.highest)
                counter.highest = 0.0
            elif counter.epoch is not None and reading.epoch < counter.epoch:
                counter.base = counter.highest = 0.0
            counter.epoch = reading.epoch
        counter.highest = max(step, counter.highest)
        return step + counter.base

    def _track(self, metric: str, raw: str, rank: int | None) -> Track:
        key = (metric, raw, rank)
        track = self.tracks.get(key)
        if track is None:
            if len(self.tracks) >= 4096:
                key = (metric, "", None)
                track = self.tracks.setdefault(key, Track(metric, raw))
            else:
                track = self.tracks[key] = Track(metric, raw, rank=rank)
        return track


def read_parts(path: Path, size: int) -> dict[Key, Track]:
    """All tracks of a big plain file, its parts read by several threads: numpy lets them run side by side."""
    count = min(os.cpu_count() or 1, 4, max(1, size // _PART))
    cuts = sorted({0, *(_line_start(path, size * i // count) for i in range(1, count)), size})

    def read(part: tuple[int, int]) -> LineReader:
        reader = LineReader(part[0])
        reader.read(_between(path, *part))
        return reader

    with ThreadPoolExecutor(count) as pool:
        first, *rest = pool.map(read, pairwise(cuts))
    for later in rest:
        first.follow(later)
    return first.tracks


def _line_start(path: Path, at: int) -> int:
    """Offset of the first line that begins at or after `at`; 0 when none does for a long way."""
    with open_regular(path) as stream:
        stream.seek(at)
        end = (stream.read(16 << 20) or b"").find(b"\n")
    return at + end + 1 if end >= 0 else 0


def _between(path: Path, start: int, end: int) -> Iterator[bytes]:
    left = end - start
    for block in raw_blocks(path, start):
        yield block[:left]
        left -= len(block)
        if left <= 0:
            return
