"""The curves of a run for a screen: which are looked at and in what order, what is marked, and the sentence beside."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..page.axes import said, said_step
from ..page.choice import LEAST_POINTS, Chosen, chosen_lines
from ..page.figures import figure_of
from ..page.figures import figures as figures_of
from ..page.marks import FIRST_ANOMALY, marks, placed
from ..page.plot import Curve, Figure
from ..reading.curves import curves
from ..reading.series import Series
from ..redact import Redactor
from ..report import CitedEvidence, Report, RootCause
from ..workspace import Workspace

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
