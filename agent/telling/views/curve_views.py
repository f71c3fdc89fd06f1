"""The curves of a run for a screen: which are looked at and in what order, what is marked, and the sentence beside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...core.report import CitedEvidence, Report, RootCause
from ...reading.curves.curves import curves
from ...reading.curves.series import Series
from ...reading.run.workspace import Workspace
from ...safety.redact import Redactor
from ..page.figures import FIRST_ANOMALY, LEAST_POINTS, Chosen, chosen_lines, figure_of, marks, placed
from ..page.figures import figures as figures_of
from ..page.plot import (
    HUGE,
    Axis,
    Curve,
    Figure,
    Points,
    axis_of,
    band,
    gaps,
    said,
    said_step,
    segments,
    steps_axis,
    thinned,
)

# What is looked at before anything is known of a run, in this order; of a diagnosed run, after what its verdict is on.
ORDER = (
    "loss", "grad_norm", "learning_rate", "memory", "throughput", "step_time", "loss_scale", "reward", "eval_loss",
    "peak_memory", "host_memory", "kl", "entropy",
)  # fmt: skip
MOST = 10  # metrics of one run that are offered


@dataclass(frozen=True, slots=True)
class Drawing:
    """A metric to draw.

    Attributes:
        evidence: what its first anomaly stands on, empty where none is known.
        apart: why some curve is drawn over the others.
        is_bytes: whether values are bytes; kept, as it takes a pass over all points.
    """

    figure: Figure
    evidence: str = ""
    apart: str = "failed first"
    is_bytes: bool = False

    @property
    def title(self) -> str:
        """The metric in words; it may be a name that the run gave."""
        return self.figure.metric.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Reading:
    """What curves say at a step: each one's value at its last point there, or the spread of many."""

    step: float
    values: list[tuple[str, str]]


def drawings(workspace: Workspace, report: Report | None = None) -> list[Drawing]:
    """The curves that matter, the most telling first. Reads the run's files: not for the thread of a screen.

    Args:
        report: the diagnosis; without one the usual metrics in their usual order.

    Raises:
        ParseError: a file cannot be read any more.
    """
    redactor = Redactor()
    found = figures_of(report, workspace, redactor) if report else []
    known = {f.metric for f in found}
    about = report or Report(status="insufficient_evidence", root_cause=RootCause(id=None, confidence=0.0))
    events = marks(about)
    for one in _usual(curves(workspace).series, known)[: MOST - len(found)]:
        places = placed(events, one.lines)
        if FIRST_ANOMALY not in places and (at := _first_not_finite(one.lines)) is not None:
            places = {FIRST_ANOMALY: at, **places}  # before it is known what is around the event
        found.append(figure_of(f"plot{len(found) + 1}", one, about, places, redactor))
    return [_drawing(f, about) for f in _same_anomaly(found)]


def _same_anomaly(found: list[Figure]) -> list[Figure]:
    """What began first on one curve is marked at its step on all: each metric knows only its own beginning.

    What is not finite is marked whatever the verdict says.
    """
    found = [f if FIRST_ANOMALY in f.marks else _with_gap(f) for f in found]
    known = [f.marks[FIRST_ANOMALY] for f in found if f.stepped and FIRST_ANOMALY in f.marks]
    return [
        replace(f, marks={**f.marks, FIRST_ANOMALY: min(known)})
        if f.stepped and FIRST_ANOMALY in f.marks and f.view.first <= min(known) <= f.view.last
        else f
        for f in found
    ]


def _with_gap(figure: Figure) -> Figure:
    bad = [c.points.steps[~c.points.finite] for c in figure.curves if not c.good]
    at = min((float(steps[0]) for steps in bad if len(steps)), default=None)
    return figure if at is None else replace(figure, marks={FIRST_ANOMALY: at, **figure.marks})


def _drawing(figure: Figure, report: Report) -> Drawing:
    """Of many curves, the one that is first not finite stands apart, unless one that failed is so there too."""
    at = figure.marks.get(FIRST_ANOMALY)
    broken = [c for c in figure.curves if not c.good and (~c.points.finite & (c.points.steps == at)).any()]
    if len(figure.curves) < 2 or not broken or any(c.apart for c in broken):
        return Drawing(figure, _evidence(figure, report), is_bytes=figure.is_bytes)
    curves = [replace(c, apart=c is broken[0]) for c in figure.curves]
    return Drawing(replace(figure, curves=curves), _evidence(figure, report), "first not finite", figure.is_bytes)


