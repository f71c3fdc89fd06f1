"""The training loss: not finite, zero, constant, stuck at a telling number."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ...settings.settings import PlainSetting
from ..series import Series
from ..shape import change, longest_run, mad, noise, repeated
from .finding import Curve, Finding, Group, plain, when

if TYPE_CHECKING:
    from ...run.workspace import Workspace

# Sizes whose logarithm a stuck loss often shows when no setting names them.
_COMMON_N = (
    2,
    3,
    4,
    5,
    10,
    20,
    100,
    200,
    365,
    1000,
    32_000,
    32_064,
    50_257,
    50_304,
    100_277,
    128_256,
    151_643,
    151_936,
)
_FEW_STEPS = 300  # a whole run of so many steps has hardly begun to learn
_OF_A_BATCH = {"gradient_accumulation_steps", "world_size", "micro_batch_size", "global_batch_size"}
_N_SETTINGS = {"micro_batch_size", "global_batch_size", "vocab_size", "classes", "num_experts", "samples_per_prompt"}


def loss_findings(group: Group, settings: Sequence[PlainSetting]) -> Iterator[Finding]:
    """Everything about one loss curve that a single curve can tell, except spikes and progress."""
    series = group.series.get("loss")
    if series is None:
        return
    yield from _not_finite(series, group)
    curve = Curve(series)
    if not len(curve):
        return
    yield curve.at("loss.initial_value", plain(curve.values[0]), 0)
    yield curve.at("loss.final_value", plain(curve.values[-1]), len(curve) - 1)
    if group.rl:
        return
    yield from _zero(curve)
    yield from _constant(curve, settings)
    yield from _stuck(curve, settings)
    yield from _high_start(curve, settings)
    yield from _scaled(curve, group.other_losses, settings)
    counted = curve.series.stepped and not curve.series.by_epoch
    if counted and len(curve) >= 20 and curve.steps[0] <= 20 and 50 <= curve.steps[-1] <= _FEW_STEPS:
        yield curve.at("loss.few_steps", plain(curve.steps[-1]), len(curve) - 1)


def _not_finite(series: Series, group: Group) -> Iterator[Finding]:
    bad = np.flatnonzero(~series.finite)
    if not len(bad):
        return
    first = int(bad[0])
    yield Finding("loss.first_nan_step", when(series, first), series, first)
    yield Finding("loss.first_nan_value", "nan" if np.isnan(series.values[first]) else "inf", series, first)
    after = series.finite[first:]
    if after.any():
        yield Finding("loss.nan_recovered", True, series, first + int(np.flatnonzero(after)[0]))
    before = series.values[:first]
    if not np.isfinite(before).any():
        yield Finding("loss.nan_from_start", True, series, first)
        return
    if (first <= 4 and _begins(series)) or (series.stepped and series.steps[first] <= 10):
        yield Finding("loss.nan_in_first_steps", True, series, first)
    curves = (group.series.get("grad_norm"), series)
    ramp = next((r for c in curves if (r := _ramp(c, int(series.offsets[first])))), None)
    finite = np.flatnonzero(np.isfinite(before))
    if ramp is not None and _is_one_step(*ramp):
        yield Finding("loss.nan_after_jump", True, *ramp)
    elif ramp is not None:
        yield Finding("loss.nan_after_ramp", True, *ramp)
        if ramp[0].metric == "grad_norm":
            yield Finding("grad_norm.ramp_before_nan", True, *ramp)
    elif len(finite) >= 3:
        yield Finding("loss.nan_flat_before", True, series, int(finite[-1]))


def _begins(series: Series) -> bool:
    """Whether the first row is that of the run's first steps: an excerpt and a resumed run begin later."""
    if not series.stepped or len(series) < 2:
        return True
    return bool(series.steps[0] <= max(10, 2 * (series.steps[1] - series.steps[0])))


def ending_findings(found: Sequence[Group]) -> Iterator[Finding]:
    """`loss.nan_until_end`: the last loss of a run is not finite, and no other file has the run going on soundly."""
    losses = [s for g in found if (s := g.series.get("loss")) is not None and s.count]
    for series in losses:
        if not series.finite[-1] and not any(_goes_on(series, later) for later in losses):
            yield Finding("loss.nan_until_end", True, series, len(series) - 1)


