"""Curves of the run: what was measured, from where to where."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from ..reading.curves import curves
from ..reading.points import point_evidence
from ..reading.series import Series
from ..tool import failed, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

_LISTED = 120  # series told as evidence; the rest is counted
_POINTS = 24  # points of a series shown when one is asked for


@tool(emits=("metrics.series",), recall=True)
def read_metrics(
    ws: Workspace,
    metric: Annotated[str, Field(description="canonical name to show in detail, e.g. loss or grad_norm")] = "",
    variant: Annotated[str, Field(description="only this variant or file")] = "",
) -> ToolResult:
    """Read the curves a run logged.

    Use to see loss, grad_norm, learning_rate, throughput, reward and the like over steps: out of console logs of
    any framework and inference engine, CSV, JSON, trainer_state.json, TensorBoard files, W&B offline runs and
    MLflow's local stores. With `metric`, shows its points.
    """
    found = curves(ws)
    chosen = [
        s for s in found.series
        if (s.metric == metric if metric else s.known) and (not variant or variant in (s.label, s.file.name))
    ]  # fmt: skip
    if not chosen:
        if found.failed:
            return failed(f"no metrics read; {found.failed[0][0].name}: {found.failed[0][1]}")
        return not_applicable("no metrics in any log, table or event file")
    chosen.sort(key=lambda s: (s.file.good, s.metric not in ("loss", "eval_loss", "reward"), s.file.name, s.metric))
    evidence = [series_evidence(ws, s) for s in chosen[:_LISTED]]
    lines = [describe(s) for s in chosen[:_LISTED]]
    if len(chosen) > _LISTED:
        lines.append(f"... {len(chosen) - _LISTED} more series")
    if metric:
        for s in chosen[:4]:
            lines += points(s)
    names = sorted({s.metric for s in chosen})
    summary = f"{len(chosen)} series from {len({s.file.name for s in chosen})} files: {', '.join(names[:12])}"
    return finding(summary, evidence, "\n".join(lines))


def describe(s: Series) -> str:
    """One line about a series: from where to where, least and greatest, what is not finite."""
    finite = s.values[s.finite]
    place = s.label + (f" rank {s.rank}" if s.rank is not None else "")
    if not len(finite):
        return f"{place}: {s.metric} ({s.raw}): {s.count} points, none finite"
    bad = f", {s.nans} nan, {s.infs} inf" if s.nans or s.infs else ""
    at = f"step {s.steps[0]:g} to {s.steps[-1]:g}" if s.stepped else "no steps"
    return (
        f"{place}: {s.metric} ({s.raw}): {s.count} points, {at}, "
        f"{finite[0]:.6g} to {finite[-1]:.6g}, least {finite.min():.6g}, greatest {finite.max():.6g}{bad}"
    )


def points(s: Series) -> list[str]:
    """A spread of points of a series as text."""
    chosen = np.unique(np.linspace(0, len(s) - 1, min(len(s), _POINTS)).astype(int))
    return [f"  {s.metric} step {s.steps[i]:g}: {s.values[i]:.6g}  ({s.file.name}:{s.lines[i]})" for i in chosen]


def series_evidence(ws: Workspace, s: Series) -> Evidence:
    """The evidence that a series exists: cites its last point."""
    return point_evidence(ws, s, len(s) - 1, "metrics.series", s.metric)