def _usual(series: list[Series], known: set[str]) -> list[Chosen]:
    by_metric: dict[str, list[Series]] = {}
    for s in series:
        if s.metric in ORDER and s.metric not in known and len(s) >= LEAST_POINTS:
            by_metric.setdefault(s.metric, []).append(s)
    found = [chosen_lines(metric, by_metric[metric]) for metric in ORDER if metric in by_metric]
    return [one for one in found if any(not s.file.good for s in one.lines)]


def _first_not_finite(lines: list[Series]) -> float | None:
    own = [s for s in lines if not s.file.good and not s.finite.all()]
    return min((float(s.steps[np.argmin(s.finite)]) for s in own), default=None)


def _evidence(figure: Figure, report: Report) -> str:
    """What the first anomaly stands on: of this metric and step, else of the step, else of the metric."""
    at = figure.marks.get(FIRST_ANOMALY)
    if at is None:
        return ""
    proof = {i for d in report.differential[:1] for i in d.supported_by} | {i for s in report.summary for i in s.cites}

    def worth(e: CitedEvidence) -> int:
        return 4 * (e.step == at) + 2 * (e.key.split(".")[0] == figure.metric) + (e.id in proof)

    lines = [e for e in report.evidence if e.kind == "line" and worth(e) >= 2]
    return max(lines, key=worth).id if lines else ""


def leading(figure: Figure) -> Curve:
    """The curve that a marker moves along: the culprit's, else the longest of the run."""
    own = [c for c in figure.curves if not c.good] or figure.curves
    return max(own, key=lambda c: (c.apart, len(c.points)))


def stops(figure: Figure) -> np.ndarray:
    """The steps that a marker can stand on, in order."""
    return np.unique(leading(figure).points.steps)


def reading(drawing: Drawing, step: float) -> Reading:
    """What the curves say at a step."""
    figure, is_bytes = drawing.figure, drawing.is_bytes
    values = [(c.label, _said(is_bytes, _value(c, step))) for c in figure.apart if not (figure.banded and c.good)]
    if figure.banded:
        all_of_them = np.array([v for c in figure.curves if not c.good and (v := _value(c, step)) is not None])
        finite = all_of_them[np.isfinite(all_of_them)]
        spread = (("least", np.min), ("median", np.median), ("greatest", np.max))
        values += [(name, _said(is_bytes, float(of(finite)))) for name, of in spread if len(finite)]
        if len(finite) < len(all_of_them):
            values.append(("not finite", f"{len(all_of_them) - len(finite)} of {len(all_of_them)} curves"))
    return Reading(step, values)


def _value(curve: Curve, step: float) -> float | None:
    """The value of the last point at a step or before it; None before the first. Steps may have gone back: the last."""
    at = np.flatnonzero(curve.points.steps == step)
    if not len(at):
        before = curve.points.steps <= step
        if not before.any():
            return None
        at = np.flatnonzero(curve.points.steps == curve.points.steps[before].max())
    return float(curve.points.values[at[-1]])


def _said(is_bytes: bool, value: float | None) -> str:
    return "nothing yet" if value is None else said(value, is_bytes)


__all__ = ["FIRST_ANOMALY", "Curve", "Drawing", "Figure", "Reading", "drawings", "leading", "reading", "said_step",
           "stops"]  # fmt: skip


# ----------
# One metric as points of a unit square: what of its curves falls on a part of the steps, with ticks and gaps.

Kind = Literal["curve", "good", "median", "least", "greatest"]
Path = tuple[list[float], list[float]]
_GIB = 1 << 30
_TOUCH = 0.004  # of the width: gaps nearer than this are one


@dataclass(frozen=True, slots=True)
class Trace:
    """A line to draw, in pieces between its gaps; `place` counts the lines that are told apart by their marker."""

    kind: Kind
    label: str
    place: int
    pieces: list[Path]


@dataclass(frozen=True, slots=True)
class Sketch:
    """A part of a figure, all coordinates from 0 to 1, ticks with their words.

    Attributes:
        log: whether values stand by their logarithm.
        left_out: finite values that no logarithm has.
        gaps: stretches where values are not finite.
    """

    low: float
    high: float
    log: bool
    traces: list[Trace]
    across: list[tuple[float, str]]
    up: list[tuple[float, str]]
    gaps: list[tuple[float, float]]
    left_out: int = 0
    points: int = 0

    def at(self, step: float) -> float | None:
        """Where a step stands; None outside of the part."""
        if not self.low <= step <= self.high:
            return None
        return (step - self.low) / ((self.high - self.low) or 1.0)