def _goes_on(series: Series, later: Series) -> bool:
    """Whether another curve of the same rank and variant reaches a later step, and is finite there."""
    same = (_place(series), series.file.run) == (_place(later), later.file.run)
    if not same or series.file.name == later.file.name or not (series.stepped and later.stepped):
        return False
    return bool(later.finite[-1]) and later.steps[-1] > series.steps[-1]


def _place(series: Series) -> tuple[int | None, str | None]:
    rank = series.rank if series.rank is not None else series.file.rank
    return rank, series.variant or series.file.variant


def _ramp(series: Series | None, offset: int) -> tuple[Series, int] | None:
    """Where a curve stood just before `offset`, when it had been climbing: three times its level by then."""
    if series is None:
        return None
    places = np.flatnonzero((series.offsets < offset) & series.finite)[-40:]
    values = series.values[places]
    if len(places) < 5:  # too few for a level: a steep climb from point to point is one all the same
        steep = len(places) >= 3 and values[0] > 0 and (np.diff(values) > 0).all() and values[-1] > 10 * values[0]
        return (series, int(places[-1])) if steep else None
    base = float(np.median(values[: max(3, len(values) * 2 // 3)]))
    rise = 3.0 if series.metric == "grad_norm" else 1.5
    last = float(np.median(values[-2:]))
    spread = noise(values[: max(3, len(values) * 2 // 3)])
    if base > 0 and last > rise * base and last - base > 5 * spread:
        return series, int(places[-1])
    if series.metric != "grad_norm" and base > 0 and last > 1.12 * base and last - base > 8 * spread:
        late = values[-8:]  # a slow climb: most points of it above the one before, all above the level
        if len(late) == 8 and (np.diff(late) > 0).sum() >= 5 and late[2:].min() > base + 2 * spread:
            return series, int(places[-1])
    return None


def _is_one_step(series: Series, last: int) -> bool:
    """Whether a climb is one step alone, level until the step before; told only where each step is logged."""
    places = np.flatnonzero(series.finite[: last + 1])[-40:]
    if len(places) < 20 or not series.stepped or (np.diff(series.steps[places][-10:]) != 1).any():
        return False
    values = series.values[places]
    level, now = values[:-1], float(values[-1])
    base = float(np.median(level))
    return now > 10 * base > 0 and bool(level[-3:].max() < max(1.5 * base, float(np.quantile(level[:-3], 0.9))))


def _zero(curve: Curve) -> Iterator[Finding]:
    start, end = longest_run(curve.values == 0.0)
    length = end - start
    if length < 3 and not (length == len(curve) >= 2):
        return
    before = curve.values[max(0, start - 5) : start]
    if len(before) and np.median(before) < 0.02:
        return  # a loss this small is rounded to zero by the printer
    yield curve.at("loss.zero", curve.when(start), start)
    if start == 0:
        yield curve.at("loss.zero_from_start", True, 0)
    elif len(before) >= 2 and end == len(curve):
        yield curve.at("loss.zero_after_finite", curve.when(start), start)


def _constant(curve: Curve, settings: Sequence[PlainSetting]) -> Iterator[Finding]:
    value, start, length = repeated(curve.values)
    if value == 0.0 or length < 5:
        return
    digits = len(f"{value:.10g}".replace(".", "").replace("-", "").lstrip("0"))
    if digits >= 4 or (length >= 10 and length >= 0.5 * len(curve)):
        yield curve.at("loss.constant", plain(value), start)
        if digits >= 3 and length >= max(10, 0.5 * len(curve)) and not is_flat(curve):
            yield from _logarithm(curve, value, 0.0, start, settings)


def is_flat(curve: Curve) -> bool:
    """Whether a curve never moved: seen from its beginning, no net change, little spread."""
    values = curve.fair
    if len(values) < 3:
        return False
    steps = curve.steps
    if curve.series.stepped and steps[0] > 1000 and steps[0] > 0.1 * steps[-1]:
        return False  # a window of a longer run: late in training nothing moves any more
    middle = float(np.median(values))
    if middle <= 0:
        return False
    if len(values) < 8:
        return float(values.max() - values.min()) < 0.005 * middle
    allowed = 0.005 if len(values) < 16 else 0.02
    net, sigmas = change(values)
    spread = mad(values) / middle
    half = values[len(values) // 2 :]
    late = float(np.median(half)) - float(np.median(values[:3]))
    return (
        abs(net) < 0.02 * middle
        and spread < allowed
        and abs(late) < 0.03 * middle
        and (abs(sigmas) < 4 or abs(net) < 0.005 * middle)
    )


def _stuck(curve: Curve, settings: Sequence[PlainSetting]) -> Iterator[Finding]:
    if not is_flat(curve):
        return
    half = curve.values[len(curve) // 2 :]
    value = float(np.median(half))
    at = len(curve) // 2 + int(np.argmin(np.abs(half - value)))
    if len(curve) >= 8:
        yield curve.at("loss.flat", True, at)
    if len(curve) >= 5:
        yield curve.at("loss.plateau_value", plain(value), at)
    yield from _logarithm(curve, value, 4 * mad(half) / math.sqrt(len(half)), at, settings)


def _logarithm(
    curve: Curve, value: float, spread: float, at: int, settings: Sequence[PlainSetting]
) -> Iterator[Finding]:
    """The number of choices whose logarithm the loss stands at, where it is a telling one."""
    tolerance = max(0.0015 * value, min(0.01 * value, spread))
    own = sorted(settings, key=lambda s: s.file.variant != curve.series.variant)
    for number, setting in _candidates(own):
        if setting is None and mad(curve.fair if spread else curve.values[at:]) > 0.003 * value:
            return  # too loose to name a number that no setting mentions
        if number > 1 and abs(value - math.log(number)) <= tolerance:
            yield curve.at("loss.equals_ln", plain(number), at)
            if setting is not None:
                yield Finding("loss.equals_ln", plain(number), file=setting.file, line=setting.line)
            return


def _candidates(settings: Sequence[PlainSetting]) -> Iterator[tuple[float, PlainSetting | None]]:
    for setting in settings:
        if setting.name in _N_SETTINGS and setting.value >= 2 and float(setting.value).is_integer():
            yield setting.value, setting
    for power in range(3, 17):
        yield float(2**power), None
    for number in _COMMON_N:
        yield float(number), None


def _high_start(curve: Curve, settings: Sequence[PlainSetting]) -> Iterator[Finding]:
    """A first loss far above that of guessing. Without a vocabulary size the largest in use bounds it."""
    vocabulary = [s for s in settings if s.name == "vocab_size" and s.value > 1000]
    bound = math.log(vocabulary[0].value) if vocabulary else math.log(262_144)
    if curve.values[0] > (1.5 if vocabulary else 2.0) * bound:
        yield curve.at("loss.high_start", plain(curve.values[0]), 0)


def _scaled(curve: Curve, others: Sequence[Series], settings: Sequence[PlainSetting]) -> Iterator[Finding]:
    """Two training losses of one log, of which one is the other times a setting that parts or multiplies a batch."""
    for other in (Curve(s) for s in others if len(s) >= 2 and s.finite.all()):
        places = curve.series.offsets[curve.index]
        near = np.searchsorted(places, other.series.offsets).clip(max=len(places) - 1)  # the next one in the file
        ratios = curve.values[near] / np.where(other.values > 0, other.values, np.nan)
        for s in settings:
            apart = np.abs(ratios / s.value - 1) if s.name in _OF_A_BATCH and s.value > 1 else None
            if apart is not None and apart[0] < 0.02 and np.nanmax(apart) < 0.25:
                yield curve.at("loss.proportional_to", s.name, int(near[0]))
                yield Finding("loss.proportional_to", s.name, file=s.file, line=s.line)
                return


# ----------
# Loss and accuracy held against each other: a classifier that guesses, one that came back to guessing, and an
# accuracy that the loss rules out.
#
# Whoever gives every class the same probability has a loss of ln k and is right once in k times, so that the accuracy
# is exp(-loss). Whoever has learned anything is right more often than that. On the other side, each wrong answer costs
# a cross-entropy of ln 2 at least, as another class then had no less probability: a mean loss L leaves room for a share
# of L / ln 2 of wrong answers, and no more.

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


# ----------
# A representation that gives up its spread while the loss looks better and better.

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
