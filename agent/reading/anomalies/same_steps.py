"""Two logs that went through the same steps: a resume that met other batches, and a loss that is a multiple."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from ..series import Series
from ..shape import mad
from .finding import Curve, Finding, plain
from .resume import Restart

_SHARED = 5  # steps
_OTHER_BATCH = 0.01  # of the loss, right after the resume: the same batch on the same weights gives less
_SAME_LEVEL = 0.1
_HIGHER = 1.25
_MOST = 12  # logs


def same_step_findings(series: Sequence[Series], all_restarts: Iterable[Restart]) -> Iterator[Finding]:
    """`resume.other_batches` and `variant.loss_higher_in_one_log`, over pairs of logs with one learning rate."""
    losses = [s for s in series if s.metric == "loss" and s.finite.any() and not s.rl and not s.file.good]
    logs = {s.file.name: Curve(s) for s in losses if s.rank in (None, 0) and s.variant is None}
    rates = {s.file.name: Curve(s) for s in series if s.metric == "learning_rate" and s.finite.any()}
    resumed = {r.file.name: r.step for r in all_restarts}
    if len(logs) > _MOST or len(logs) != len({s.file.name for s in losses}):
        return
    for a, b in combinations(logs, 2):
        pair = _shared(logs[a], logs[b])
        if pair is None or not _same_rate(rates.get(a), rates.get(b)):
            continue
        later = b if b in resumed and a not in resumed else a if a in resumed and b not in resumed else None
        if later is None:
            yield from _higher(logs[a], logs[b], pair)
        elif logs[a].series.stepped:
            first, second = (pair[1], pair[0]) if later == a else pair
            yield from _other_batches(logs[a if later == b else b], first, logs[later], second)


def _shared(a: Curve, b: Curve) -> tuple[np.ndarray, np.ndarray] | None:
    """Places of the steps that both have; None where they are few, or one of them has steps twice."""
    if a.series.stepped != b.series.stepped:
        return None
    if any(len(np.unique(c.steps)) < len(c) for c in (a, b)):
        return None
    _, at_a, at_b = np.intersect1d(a.steps, b.steps, assume_unique=True, return_indices=True)
    return (at_a, at_b) if len(at_a) >= _SHARED else None


def _same_rate(a: Curve | None, b: Curve | None) -> bool:
    """Whether both logs have a learning rate and it is the same at the steps both have."""
    pair = _shared(a, b) if a is not None and b is not None else None
    if pair is None or a is None or b is None:
        return False
    return bool(np.allclose(a.values[pair[0]], b.values[pair[1]], rtol=0.02, atol=0))


def _other_batches(through: Curve, first: np.ndarray, later: Curve, second: np.ndarray) -> Iterator[Finding]:
    """The run that was resumed differs from its first step on, and its level is the same: the batches are others."""
    if second[0] > 2 or first[0] == 0:
        return  # not the steps right after the resume, or the other log has none before it
    one, other = through.values[first], later.values[second]
    apart = np.abs(one - other) / np.maximum(np.abs(one), 1e-9)
    level = abs(float(np.median(other) / np.median(one)) - 1) if np.median(one) > 0 else 1.0
    if apart[0] > _OTHER_BATCH and float(np.median(apart)) > _OTHER_BATCH and level < _SAME_LEVEL:
        yield through.at("resume.other_batches", plain(float(through.steps[first[0]])), int(first[0]))
        yield later.at("resume.other_batches", plain(float(later.steps[second[0]])), int(second[0]))


def _higher(a: Curve, b: Curve, pair: tuple[np.ndarray, np.ndarray]) -> Iterator[Finding]:
    """One log's loss is a multiple of the other's over the steps they share."""
    one, other = a.values[pair[0]], b.values[pair[1]]
    if min(one.min(), other.min()) <= 0:
        return
    logs = np.log(other / one)
    ratio = float(np.exp(abs(np.mean(logs))))
    if ratio < _HIGHER or abs(float(np.mean(logs))) < 3 * mad(logs) / np.sqrt(len(logs)):
        return
    high, low = (b, a) if np.mean(logs) > 0 else (a, b)
    for curve in (high, low):
        yield curve.at("variant.loss_higher_in_one_log", plain(round(ratio, 3)), 0)
