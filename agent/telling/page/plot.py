"""One metric as a drawing: its curves around the event, with an overview, marks, gaps and a text that says the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import numpy as np

from ...reading.curves.series import Series, extremes
from .page_markup import Html, number, tag

# ----------
# Axes of a plot: a value's place between two ends, and ticks at round numbers.


HUGE = 1e300  # beyond it differences overflow
LOG_SPAN = 3.0  # powers of ten between least and greatest from which a straight axis would show the greatest alone
_LEAST, _GREATEST = 1e-307, 1e308
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high`, drawn from `start` to `end`; by their logarithm where `log`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, values: np.ndarray) -> np.ndarray:
        """Where values are drawn; those beyond an end stand at it."""
        low, high, given = self.low, self.high, np.clip(values, self.low, self.high)
        if self.log:
            low, high, given = math.log10(low), math.log10(high), np.log10(given)
        share = (given / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)  # halves: the whole may overflow
        return self.start + share * (self.end - self.start)

    def place(self, value: float) -> float:
        """Where one value is drawn."""
        return float(self.at(np.array([value]))[0])

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within the axis, in order."""
        return _decades(self.low, self.high, most) if self.log else _round_values(self.low, self.high, most)


def axis_of(values: np.ndarray, start: float, end: float) -> Axis:
    """An axis that all finite values fit on, with a little room; by logarithm where their span demands it."""
    known = np.clip(values[np.isfinite(values)], -HUGE, HUGE)
    known = np.where(np.abs(known) < _LEAST, 0.0, known)
    if not len(known):
        return Axis(0.0, 1.0, start, end)
    low, high = float(known.min()), float(known.max())
    if low > 0 and (span := math.log10(high) - math.log10(low)) >= LOG_SPAN:
        room = 10 ** (span * 0.04)
        return Axis(max(low / room, _LEAST), min(high * room, _GREATEST), start, end, log=True)
    room = (high / 2 - low / 2) * 0.12 or abs(high) * 0.05 or 0.5
    return Axis(low - room if low < 0 or low - room > 0 else min(low, 0.0), high + room, start, end)


def steps_axis(low: float, high: float, start: float, end: float) -> Axis:
    """The axis of steps: exactly from the first to the last."""
    return Axis(low, high if high > low else low + 1, start, end)


def _round_values(low: float, high: float, most: int) -> list[float]:
    span = high / most - low / most
    if not span > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span))
    width = next(power * m for m in (1, 2, 5, 10) if power * m >= span * 0.999)
    first = math.ceil(low / width - 1e-9)
    found = [(first + i) * width for i in range(most + 2)]
    return [0.0 if abs(v) < width / 1e6 else v for v in found if low <= v <= high] or [low]


