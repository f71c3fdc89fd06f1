"""Several evaluation sets of one run: one gets worse from the first evaluation on while another gets better.

Overfitting makes a curve fall first and rise later; here what is trained improves to the end, and what is not is lost
from the start.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ...workspace import Workspace
from ..named_series import named_series
from .finding import Curve, Finding, plain

_OF_SET = re.compile(
    r"(?i)^(?:eval|val|valid|validation|test|dev)[_/.](?P<a>[\w.-]+?)[_/.](?:loss|ppl|perplexity|nll)$"
    r"|^(?:eval|val|valid|validation|test|dev)[_/.](?:loss|ppl|perplexity|nll)[_/.](?P<b>[\w.-]+)$"
    r"|^(?:loss|ppl|perplexity)[_/.](?:eval|val|valid|validation|test|dev)[_/.](?P<c>[\w.-]+)$"
)
_EVALUATIONS = 4
_ROSE, _FELL = 1.1, 0.97  # last against first: what is told as worse, as better
_AT_THE_BEST = 1.03  # a set that improves to the end ends near its least value
_EARLY = 0.2  # share of the evaluations within which a set that is lost has its least value


def set_findings(ws: Workspace) -> Iterator[Finding]:
    """`eval.set_lost`: the name of an evaluation set whose loss rises while that of another falls to the end."""
    by_file: dict[str, dict[str, Curve]] = defaultdict(dict)
    for series in named_series(ws, _OF_SET, b"oss") + named_series(ws, _OF_SET, b"p"):
        curve = Curve(series)
        if len(curve) >= _EVALUATIONS and (m := _OF_SET.match(series.raw)):
            by_file[series.file.name].setdefault(m["a"] or m["b"] or m["c"], curve)
    for sets in by_file.values():
        if not any(_improves(curve) for curve in sets.values()):
            continue
        for name, curve in sets.items():
            if _is_lost(curve):
                yield curve.at("eval.set_lost", name, len(curve) - 1)
                yield curve.at("eval.set_lost_ratio", plain(round(curve.values[-1] / curve.values[0], 3)), 0)


def _improves(curve: Curve) -> bool:
    values = curve.values
    return bool(0 < values[-1] < _FELL * values[0] and values[-1] <= _AT_THE_BEST * values.min())


def _is_lost(curve: Curve) -> bool:
    values = curve.values
    early = max(1, int(_EARLY * len(values)))
    return bool(values[0] > 0 and values[-1] > _ROSE * values[0] and int(np.argmin(values)) <= early)
