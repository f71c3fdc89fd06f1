"""Loss and accuracy held against each other: a classifier that guesses, one that came back to guessing, and an
accuracy that the loss rules out.

Whoever gives every class the same probability has a loss of ln k and is right once in k times, so that the accuracy
is exp(-loss). Whoever has learned anything is right more often than that. On the other side, each wrong answer costs
a cross-entropy of ln 2 at least, as another class then had no less probability: a mean loss L leaves room for a share
of L / ln 2 of wrong answers, and no more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .finding import Curve, Finding, Group, plain

if TYPE_CHECKING:
    from ...workspace import Workspace

_EVALS, _LOSSES = 3, 20  # evaluations and losses from which a plateau is told
_NEAR = 0.12  # how near loss and -ln(accuracy) are where all is guessing, as a share
_CLEAR = 0.12  # of the loss of guessing, by which it has to have fallen before to have learned something
_ROOM, _MISSING = 3.0, 0.1  # what the bound is widened by; by how much the accuracy has to stay below it
_OTHER_LOSS = re.compile(
    r"(?i)binary_cross_entropy|BCE|mse_loss|MSELoss|l1_loss|contrastive|triplet|focal|dice|ctc|ArcFace|\.generate\("
    r"|label_smoothing|seq2seq|exact_match|CausalLM|perplexity|(?:cross_entropy|CrossEntropyLoss)\([^\n]{0,200}\bweight"
)
_GAME = re.compile(
    r"(?i)(?:^|[/_. -])(?:g|d|gen|disc|generator|discriminator|adv(?:ersarial)?|critic|real|fake)(?:$|[/_. -]|loss|acc)"
)
_CROSS_ENTROPY = re.compile(r"cross_entropy\(|CrossEntropyLoss\(|NLLLoss\(|nll_loss\(")


def chance_findings(found: Sequence[Group]) -> Iterator[Finding]:
    """A classifier whose second half is guessing, and whether it knew more before."""
    for group in found:
        if group.rl or is_game(group):
            continue
        held = _plateau(found, group)
        loss = group.curve("loss")
        if held is None or loss is None or len(loss) < _LOSSES:
            continue
        classes, accuracy = held
        guess = math.log(classes)
        half = loss.values[len(loss) // 2 :]
        if abs(float(np.median(half)) - guess) > _NEAR / 2 * guess:
            continue
        yield loss.at("loss.at_chance", classes, len(loss) - 1)
        yield accuracy.at("loss.at_chance", classes, len(accuracy) - 1)
        yield from _before(loss, guess)


def is_game(group: Group) -> bool:
    """Whether two networks play against each other: a discriminator that guesses is what such a training is for."""
    return any(_GAME.search(s.raw) for s in group.series.values())


def _plateau(found: Sequence[Group], group: Group) -> tuple[int, Curve] | None:
    """The number of classes among which the later evaluations guess, with the curve of their accuracy."""
    curves = [g.curve("eval_accuracy", "accuracy") for g in (group, *found)]
    accuracy = next((c for c in curves if c is not None and len(c) >= _EVALS), None)
    loss = group.curve("loss")
    if accuracy is None or loss is None:
        return None
    share = accuracy.values / (100.0 if accuracy.values.max() > 1.0 else 1.0)
    late = share[len(share) // 2 :]
    mean = float(late.mean())
    if not 0.004 < mean < 0.6 or float(late.max()) > 2 * mean:
        return None
    level = float(np.median(loss.values[len(loss) // 2 :]))
    if level <= 0 or abs(level + math.log(mean)) > _NEAR * level:
        return None
    classes = round(math.exp(level))
    return (classes, accuracy) if classes >= 2 else None


def _before(loss: Curve, guess: float) -> Iterator[Finding]:
    """What came before: a loss that had clearly fallen, or one that the first steps drove above guessing."""
    start = loss.values[: len(loss) // 2]
    smooth = np.convolve(start, np.ones(3) / 3, mode="valid")
    low = int(smooth.argmin())
    if smooth[low] < (1 - _CLEAR) * guess:
        yield loss.at("loss.back_at_chance", plain(round(float(smooth[low]), 5)), low + 1)
    first = loss.values[: max(5, len(loss) // 10)]
    if float(first.mean()) > 1.02 * guess and float(first.max()) > 1.04 * guess:
        yield loss.at("loss.above_chance_start", plain(float(first.max())), int(first.argmax()))


def bound_findings(ws: Workspace, found: Sequence[Group]) -> Iterator[Finding]:
    """An accuracy below what the cross-entropy of the same evaluations leaves room for."""
    source = "\n".join(ws.text(f, 400_000) for f in ws.files if f.name.endswith(".py") and f.size < 400_000)
    if not _CROSS_ENTROPY.search(source) or _OTHER_LOSS.search(source):
        return
    for group in found:
        loss, accuracy = group.curve("eval_loss"), group.curve("eval_accuracy")
        if loss is None or accuracy is None or len(loss) != len(accuracy) or len(loss) < _EVALS:
            continue
        share = accuracy.values / (100.0 if accuracy.values.max() > 1.0 else 1.0)
        least = 1 - _ROOM * loss.values / math.log(2)
        if bool((share[-_EVALS:] < least[-_EVALS:] - _MISSING).all()) and (loss.values > 0).all():
            yield accuracy.at("eval.accuracy_below_bound", plain(round(float(least[-1]), 4)), len(accuracy) - 1)
            yield loss.at("eval.accuracy_below_bound", plain(round(float(least[-1]), 4)), len(loss) - 1)
            return