def sketch(figure: Figure, low: float, high: float, log: bool | None = None, columns: int = 80) -> Sketch:
    """What to draw between two steps. Takes some 100 ms for hundreds of long curves: not for the thread of a screen.

    Args:
        log: by the logarithm or not; None lets the values decide.
        columns: cells across, for the number of ticks.
    """
    x = steps_axis(low, high, 0.0, 1.0)
    shown = [(c, c.points.within(low, high)) for c in figure.curves]
    values = np.concatenate([p.values for _, p in shown]) if shown else np.empty(0)
    y = _axis(values, log)
    finite, is_bytes = np.isfinite(values), figure.is_bytes
    return Sketch(
        low, x.high, y.log, _traces(figure, shown, x, y),
        [(x.place(v), said_step(v)) for v in _spaced(x.ticks(max(2, columns // 14)))],
        _up(y, is_bytes),
        _gaps([p for c, p in shown if not c.good], x),
        left_out=int((values[finite] <= 0).sum()) if y.log else 0, points=len(values),
    )  # fmt: skip


def _axis(values: np.ndarray, log: bool | None) -> Axis:
    """The axis that values want, or the one that is asked for where they allow it."""
    known = np.clip(values[np.isfinite(values)], -HUGE, HUGE)
    own = axis_of(known[known > 0] if log else known, 0.0, 1.0)
    if log is None or own.log == log or not len(known) or (log and not (known > 0).any()):
        return own
    if log:
        low, high = float(known[known > 0].min()), float(known.max())
        return Axis(max(low / 1.1, 1e-307), high * 1.1, 0.0, 1.0, log=True)
    low, high = float(known.min()), float(known.max())
    return Axis(min(0.0, low), high + (high - low) * 0.08, 0.0, 1.0)


def _up(y: Axis, is_bytes: bool) -> list[tuple[float, str]]:
    """Ticks at round values, each word once; bytes by round numbers of GiB, the unit is said beside the plot."""
    unit = _GIB if is_bytes else 1
    round_ones = Axis(y.low / unit, y.high / unit, 0.0, 1.0, y.log).ticks(5)
    words = {f"{v:.6g}" if is_bytes else said(v): v for v in reversed(round_ones)}
    return [(y.place(v * unit), word) for word, v in words.items()]


def _spaced(ticks: list[float]) -> list[float]:
    """Steps are whole: two ticks that would read the same are one."""
    return list({said_step(v): v for v in ticks}.values())


def _traces(figure: Figure, shown: list[tuple[Curve, Points]], x: Axis, y: Axis) -> list[Trace]:
    apart = sorted(figure.apart, key=lambda c: (c.good, not c.apart))
    points = {id(c): p for c, p in shown}
    found = [
        Trace("good" if c.good else "curve", c.label, place, _pieces(thinned(points[id(c)]), x, y))
        for place, c in enumerate(apart)
    ]
    if not figure.banded:
        return found
    own = [p for c, p in shown if not c.good]
    covered = band(own, x.low, x.high)
    spread: tuple[tuple[Kind, np.ndarray], ...] = (
        ("least", covered.least), ("greatest", covered.greatest), ("median", covered.median),
    )  # fmt: skip
    many = f"{len(own):,} curves"
    return [*(Trace(k, f"{k} of {many}", 0, _pieces(Points(covered.steps, v), x, y)) for k, v in spread), *found]


def _pieces(points: Points, x: Axis, y: Axis) -> list[Path]:
    if y.log:
        points = Points(points.steps, np.where(points.values > 0, points.values, np.nan))
    across = x.at(points.steps)
    up = np.full(len(points), np.nan)
    finite = points.finite
    up[finite] = y.at(points.values[finite])
    return [(across[part].tolist(), up[part].tolist()) for part in segments(points)]


def _gaps(lines: list[Points], x: Axis) -> list[tuple[float, float]]:
    """Stretches without a finite value on some curve, in order; those that nearly touch are one."""
    rows = [gaps(p) for p in lines if len(p)]
    found: list[tuple[float, float]] = []
    for start, end in sorted(map(tuple, x.at(np.concatenate(rows)).tolist())) if rows else []:
        if found and start - found[-1][1] <= _TOUCH:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
