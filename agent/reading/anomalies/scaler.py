"""A dynamic loss scaler at work: it skips a step now and then, and never many in a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..series import Series
from .finding import Curve, Finding, Group, plain
from .optimizer import SEARCH

RARELY, RARELY_FROM = 0.03, 200  # so small a share of the steps, of so many, is a scaler at work
FEW = 4  # skipped steps at the end of a run that are no collapse of the scale


def scaler_findings(found: Sequence[Group]) -> Iterator[Finding]:
    """`loss_scale.rare_skips`: hardly a step of a run was skipped, few of them at its end, and the scale held."""
    if any(_collapses(g) for g in found):
        return
    for group in found:
        skipped = group.series.get("skipped_iterations")
        if skipped is None or not _few(curve := Curve(skipped)):
            continue
        if not any(_told_after(skipped, s) for g in found if (s := g.series.get("overflow_scale")) is not None):
            yield curve.at("loss_scale.rare_skips", plain(float(curve.values[-1])), len(curve) - 1)


def _collapses(group: Group) -> bool:
    """Whether the scale that is logged has come down to nothing."""
    scale = group.curve("loss_scale")
    return scale is not None and bool(scale.values.max() > 1) and float(scale.values[-1]) <= 1.0


def _few(curve: Curve) -> bool:
    """Whether a column counts the skipped steps of a long run, and few of all and few of the last."""
    values, steps = curve.values, curve.steps
    if len(values) < 2 or steps[-1] < RARELY_FROM or (values[1:] < values[:-1]).any():
        return False
    before = steps <= steps[-1] - 2 * SEARCH
    late = values[-1] - values[before][-1] if before.any() else values[-1]
    return bool(0 < values[-1] <= RARELY * steps[-1] and late <= FEW)


def _told_after(skipped: Series, overflows: Series) -> bool:
    """Whether overflows are printed below the last count, or there are more than it counts."""
    if overflows.file.name != skipped.file.name:
        return len(overflows) > float(skipped.values[-1]) + FEW
    return int((overflows.lines > skipped.lines[-1]).sum()) > FEW
