"""One metric as a drawing: its curves around the event, with an overview, marks, gaps and a text that says the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .axes import Axis, axis_of, said, said_step, steps_axis
from .labels import short
from .markup import Html, number, tag
from .thin import Points, band, gaps, segments, strips, thinned
from .view import View

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
