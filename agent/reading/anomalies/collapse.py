"""A representation that gives up its spread while the loss looks better and better."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ..series import Series
from .chance import is_game
from .finding import Curve, Finding, Group, plain

_SPREAD = re.compile(
    r"(?i)(?:^|[/_. -])(?:emb(?:ed(?:ding)?s?)?|feat(?:ure)?s?|repr(?:esentation)?s?|z\d?|proj(?:ection)?s?|latents?"
    r"|outputs?|codes?|tokens?|hidden)[/_. -]?(?:mean[/_. -]?)?(?:std|stddev|var(?:iance)?|spread)(?:$|[/_. -])"
    r"|(?:^|[/_. -])(?:std|var(?:iance)?|spread)[/_. -](?:of[/_. -])?(?:emb\w*|feat\w*|repr\w*|z|latents?|proj\w*)"
)
_POINTS = 8
_LOST = 0.25  # of the early spread, below which it is vanishing
_SMALL = 0.05  # a spread that may fall as long as it stays above this
_PARTS = 5


def collapse_findings(series: Sequence[Series], found: Sequence[Group]) -> Iterator[Finding]:
    """`loss.spread_vanishing`: a logged spread of embeddings falls to nearly nothing; and scores that fall with a
    falling loss."""
    for s in series:
        if s.known or s.file.good or not _SPREAD.search(s.raw) or int(s.finite.sum()) < _POINTS:
            continue
        curve = Curve(s)
        early, late = float(curve.values[: max(2, len(curve) // 10)].max()), float(np.median(curve.values[-3:]))
        if 0 <= late < _LOST * early and late < _SMALL and _sinks(curve.values):
            yield curve.at("loss.spread_vanishing", plain(late), len(curve) - 1)
    for group in found:
        yield from _worse_as_better(group)


def _worse_as_better(group: Group) -> Iterator[Finding]:
    loss = group.curve("loss")
    accuracy = group.curve("eval_accuracy", "accuracy")
    if group.rl or is_game(group) or loss is None or accuracy is None or len(accuracy) < _POINTS or len(loss) < _POINTS:
        return
    best = int(accuracy.values.argmax())
    rest = accuracy.values[best:]
    if best > len(accuracy) // 3 or len(rest) < _POINTS or not _sinks(rest):
        return
    mean = [float(part.mean()) for part in np.array_split(loss.values, _PARTS)]
    if accuracy.values[best] > 0 and rest[-3:].max() < 0.75 * accuracy.values[best] and mean[-1] < mean[0]:
        yield accuracy.at("accuracy.falls_with_loss", plain(accuracy.values[-1]), len(accuracy) - 1)


def _sinks(values: np.ndarray) -> bool:
    """Whether each of some stretches lies below the one before."""
    levels = [float(np.median(part)) for part in np.array_split(values, min(_PARTS, len(values) // 2))]
    return len(levels) >= 3 and all(b < a for a, b in pairwise(levels))
