"""Inference engines by their status lines: a full cache, a queue that does not drain, load that is not shared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ..series import Series
from .finding import Curve, Finding, plain

FULL = 0.95  # of the key-value cache; beyond it requests are preempted or retracted
OFTEN = 0.3  # of the readings
QUEUE = 16  # requests waiting at the median: more than a burst
SKEW = 3.0  # load of the busiest engine over the median of the others
READINGS = 5


def engine_findings(series: list[Series]) -> Iterator[Finding]:
    """Facts about engines; a series is one engine's when its lines carry an engine number."""
    by_metric: dict[str, list[Series]] = defaultdict(list)
    for s in series:
        if s.metric in ("cache_usage", "engine_waiting", "engine_running") and s.count >= READINGS:
            by_metric[s.metric].append(s)
    for s in by_metric["cache_usage"]:
        curve = Curve(s)
        if len(curve) >= READINGS and (curve.values >= FULL).mean() >= OFTEN:
            share = round(float((curve.values >= FULL).mean()), 3)
            yield curve.at("engine.cache_full_fraction", share, int(np.argmax(curve.values)))
    for s in by_metric["engine_waiting"]:
        curve = Curve(s)
        if len(curve) >= READINGS and float(np.median(curve.values)) >= QUEUE:
            yield curve.at("engine.waiting", plain(float(np.median(curve.values))), int(np.argmax(curve.values)))
    yield from _skew(by_metric["engine_running"])


def _skew(running: list[Series]) -> Iterator[Finding]:
    """One engine busy while the others idle: their mean load over the whole time, by engine number or file."""
    curves = [Curve(s) for s in running if s.finite.any()]
    if len(curves) < 2:
        return
    loads = np.array([float(c.values.mean()) for c in curves])
    busiest = int(np.argmax(loads))
    others = float(np.median(np.delete(loads, busiest)))
    if loads[busiest] >= 4 and loads[busiest] / max(others, 0.5) >= SKEW:
        curve = curves[busiest]
        yield curve.at("rl.router_skew", round(loads[busiest] / max(others, 0.5), 2), int(np.argmax(curve.values)))
