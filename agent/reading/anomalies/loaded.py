"""A log that names loaded weights, and whose first loss is that of a model that was never trained."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from ...workspace import Workspace
from ..plain_settings import PlainSetting
from ..series import Series
from .finding import Curve, Finding, plain

_LOADED = re.compile(
    rb"(?i)\bload(?:ed|ing)\b.{0,80}(?:checkpoint|ckpt|state.?dict|\bweights\b|pretrained|\.pth?\b|\.safetensors|\.bin\b)"
    rb"|\binit\w* (?:model )?from .{0,60}(?:checkpoint|ckpt|pretrain)"
)
_HEAD = 2000  # lines before the first loss
_EARLY, _ABOVE = 10, 1.3  # steps at which a first loss is that of the weights as they came; above that of new ones
_NEAR, _SAME, _FELL = 0.03, 0.03, 0.7


def loaded_findings(ws: Workspace, series: Sequence[Series], settings: Sequence[PlainSetting]) -> Iterator[Finding]:
    """`loss.as_untrained`: weights are said to be loaded, and the loss starts at ln(vocabulary), or where another
    log of the same runs started that loads nothing and has learned since."""
    curves = [
        Curve(s) for s in series if s.metric == "loss" and s.file.role == "log" and s.finite.any() and not s.rl
    ]  # fmt: skip
    sizes = {s.value for s in settings if s.name == "vocab_size" and s.value > 1000}
    loading = {id(c): _loads(ws, c) for c in curves[:24]}
    for curve in curves[:24]:
        first = float(curve.values[0])
        if not loading[id(curve)] or (curve.series.stepped and curve.steps[0] > 50) or first < 2:
            continue
        chance = any(abs(first - math.log(n)) < _NEAR * math.log(n) for n in sizes)
        if chance or any(_as(first, other) for other in curves[:24] if not loading[id(other)]):
            yield curve.at("loss.as_untrained", plain(first), 0)


def worse_findings(ws: Workspace, series: Sequence[Series]) -> Iterator[Finding]:
    """`loss.above_untrained`: weights are said to be loaded, and the loss starts far above where new models started."""
    for metric in ("loss", "eval_loss"):
        logs = [s for s in series if s.metric == metric and s.file.role == "log" and s.finite.any() and not s.rl]
        begun = [c for c in map(Curve, logs[:24]) if c.series.stepped and c.steps[0] <= _EARLY]
        fresh = [float(c.values[0]) for c in begun if not _loads(ws, c)]
        for curve in begun if fresh else ():
            if float(curve.values[0]) > _ABOVE * max(fresh) and _loads(ws, curve):
                yield curve.at("loss.above_untrained", plain(curve.values[0]), 0)


def _as(first: float, other: Curve) -> bool:
    """Whether another curve began at this loss, as new models do, and then learned."""
    start, end = float(other.values[0]), float(other.values[-1])
    fresh = not other.series.stepped or other.steps[0] <= 50
    return fresh and abs(first - start) < _SAME * start and end < _FELL * start


def _loads(ws: Workspace, curve: Curve) -> bool:
    """Whether a line before the first loss of a log says that weights were loaded."""
    until = int(curve.series.offsets[curve.index[0]])
    for line in ws.lines(curve.series.file):
        if line.offset >= until or line.number > _HEAD:
            return False
        if _LOADED.search(line.data[:2000]):
            return True
    return False
