"""Does it learn: net progress, spikes, divergence, and validation against training."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ...run.workspace import Workspace
from ..curves import named_series
from ..shape import change, noise, rolling_median, runs, smooth, spikes
from .finding import Curve, Finding, Group, plain, when

_FALLING = 0.03  # of the loss over the last quarter
_AFTER = 0.03  # of the steps, within which a loss answers a rate that is high again
_OTHER = 30.0  # times the training loss at the first evaluation: another measure
_COARSE = 0.03  # of a value: rounding that a ratio can bear
_MEASURE = re.compile(
    r"(?i)(?<![a-z])(r?mse|s?ma[pe]?e|l[12]|huber|recon(?:struction)?|kld?|bce|dice|iou|elbo|contrastive|triplet)(?![a-z])"
)
_NEAR_ZERO = 0.05  # nats; below it both losses are done, and their ratio is noise and dropout


def progress_findings(group: Group, renewed: np.ndarray | None = None) -> Iterator[Finding]:
    """Spikes, divergence and net progress of the training loss, and how validation compares.

    Args:
        renewed: steps at which the schedule begins anew by design, which the loss answers with a jump.
    """
    loss = group.curve("loss")
    if loss is not None and not group.rl:
        if len(loss) >= 6:
            for told in _spikes(loss, renewed if renewed is not None else np.array([])):
                yield told
                if told.key == "loss.spike_step":
                    yield from _without_rate(group, told)
        departed = divergence(loss)
        if departed is not None:
            yield (told := loss.at("loss.diverged", loss.when(departed), departed))
            yield from _without_rate(group, told)
        elif decreasing(loss):
            yield loss.at("loss.decreasing", True, len(loss) - 1)
    for metric in ("eval_loss", "eval_perplexity"):
        held = group.series.get(metric)
        if held is not None:
            train = group.beside(held) or loss
            yield from _validation(Curve(held), train if metric == "eval_loss" and not group.rl else None)


def _without_rate(group: Group, told: Finding) -> Iterator[Finding]:
    """A learning rate of zero where the loss rises: it cannot be the rate."""
    rate, series = group.curve("learning_rate"), told.series
    if rate is None or series is None or not rate.values.any():
        return
    before = np.flatnonzero(rate.series.offsets[rate.index] <= series.offsets[told.index])
    near = rate.values[before[-2:]]
    if len(near) and not near.any():
        yield rate.at("learning_rate.zero_at_rise", told.value, int(before[-1]))


def decreasing(curve: Curve) -> bool:
    """Net progress beyond the noise."""
    values = curve.fair
    if len(values) < 3:
        return False
    if len(values) == 3:
        return bool((np.diff(values) < 0).all() and values[-1] < 0.97 * values[0])
    net, sigmas = change(values)
    first = float(np.median(values[:2]))
    if len(values) < 8:
        return bool(net < -0.03 * abs(first) and values[-1] <= values.min() * 1.1)
    if net < -0.02 * abs(first) and sigmas < -3:
        return True
    # learned within the first few points, and at its floor since then
    end = float(np.median(values[-max(3, len(values) // 3) :]))
    return bool(values.min() >= 0 and first - end > max(0.5 * first, 6 * noise(values)) and end < 1.5 * values.min())


def divergence(curve: Curve) -> int | None:
    """Position where a curve left its best level for good, or None. Positive curves only."""
    values = curve.values
    if len(values) < 6 or values.min() < 0:
        return None
    window = min(201, max(3, len(values) // 20)) | 1
    level = smooth(values, window)
    ends = max(3, len(values) // 20)
    end = float(np.median(values[-ends:]))
    # The very first level does not count as a best one: a curve that climbs from its first point is told too.
    best = int(np.argmin(level))
    if len(values) - best <= 3:
        return None
    jitter = max(noise(curve.fair), 0.005 * float(level[best]))
    floor = float(level[best])
    short = len(values) < 12
    if end < (1.5 if short else 1.3) * floor or end - floor < max(
        (4 if short else 3) * jitter, 12 * jitter / np.sqrt(window)
    ):
        return None
    above = values > floor + max(3 * jitter / np.sqrt(window), 0.1 * floor)
    if not above[-ends:].all():
        return None
    stretch = runs(above)[-1]
    return int(max(stretch[0], best + 1))


def _spikes(curve: Curve, renewed: np.ndarray) -> Iterator[Finding]:
    values = curve.values
    before = rolling_median(values, 25)
    stretches = runs(spikes(values))
    told = []
    for start, end in stretches:
        peak = start + int(np.argmax(values[start:end]))
        base = float(before[start])
        if base <= 0:
            continue
        ratio = float(values[peak] / base)
        since = curve.steps[start] - renewed
        if ((since >= 0) & (since <= _AFTER * np.ptp(curve.steps))).any():
            continue  # the rate is high again
        later = values[end : end + max(5, len(values) // 20)]
        recovered = bool(len(later) and (later < base + 0.35 * (values[peak] - base)).any())
        if (
            recovered
            and end - start == 1
            and (ratio < 2.5 or values[start] - base < 14 * max(noise(curve.fair), 0.02 * base))
        ):
            continue  # one hard batch
        told.append((ratio, start, peak, recovered, bool(len(later))))
    for ratio, start, peak, recovered, known in sorted(told, reverse=True)[:3]:
        yield curve.at("loss.spike_step", curve.when(start), start)
        yield curve.at("loss.spike_ratio", plain(ratio), peak)
        if known:
            yield curve.at("loss.spike_recovered", recovered, min(peak + 1, len(curve) - 1))
    if told:
        yield curve.at("loss.spike_count", len(told), max(told)[1])


def _validation(held: Curve, train: Curve | None) -> Iterator[Finding]:
    series = held.series
    bad = np.flatnonzero(~series.finite)
    if len(bad):
        yield Finding("eval.first_nan_step", when(series, int(bad[0])), series, int(bad[0]))
        if train is not None and train.series.finite.all():
            yield Finding("eval.nan_while_train_finite", True, series, int(bad[0]))
    if not len(held):
        return
    last, best = len(held) - 1, int(np.argmin(held.values))
    if last:
        yield held.at("eval.initial_value", plain(held.values[0]), 0)
    if 0 < best < last:
        yield held.at("eval.best_value", plain(held.values[best]), best)
    yield held.at("eval.final_value", plain(held.values[last]), last)
    if train is not None and len(train) and _alike(train, held) and _fine(train) and _fine(held):
        ratio, around = _ratio(train, held, last)
        if ratio:
            yield held.at("eval.gap_ratio", plain(round(ratio, 4)), last)
        if 0 < ratio < 0.7 and around - float(held.values[last]) > _NEAR_ZERO:
            yield held.at("eval.below_train", plain(round(ratio, 4)), last)
    yield from _worsening(held, train)
    yield from _still_falling(held)


def _ratio(train: Curve, held: Curve, position: int) -> tuple[float, float]:
    """Of a validation to the training loss around it, and that; 0 where one of them is not positive."""
    near = _nearest(train, held, position)
    reach = min(4, len(train) // (4 * len(held)))  # what is nearer to another evaluation is not of this one
    around = float(np.median(train.values[max(0, near - reach) : near + reach + 1]))
    return (float(held.values[position]) / around if min(around, float(held.values[position])) > 0 else 0.0), around


def _alike(train: Curve, held: Curve) -> bool:
    """Whether both are of one measure: not an MSE and an MAE by name, nor a sum and a mean, which start far apart."""
    one, other = ({m.lower() for m in _MEASURE.findall(f"{c.series.raw} {c.series.expression}")} for c in (train, held))
    first, _ = _ratio(train, held, 0)
    return one == other and (len(held) < 2 or first == 0.0 or 1 / _OTHER < first < _OTHER)


def _fine(curve: Curve) -> bool:
    """Whether a curve is printed with digits enough for a ratio: not `0.04`."""
    decimals = max(len(f"{abs(v):.6f}".rstrip("0").partition(".")[2]) for v in curve.values[-20:])
    return 0.5 * 10.0**-decimals <= _COARSE * abs(float(curve.values[-1]))


def _still_falling(held: Curve) -> Iterator[Finding]:
    """`eval.still_falling`: validation was still getting better when the run ended, beyond its noise."""
    values = held.values
    if len(values) < 6 or values.min() <= 0:
        return
    last = max(2, len(values) // 8)
    end, before = float(np.median(values[-last:])), float(np.median(values[-3 * last : -2 * last]))
    if end < (1 - _FALLING) * before and before - end > 3 * noise(values[-4 * last :]):
        yield held.at("eval.still_falling", plain(round(1 - end / before, 4)), len(values) - 1)


def _nearest(train: Curve, held: Curve, position: int) -> int:
    """Position of the training point logged nearest to a validation point: by step, else by place in the file."""
    same = train.series.stepped and held.series.stepped and train.series.file.name != held.series.file.name
    if same or (
        train.series.stepped and held.series.stepped and train.steps[-1] >= held.steps[position] >= train.steps[0]
    ):
        return int(np.argmin(np.abs(train.steps - held.steps[position])))
    return int(np.argmin(np.abs(train.series.offsets[train.index] - held.series.offsets[held.index[position]])))


def _worsening(held: Curve, train: Curve | None) -> Iterator[Finding]:
    """Validation that got better, then worse: where it was best, where it jumped, where it ended."""
    values = held.values
    if len(values) < 4:
        return
    best = int(np.argmin(values))
    end, low = float(values[-1]), float(values[best])
    if best == len(values) - 1 or low <= 0:
        return
    jitter = noise(values[: best + 1]) if best >= 3 else noise(values)
    rising = values[best:]
    climbs = best >= 3 and len(rising) >= 6 and np.ptp(rising) > 0
    if climbs and np.corrcoef(np.arange(len(rising)), rising)[0, 1] > 0.85:
        jitter = min(jitter, noise(rising))  # a steep fall before the best point looks like noise
    if end < 1.07 * low or end - low < 4 * jitter or len(rising) < 3 or float(np.median(rising[-2:])) < 1.05 * low:
        return
    yield held.at("eval.best_step", held.when(best), best)
    yield held.at("eval.worsened", plain(round(end / low, 4)), len(values) - 1)
    ratios = values[best + 1 :] / values[best:-1]
    jump = best + 1 + int(np.argmax(ratios))
    if ratios.max() > 1.3 and ratios.max() > 1 + 4 * np.median(np.abs(ratios - 1)):
        yield held.at("eval.jump_step", held.when(jump), jump)
    if train is not None and len(train) >= 6 and not divergence(train):
        net, sigmas = change(train.fair)
        if net < 0 and sigmas < -2:
            yield held.at("eval.loss_rising_while_train_falls", True, len(values) - 1)


# ----------
# Several evaluation sets of one run: one gets worse from the first evaluation on while another gets better.
#
# Overfitting makes a curve fall first and rise later; here what is trained improves to the end, and what is not is lost
# from the start.

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
