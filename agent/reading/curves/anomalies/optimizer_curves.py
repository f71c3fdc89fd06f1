"""Gradient norm, learning rate and loss scale."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...run.files import Line, RunFile
from ...settings.settings import Settings
from ..series import Series
from ..shape import level, longest_run, rolling_mean, rolling_median, runs, spikes, tail
from .finding import Curve, Finding, Group, plain, when
from .learning import decreasing

if TYPE_CHECKING:
    from ...run.workspace import Workspace

SEARCH = 16  # halvings within which a scaler that starts as high as usual has found its range
_BACK = 1.5  # times the rate before, from which it begins anew
_FINE = 0.15  # least rate above zero, of the peak: a log that shows it has decimals enough
_DONE = 0.02  # of the first loss
_ALARMING_GSS = 15.0  # 50 and more is critical; heavy-tailed but healthy gradients reach ten


def optimizer_findings(group: Group, restarts: bool = False) -> Iterator[Finding]:
    """What the optimizer's own curves tell.

    Args:
        restarts: whether the schedule that the run asked for begins anew by design.
    """
    if "grad_norm" in group.series:
        yield from _gradient(group.series["grad_norm"], group)
    if "learning_rate" in group.series:
        yield from _learning_rate(group, restarts)
    yield from _loss_scale(group)


def _gradient(series: Series, group: Group) -> Iterator[Finding]:
    curve = Curve(series)
    yield from _gradient_not_finite(series, group)
    if not len(curve):
        return
    values = curve.values
    top = int(np.argmax(values))
    yield curve.at("grad_norm.max", plain(values[top]), top)
    yield curve.at("grad_norm.last", plain(values[-1]), len(curve) - 1)
    start, end = longest_run(values == 0.0)
    if end - start >= 3 or (end - start == len(curve) >= 2):
        yield curve.at("grad_norm.zero", curve.when(start), start)
    if len(curve) < 8:
        return
    yield from _gradient_spikes(curve)
    last = level(values, tail(len(curve), 0.25, 3))
    loss = group.curve("loss")
    quiet = loss is not None and not decreasing(loss) and not group.rl
    if loss is not None and abs(float(np.median(loss.values[-3:]))) < _DONE * abs(float(loss.values[0])):
        quiet = False  # nothing is left to learn from
    if quiet and 0 < last < 0.05 and last < 0.02 * float(values[: max(3, len(curve) // 4)].max()):
        yield curve.at("grad_norm.vanishing", plain(last), len(curve) - 1)
    lowest = min(level(values, part) for part in _quarters(len(values)))
    quarters = [level(values, part) for part in _quarters(len(values))]
    if len(curve) >= 16 and last > 5 * lowest > 0 and quarters[-1] == max(quarters) and quarters[-1] > 2 * quarters[0]:
        yield curve.at("grad_norm.growing", plain(round(last / lowest, 3)), len(curve) - 1)


def _quarters(length: int) -> list[slice]:
    return [slice(length * i // 4, max(length * (i + 1) // 4, length * i // 4 + 1)) for i in range(4)]


def _gradient_not_finite(series: Series, group: Group) -> Iterator[Finding]:
    bad = ~series.finite
    if not bad.any():
        return
    loss = group.series.get("loss")
    start, end = longest_run(bad)
    # A scaler that looks for its range skips a step or two, and more of the first ones; that alone is no finding.
    searching = start == 0 and end <= SEARCH and len(series) >= 4 * end
    only_skips = end == len(series) and loss is not None and _goes_on_beside(loss, series)
    lasting = (end - start >= 3 and not searching) or end == len(series) or (loss is not None and not loss.finite.all())
    if only_skips:
        return
    if lasting or series.nans + series.infs > max(5, 0.05 * series.count):
        first = int(np.flatnonzero(bad)[0]) if not lasting else start
        yield Finding("grad_norm.nonfinite_step", when(series, first), series, first)


def _goes_on_beside(loss: Series, series: Series) -> bool:
    """Whether a norm is printed for skipped steps alone: a finite loss has many more points, and goes on after it."""
    return bool(loss.finite.all()) and len(loss) >= 4 * len(series) and float(loss.steps[-1]) > float(series.steps[-1])


def _gradient_spikes(curve: Curve) -> Iterator[Finding]:
    values = curve.values
    mean = rolling_mean(values, 50)
    with np.errstate(invalid="ignore", divide="ignore"):
        score = np.where(mean > 0, values / mean, 0.0)
    score[:5] = 0.0
    top = int(np.argmax(score))
    if score[top] >= _ALARMING_GSS:
        yield curve.at("loss.gss", plain(round(float(score[top]), 2)), top)
    high = spikes(values, sigmas=12.0, ratio=5.0)
    before = rolling_median(values, 25)
    # One high step among ordinary ones must stand out more than a stretch of them.
    lasting = [(a, b) for a, b in runs(high) if b - a >= 2 or values[a] > 15 * before[a]]
    if lasting:
        first = lasting[0][0]
        yield curve.at("grad_norm.spike_step", curve.when(first), first)
        if before[first] > 0:
            yield curve.at("grad_norm.spike_ratio", plain(round(float(values[first] / before[first]), 2)), first)


def _learning_rate(group: Group, restarts: bool) -> Iterator[Finding]:
    curve = Curve(group.series["learning_rate"])
    if not len(curve):
        return
    values = curve.values
    top = int(np.argmax(values))
    yield curve.at("learning_rate.peak", plain(values[top]), top)
    start, end = longest_run(values <= 1e-12)
    tail_only = end == len(values) and start > 0
    if end - start >= (3 if not tail_only else max(3, 0.1 * len(values))):
        yield curve.at("learning_rate.zero", curve.when(start), start)
        if tail_only and _resolved(values):
            yield curve.at("learning_rate.zero_share", plain(round((end - start) / len(values), 3)), start)
    if len(curve) >= 3 and values.max() > 0 and values.max() - values.min() <= 1e-9 * values.max():
        return
    if len(curve) >= 3 and _rises(curve, top) and (np.diff(values[: top + 1]) >= -1e-12).all():
        yield curve.at("learning_rate.warmup_seen", True, top)
    if not len(warm_restarts(curve, restarts)):
        yield from _rate_jumps(curve)


def _rises(curve: Curve, top: int) -> bool:
    """Whether a rate grows to its top from early on: three points of a schedule, or its second half, are no warm-up."""
    early = not curve.series.stepped or float(curve.steps[0]) < 0.5 * float(curve.steps[top])
    return top > 0 and early and (top < len(curve) - 1 or top >= 4) and curve.values[0] < 0.9 * curve.values[top]


def warm_restarts(curve: Curve, asked: bool = False) -> np.ndarray:
    """Places where a schedule begins anew: the rate, come down to a fraction, is back at its top or a share of it.

    Once may be an accident, such as a schedule that a resume lost, unless it was asked for; time and again it is one.
    """
    values, steps = curve.values, curve.steps
    found: list[int] = []
    start = 0
    for at in (np.flatnonzero(values[1:] > _BACK * np.maximum(values[:-1], 1e-12)) + 1).tolist():
        cycle = values[start:at]
        top = int(cycle.argmax())
        came_down = len(cycle) >= 3 and cycle[-1] <= 0.5 * cycle[top] and (np.diff(cycle[top:]) <= 1e-12).all()
        if came_down and values[at] <= 1.01 * cycle[top] and steps[at] > steps[at - 1]:
            found.append(at)
            start = at
    return np.array(found if asked or len(found) > 1 else [], dtype=int)


def _resolved(values: np.ndarray) -> bool:
    """Whether the zeros are zeros: a log of few decimals shows the last part of any decay as 0."""
    above = values[values > 1e-12]
    return bool(len(above)) and float(above.min()) <= _FINE * float(above.max())


def _rate_jumps(curve: Curve) -> Iterator[Finding]:
    """A rate that leaps up after it had settled. A warm-up grows in proportion to the step and is none."""
    values, steps = curve.values, curve.steps
    resets = set(curve.series.resets)
    for at in (np.flatnonzero(values[1:] > 1.5 * np.maximum(values[:-1], 1e-12)) + 1).tolist():
        if at < 3 or values[at - 1] <= 1e-12 or values[at - 2] < 0.9 * values[at - 1]:
            continue
        if (np.diff(steps[at - 3 : at + 1]) <= 0).any():
            if any(abs(int(curve.series.lines[curve.index[at]]) - r) <= 2 for r in resets):
                yield curve.at("learning_rate.reset", plain(steps[at]), at)
                return
            continue
        if steps[at - 1] > 0 and values[at] / values[at - 1] < 1.3 * steps[at] / steps[at - 1]:
            continue
        yield curve.at("learning_rate.jump_step", curve.when(at), at)
        return


def _loss_scale(group: Group) -> Iterator[Finding]:
    series = group.series.get("overflow_scale") or group.series.get("loss_scale")
    skipped = group.series.get("skipped_iterations")
    if series is not None:
        curve = Curve(series)
        values = curve.values
        if len(curve) and values.max() > 1:
            falls = np.flatnonzero(np.diff(values) < 0) + 1
            if values[-1] <= 1.0 and len(falls) >= 3:
                at = int(np.flatnonzero(values <= 1.0)[0])
                yield curve.at("loss_scale.floor", plain(values[-1]), at)
            if len(falls) >= 5 and values[-1] <= values.max() / 64:
                yield curve.at("loss_scale.falling", plain(values.max() / max(values[-1], 1e-9)), len(curve) - 1)
            count = len(curve) if series.metric == "overflow_scale" else len(falls)
            if count > 3 and not _searches(curve, falls):
                yield curve.at(
                    "loss_scale.skips", series.count if series.metric == "overflow_scale" else count, len(curve) - 1
                )
    if skipped is not None:
        curve = Curve(skipped)
        values = curve.values
        total = (
            float(values[-1])
            if len(values) and (np.diff(values) >= 0).all() and values[-1] > 1
            else float(values.sum())
        )
        if total > 3:
            yield curve.at("loss_scale.skips", plain(total), int(np.flatnonzero(values > 0)[-1]))
        if _overflows_always(curve, series):
            yield curve.at("loss_scale.overflows_always", plain(curve.steps[-1]), len(curve) - 1)


def _searches(curve: Curve, falls: np.ndarray) -> bool:
    """Whether a scale that starts as high as usual came down within the first steps, and has held or risen since."""
    if curve.series.metric == "overflow_scale" or not curve.series.stepped or not 0 < len(falls) <= SEARCH:
        return False
    return bool(curve.steps[falls[-1]] <= curve.steps[0] + 2 * SEARCH) and len(curve) >= 4 * SEARCH


def _overflows_always(curve: Curve, scale: Series | None) -> bool:
    """Whether every step that was printed was skipped: at first that is the search for a scale, later it is not.

    Megatron counts the steps since the line before ("number of skipped iterations"), others all of the run.
    """
    if len(curve) < 4:
        return False
    values, gaps = curve.values, np.diff(curve.steps)
    since_last = curve.series.raw.lower().startswith("number")
    counted = values[1:] if since_last else np.diff(values)
    if gaps.min() < 1 or values[0] < 1 or (counted < gaps).any():
        return False
    covered = curve.steps[-1] - curve.steps[0] + 1
    still = scale is not None and scale.metric == "loss_scale" and len(set(scale.values[-8:])) == 1
    return covered > 2 * SEARCH or (still and covered >= SEARCH)


# ----------
# A dynamic loss scaler at work: it skips a step now and then, and never many in a row.

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


_RESTARTING = re.compile(r"(?i)restart|cyclic|cycle|sgdr")
_MADE_SO = re.compile(rb"WarmRestarts\(|CyclicLR\(|with_hard_restarts|cosine_with_restarts|CosineLRScheduler\(")


def restarting_schedule(ws: Workspace, reading: Settings) -> bool:
    """Whether the run asks for a schedule that begins anew by design."""
    asked = (*reading.asked("lr_scheduler"), *reading.used("lr_scheduler"))
    if any(isinstance(s.value, str) and _RESTARTING.search(s.value) for s in asked if not s.file.good):
        return True
    programs = [f for f in ws.by_role("code") if f.size < _BYTES and not f.good and ws.ran.part(f) == "program"]
    return any(_MADE_SO.search(ws.read(f, _BYTES)) for f in programs[:_FILES])


# ----------
# Optimizers whose usual learning rate is large: a rate that would break Adam is ordinary for them.

# Name of an optimizer -> the largest rate that is usual for it.
USUAL = {
    "scaledadam": 0.1, "eve": 0.01, "sgd": 0.2, "momentum": 0.2, "nesterov": 0.2, "adafactor": 0.02, "muon": 0.1,
    "adadelta": 1.0, "adagrad": 0.1, "prodigy": 1.0, "dadaptadam": 1.0, "dadaptation": 1.0, "shampoo": 0.1,
    "lars": 10.0, "lamb": 0.02, "rmsprop": 0.01,
}  # fmt: skip
_ANY = re.compile(r"\boptim\.[A-Z]\w+\(|\b(?:Adam|Lion)\w*\(")
_MADE = re.compile(
    r"\b(?i:(ScaledAdam|Eve|SGD|Adafactor|Muon|Adadelta|Adagrad|Prodigy|DAdaptAdam|Shampoo|LARS|LAMB|RMSprop))\("
)
_FILES, _BYTES = 60, 200_000


def large_rates(ws: Workspace, reading: Settings) -> Iterator[tuple[RunFile, Line, str]]:
    """Where the run names such an optimizer, and nothing it asks for is above what is usual there."""
    asked = [s for s in (*reading.asked("learning_rate"), *reading.used("learning_rate")) if not s.file.good]
    rates = [float(s.value) for s in asked if isinstance(s.value, int | float) and not isinstance(s.value, bool)]
    for file, line, name in _named(ws, reading):
        bound = USUAL.get(re.sub(r"[^a-z]", "", name.lower().rpartition(".")[2]))
        if bound is not None and all(rate <= bound for rate in rates):
            yield file, line, name
            return


def _named(ws: Workspace, reading: Settings) -> Iterator[tuple[RunFile, Line, str]]:
    for s in (*reading.asked("optimizer"), *reading.used("optimizer")):
        if not s.file.good:
            yield s.file, s.line, str(s.value)
    made = [
        (file, line, m[1] if (m := _MADE.search(line.text)) else "")
        for file in [f for f in ws.by_role("code") if f.size < _BYTES and not f.good][:_FILES]
        for line in ws.lines(file)
        if _ANY.search(line.text) or _MADE.search(line.text)
    ]
    if all(name for _, _, name in made):  # of several kinds, one is chosen somewhere
        yield from made