def _decades(low: float, high: float, most: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    stride = max(1, math.ceil((last - first + 1) / most))
    return [10.0**n for n in range(first, last + 1, stride) if low <= 10.0**n <= high] or [low]


def said(value: float, is_bytes: bool = False) -> str:
    """A value as a tick or a sentence says it."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if is_bytes:
        return f"{value / _GIB:.3g} GiB"
    size = abs(value)
    if value == int(value) and size < 1e5:
        return f"{int(value):,}"
    if size and (size >= 1e5 or size < 1e-3):
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.4g}"


def said_step(step: float) -> str:
    """A step as people look it up: whole, in groups of three."""
    return f"{int(step):,}" if abs(step) < 1e15 else f"{step:.4g}"


# ----------
# Points of a curve as few enough to draw: extremes are kept, and gaps where a value was not finite.

MOST = 600  # points drawn of a line
_BUCKETS = MOST // 4  # of each the first, last, least and greatest are kept
_APART = 3.0  # units of the drawing between marks of values that are not finite, below which they are one


@dataclass(frozen=True, slots=True)
class Points:
    """Steps and values in the order of the file; a value that is not finite is a gap."""

    steps: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)

    def within(self, low: float, high: float) -> Points:
        """Those of steps between two, both included."""
        keep = (self.steps >= low) & (self.steps <= high)
        return Points(self.steps[keep], self.values[keep])

    @property
    def finite(self) -> np.ndarray:
        """Mask of the finite values."""
        return np.isfinite(self.values)


def thinned(points: Points) -> Points:
    """At most `MOST` points: of each stretch of steps the first, last, least and greatest."""
    if len(points) <= MOST:
        return points
    steps = points.steps
    low, width = float(steps.min()), float(np.ptp(steps)) or 1.0
    number = np.minimum((steps - low) / width * _BUCKETS, _BUCKETS - 1).astype(np.int64)
    starts = np.flatnonzero(np.concatenate(([True], np.diff(number) != 0)))
    if len(starts) > _BUCKETS:  # steps that go back again and again: stretches of the file instead
        starts = np.unique(np.linspace(0, len(steps), _BUCKETS, endpoint=False).astype(np.int64))
    keep = extremes(points.values, starts)
    return Points(steps[keep], points.values[keep])


def segments(points: Points) -> list[slice]:
    """Stretches that a line may be drawn through: no gap in them, and no step that goes back."""
    if not len(points):
        return []
    finite = points.finite
    broken = np.concatenate(([True], (np.diff(points.steps) < 0) | ~finite[1:] | ~finite[:-1]))
    starts = np.flatnonzero(broken)
    ends = np.append(starts[1:], len(points))
    return [slice(int(a), int(b)) for a, b in zip(starts, ends, strict=True) if finite[a]]


def gaps(points: Points) -> np.ndarray:
    """Stretches of steps where no value is finite: rows of the least and the greatest of its ends."""
    bad = ~points.finite
    turns = np.flatnonzero(np.diff(np.concatenate(([False], bad, [False])).astype(np.int8)))
    return np.sort(np.column_stack((points.steps[turns[::2]], points.steps[turns[1::2] - 1])), axis=1)


def strips(stretches: np.ndarray) -> list[tuple[float, float]]:
    """Stretches of an axis, rows of start and end, in order; those that touch, or nearly, are one."""
    found: list[tuple[float, float]] = []
    for start, end in np.unique(stretches.round(1), axis=0).tolist():
        if found and start - found[-1][1] <= _APART:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


@dataclass(frozen=True, slots=True)
class Band:
    """What many lines cover: least, greatest and median of them in each stretch of steps."""

    steps: np.ndarray
    least: np.ndarray
    greatest: np.ndarray
    median: np.ndarray


def band(lines: list[Points], low: float, high: float) -> Band:
    """The band of many lines between two steps; stretches without a finite value are left out."""
    width = (high - low) or 1.0
    least = np.full(_BUCKETS, np.inf)
    greatest = np.full(_BUCKETS, -np.inf)
    means = np.full((len(lines), _BUCKETS), np.nan)
    for row, line in enumerate(lines):
        inside = line.within(low, high)
        steps, values = inside.steps[inside.finite], inside.values[inside.finite]
        number = np.minimum((steps - low) / width * _BUCKETS, _BUCKETS - 1).astype(np.int64)
        np.minimum.at(least, number, values)
        np.maximum.at(greatest, number, values)
        counts = np.bincount(number, minlength=_BUCKETS)
        sums = np.bincount(number, weights=values, minlength=_BUCKETS)
        np.divide(sums, counts, out=means[row], where=counts > 0)
    known = np.flatnonzero(np.isfinite(least) & np.isfinite(means).any(axis=0))
    with np.errstate(over="ignore"):
        middle = np.nanmedian(means[:, known], axis=0) if len(known) else np.array([])
    return Band(low + (known + 0.5) * width / _BUCKETS, least[known], greatest[known], middle)


# ----------
# Which part of a curve a plot shows: all of it, or what is around the event with an overview below.

_BEFORE, _AFTER = 45, 20  # points around the event
_MOST_OF_IT = 0.6  # of all steps, from which the whole is shown
_BEYOND = 0.5  # of all steps: a mark further out belongs to something else


@dataclass(frozen=True, slots=True)
class View:
    """Steps from the first to the last of all curves, and those that are drawn large."""

    first: float
    last: float
    low: float
    high: float

    @property
    def whole(self) -> bool:
        """Whether all is drawn large."""
        return (self.low, self.high) == (self.first, self.last)


def view(lines: list[Series], places: dict[str, float]) -> tuple[View, dict[str, float]]:
    """What to show of some curves, and the marks that fall on it.

    Args:
        places: of marks, as steps; those far from all points are left out.
    """
    own = [s for s in lines if not s.file.good] or lines
    steps = np.concatenate([s.steps for s in own])
    first, last = float(steps.min()), float(steps.max())
    reach, spacing = max((last - first) * _BEYOND, 1.0), _spacing(own)
    reach = max(reach, 2 * spacing)
    near = {name: at for name, at in places.items() if first - reach <= at <= last + reach}
    first, last = min([first, *near.values()]), max([last, *near.values()])
    whole = View(first, last, first, last)
    if not near:
        return whole, near
    low = max(first, min(near.values()) - _BEFORE * spacing)
    high = min(last, max(near.values()) + _AFTER * spacing)
    if high - low >= _MOST_OF_IT * (last - first) or _points(own, low, high) < 3:
        return whole, near
    return View(first, last, low, high), near


def _spacing(lines: list[Series]) -> float:
    """Steps between neighbouring points of the fullest curve."""
    widths = np.diff(max(lines, key=len).steps)
    widths = widths[widths > 0]
    return float(np.median(widths)) if len(widths) else 1.0


def _points(lines: list[Series], low: float, high: float) -> int:
    return max(int(((s.steps >= low) & (s.steps <= high)).sum()) for s in lines)


# ----------
# What tells the curves of one plot apart, in few words.

LENGTH = 15  # characters of a label beside its curve


def labels(lines: list[Series]) -> list[str]:
    """A label for each curve: of variant, attempt, rank, file and spelling what differs among them."""
    parts: list[list[str]] = [["healthy run"] if s.file.good else [] for s in lines]
    for of in _TOLD_APART:
        told = [of(s) for s in lines]
        if len(set(told)) > 1:
            for part, text in zip(parts, told, strict=True):
                part += [text] if text else []
        if len({tuple(p) for p in parts}) == len(lines):
            break
    return [", ".join(p) or PurePosixPath(s.file.name).name for p, s in zip(parts, lines, strict=True)]


def short(label: str) -> str:
    """A label as it fits beside its curve."""
    return label if len(label) <= LENGTH else f"{label[: LENGTH - 5]}..{label[-3:]}"


_TOLD_APART: tuple[Callable[[Series], str], ...] = (
    lambda s: s.variant or s.file.variant or "",
    lambda s: f"attempt {s.attempt}" if s.attempt is not None else "",
    lambda s: f"rank {s.rank}" if s.rank is not None else "",
    lambda s: "" if s.file.good else s.file.run,
    lambda s: PurePosixPath(s.file.name).name,
    lambda s: s.file.name,
    lambda s: s.raw,
)


# ----------

WIDTH, LEFT, TOP, HEIGHT = 480, 56, 34, 140
_OVERVIEW, _ROW = 30, 13  # heights of the overview and of a label
_PALETTE = 6


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve and what it is called; `good` is the healthy run's, `apart` is drawn over a band."""

    label: str
    points: Points
    good: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric with its curves, what is shown of it, and the marks on it."""

    ident: str
    metric: str
    curves: list[Curve]
    view: View
    marks: dict[str, float] = field(default_factory=dict)
    stepped: bool = True
    text: str = ""

    @property
    def banded(self) -> bool:
        """Whether there are too many curves to tell apart."""
        return sum(not c.good for c in self.curves) > _PALETTE

    @property
    def apart(self) -> list[Curve]:
        """Curves that are drawn one by one."""
        return [c for c in self.curves if c.good or c.apart][:4] if self.banded else self.curves

    @property
    def is_bytes(self) -> bool:
        """Whether values are bytes: of memory, and too large for any other unit."""
        most = max((float(np.max(np.abs(c.points.values[c.points.finite]), initial=0)) for c in self.curves), default=0)
        return "memory" in self.metric and most > 1e7


def draw(figure: Figure) -> Html:
    """The drawing as an element of its own; labels of curves stand at their right ends."""
    labelled = len(figure.curves) > 1
    right = WIDTH - (104 if labelled else 14)
    x = steps_axis(figure.view.low, figure.view.high, LEFT, right)
    shown = [c.points.within(figure.view.low, figure.view.high) for c in figure.curves]
    y = axis_of(np.concatenate([p.values for p in shown]), TOP + HEIGHT, TOP)
    height = TOP + HEIGHT + 24 + (0 if figure.view.whole else _OVERVIEW + 20)
    parts = [*_grid(figure, x, y), *_gaps(figure, x), *_curves(figure, x, y), *_marks(figure, x)]
    if labelled:
        parts += _labels(figure, x, y)
    if not figure.view.whole:
        parts += _overview(figure, right)
    ident = figure.ident
    return tag(
        "svg", tag("title", figure.metric.replace("_", " "), id=f"{ident}-title"),
        tag("desc", figure.text, id=f"{ident}-text"), *parts,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {height}", role="img",
        aria_labelledby=f"{ident}-title {ident}-text",
    )  # fmt: skip


def _grid(figure: Figure, x: Axis, y: Axis) -> list[Html]:
    parts = []
    for value in y.ticks():
        at = y.place(value)
        parts.append(tag("line", class_="grid", x1=x.start, x2=x.end, y1=at, y2=at))
        parts.append(tag("text", said(value, figure.is_bytes), class_="tick end", x=LEFT - 6, y=at + 4))
    for value in x.ticks(4):
        at = x.place(value)
        parts.append(tag("line", class_="axis", x1=at, x2=at, y1=TOP + HEIGHT, y2=TOP + HEIGHT + 4))
        text, side = said_step(value), "middle"
        if at + 3.5 * len(text) > WIDTH:  # half of it would stand outside of the drawing
            at, side = WIDTH - 1, "end"
        parts.append(tag("text", text, class_=f"tick {side}", x=at, y=TOP + HEIGHT + 17))
    parts.append(tag("line", class_="axis", x1=x.start, x2=x.end, y1=TOP + HEIGHT, y2=TOP + HEIGHT))
    return parts


def _gaps(figure: Figure, x: Axis) -> list[Html]:
    """Where the value was not finite, once for all curves; the first is named."""
    low, high = figure.view.low, figure.view.high
    found = np.concatenate([np.empty((0, 2)), *(gaps(c.points) for c in figure.curves if not c.good)])
    places = strips(x.at(found[(found[:, 0] <= high) & (found[:, 1] >= low)]))
    parts = []
    for start, end in places:
        left, wide = max(start - 1, x.start), max(end - start + 2, 2.0)
        parts.append(tag("rect", class_="gap", x=left, y=TOP, width=min(wide, x.end - left), height=HEIGHT))
    if places:
        at = places[0][0]
        late = at > x.end - 64
        name = "gapname end" if late else "gapname"
        parts.append(tag("text", "not finite", class_=name, x=at - 4 if late else at + 4, y=TOP + HEIGHT - 6))
    return parts


def _curves(figure: Figure, x: Axis, y: Axis) -> list[Html]:
    parts = _band(figure, x, y) if figure.banded else []
    for place, curve in enumerate(figure.apart):
        points = thinned(curve.points.within(figure.view.low, figure.view.high))
        parts.append(tag("path", class_=f"curve {_colour(curve, place)}", d=path(points, x, y)))
    return parts


def _colour(curve: Curve, place: int) -> str:
    return "good" if curve.good else f"s{place % _PALETTE}"


def _band(figure: Figure, x: Axis, y: Axis) -> list[Html]:
    """All curves of the run as the room between their least and greatest, with their median."""
    found = band([c.points for c in figure.curves if not c.good], figure.view.low, figure.view.high)
    if not len(found.steps):
        return []
    along = x.at(found.steps)
    above, below = zip(along, y.at(found.greatest), strict=True), zip(along, y.at(found.least), strict=True)
    corners = [*above, *reversed(list(below))]
    ring = "M" + "L".join(f"{number(a)} {number(b)}" for a, b in corners) + "Z"
    middle = path(Points(found.steps, found.median), x, y)
    return [tag("path", class_="band", d=ring), tag("path", class_="curve median", d=middle)]


def path(points: Points, x: Axis, y: Axis) -> str:
    """The line through points as SVG says it; a point between two gaps is a dot."""
    across, up = x.at(points.steps), y.at(points.values)
    parts = []
    for part in segments(points):
        pairs = [f"{number(a)} {number(b)}" for a, b in zip(across[part], up[part], strict=True)]
        parts.append("M" + ("L".join(pairs) if len(pairs) > 1 else f"{pairs[0]}h0"))
    return "".join(parts)


def _marks(figure: Figure, x: Axis) -> list[Html]:
    """Each event as a line over the full height, named above it with its step; two at one place have one line."""
    by_place: dict[float, list[str]] = {}
    for name, at in figure.marks.items():
        if figure.view.low <= at <= figure.view.high:
            by_place.setdefault(at, []).append(name)
    parts = []
    for row, (at, names) in enumerate(sorted(by_place.items())):
        place, level = x.place(at), TOP - 6 - _ROW * (row % 2)
        kind = "failure" if any("failure" in n for n in names) else "anomaly"
        parts.append(tag("line", class_=f"mark {kind}", x1=place, x2=place, y1=level + 3, y2=TOP + HEIGHT))
        side = "end" if place > (x.start + x.end) / 2 else "start"
        name = f"{' and '.join(names).replace(' and first', ' and')} {said_step(at)}"
        parts.append(tag("text", name, class_=f"markname {kind} {side}", x=place, y=level))
    return parts


def _labels(figure: Figure, x: Axis, y: Axis) -> list[Html]:
    """The names of curves beside their last points, moved apart where they would overlap."""
    wanted: list[tuple[float, str, str]] = []
    for place, curve in enumerate(figure.apart):
        points = curve.points.within(figure.view.low, figure.view.high)
        values = points.values[points.finite]
        if len(values):
            wanted.append((y.place(float(values[-1])), curve.label, _colour(curve, place)))
    if figure.banded:
        wanted.append((TOP + HEIGHT / 2, f"{sum(not c.good for c in figure.curves)} curves", "median"))
    parts = []
    for at, (_, label, colour) in zip(_apart([w[0] for w in sorted(wanted)]), sorted(wanted), strict=True):
        whole = tag("title", label) if short(label) != label else None
        parts.append(tag("text", whole, short(label), class_=f"label {colour}", x=x.end + 6, y=at + 4))
    return parts


def _apart(places: list[float]) -> list[float]:
    """Places in order, each at least a row below the last, all within the height of the plot where that can be."""
    found: list[float] = []
    for at in places:
        found.append(max(at, found[-1] + _ROW) if found else at)
    over = found[-1] - (TOP + HEIGHT) if found else 0
    if over <= 0:
        return found
    for i in range(len(found) - 1, -1, -1):
        limit = TOP + HEIGHT if i == len(found) - 1 else found[i + 1] - _ROW
        found[i] = min(found[i], limit)
    return found


def _overview(figure: Figure, right: float) -> list[Html]:
    """All steps, small, with the part that is drawn large and the marks."""
    top = TOP + HEIGHT + 28
    x = steps_axis(figure.view.first, figure.view.last, LEFT, right)
    y = axis_of(np.concatenate([c.points.values for c in figure.curves]), top + _OVERVIEW, top)
    low, high = x.place(figure.view.low), x.place(figure.view.high)
    parts = [tag("rect", class_="part", x=low, y=top - 2, width=max(high - low, 2), height=_OVERVIEW + 4)]
    for curve in [c for c in figure.curves if c.apart] or figure.curves[:_PALETTE]:
        points = thinned(curve.points.within(figure.view.first, figure.view.last))
        parts.append(tag("path", class_="curve small", d=path(points, x, y)))
    for name, at in figure.marks.items():
        kind = "failure" if "failure" in name else "anomaly"
        parts.append(tag("line", class_=f"mark {kind}", x1=x.place(at), x2=x.place(at), y1=top - 2, y2=top + _OVERVIEW))
    ends = (said_step(figure.view.first), LEFT, "start"), (said_step(figure.view.last), right, "end")
    parts += [tag("text", text, class_=f"tick {side}", x=at, y=top + _OVERVIEW + 13) for text, at, side in ends]
    return [*parts, tag("text", "all", class_="tick end", x=LEFT - 6, y=top + _OVERVIEW / 2 + 4)]
