"""The plots of a report: what to draw of a run, and the words beside each drawing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..reading.series import Series
from ..redact import Redactor
from ..report import Report
from ..sanitize import one_line
from ..workspace import Workspace
from .axes import said, said_step
from .choice import Chosen, chosen
from .labels import labels
from .marks import marks, placed
from .markup import Html, clipped, tag
from .plot import Curve, Figure, draw
from .thin import Points
from .view import view

_NAMED = 120  # characters of a name in a sentence


def figures(report: Report, workspace: Workspace, redactor: Redactor) -> list[Figure]:
    """The plots that matter for a verdict, the most telling first."""
    found = marks(report)
    return [
        figure_of(f"plot{number}", one, report, placed(found, one.lines), redactor)
        for number, one in enumerate(chosen(report, workspace), 1)
    ]


def drawn(figure: Figure) -> Html:
    """A plot with its caption."""
    unit = "GiB" if figure.is_bytes else ""
    head = tag("strong", figure.metric.replace("_", " "), f" ({unit})" if unit else None)
    across = "by step" if figure.stepped else "by reading, as no steps are printed"
    caption = tag("figcaption", head, f" {across}", tag("br"), tag("small", figure.text))
    return tag("figure", caption, tag("div", draw(figure), class_="plot"))


def figure_of(ident: str, one: Chosen, report: Report, places: dict[str, float], redactor: Redactor) -> Figure:
    """A metric with its curves, its marks and the sentence beside it.

    Args:
        places: of marks, as steps.
    """
    seen, near = view(one.lines, places)
    names = [clipped(one_line(redactor.redact(name)), _NAMED) for name in labels(one.lines)]
    curves = [
        Curve(name, _points(s), s.file.good, _culprit(s, report)) for name, s in zip(names, one.lines, strict=True)
    ]
    figure = Figure(ident, one.metric, curves, seen, near, one.stepped, "")
    told = [_sentence(name, s, figure.is_bytes) for name, s in zip(names, one.lines, strict=True)]
    text = " ".join(told) if len(told) <= 3 else _together(one.lines, figure.is_bytes)
    if one.more:
        text += f" {one.more:,} more curves are not drawn."
    return replace(figure, text=text)


def _points(s: Series) -> Points:
    known = np.isfinite(s.steps)
    return Points(np.clip(s.steps[known], -1e300, 1e300), s.values[known])


def _culprit(s: Series, report: Report) -> bool:
    """Whether a curve is of the rank or the variant that failed first."""
    rank = report.root_cause.first_failure.rank
    variants = {e.variant for e in report.evidence if e.variant} if report.differential else set()
    return (rank is not None and s.rank == rank) or (len(variants) == 1 and s.variant in variants)


def _sentence(name: str, s: Series, is_bytes: bool) -> str:
    """A curve in words: how many points, from where to where, its last value, what was not finite."""
    what = f"{name}: {s.count:,} points"
    if s.stepped:
        what += f", steps {said_step(float(s.steps.min()))} to {said_step(float(s.steps.max()))}"
    if s.finite.any():
        values = s.values[s.finite]
        what += f", {_ends(values, is_bytes)}, last {said(float(values[-1]), is_bytes)}"
    return f"{what}{_not_finite([s])}."


def _together(lines: list[Series], is_bytes: bool) -> str:
    """Many curves in words."""
    own = [s for s in lines if not s.file.good]
    values = np.concatenate([s.values[s.finite] for s in own])
    ends = f", {_ends(values, is_bytes)}" if len(values) else ""
    return f"{len(own):,} curves, {sum(s.count for s in own):,} points{ends}{_not_finite(own)}."


def _ends(values: np.ndarray, is_bytes: bool) -> str:
    return f"least {said(float(values.min()), is_bytes)}, greatest {said(float(values.max()), is_bytes)}"


def _not_finite(lines: list[Series]) -> str:
    count = sum(s.nans + s.infs for s in lines)
    if not count:
        return ""
    first = min((float(s.steps[np.argmin(s.finite)]) for s in lines if not s.finite.all()), default=None)
    since = f", first at step {said_step(first)}" if first is not None and lines[0].stepped else ""
    return f"; not finite {count:,} times{since}"
