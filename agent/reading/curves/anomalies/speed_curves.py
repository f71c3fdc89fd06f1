"""Throughput, step and data time, memory over steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ...settings.settings import PlainSetting
from ..shape import change, head, level, noise, runs, slope, smooth, tail
from .finding import Curve, Finding, Group, plain


def speed_findings(group: Group) -> Iterator[Finding]:
    """How fast it went, whether it slowed down, and whether memory grew."""
    yield from _throughput(group)
    yield from _step_time(group)
    yield from _memory(group)


def _throughput(group: Group) -> Iterator[Finding]:
    curve = group.curve("throughput")
    if curve is None or len(curve) < 3:
        return
    values = curve.values
    middle = float(np.median(curve.fair)) if len(curve.fair) else float(np.median(values))
    yield curve.at("throughput.value", plain(middle), int(np.argmin(np.abs(values - middle))))
    drop = sustained_fall(values)
    if drop is not None:
        at, ratio = drop
        yield curve.at("throughput.drop_step", curve.when(at), at)
        yield curve.at("throughput.drop_ratio", plain(round(ratio, 4)), at)


def sustained_fall(values: np.ndarray) -> tuple[int, float] | None:
    """(position, ratio) of the place after which a positive curve stays at under 0.7 of what it was, or None."""
    if len(values) < 12 or values.min() < 0:
        return None
    values = values.copy()
    values[0] = values[1]  # the first interval holds compilation and warm-up
    window = min(101, max(5, len(values) // 50)) | 1
    level = smooth(values, window)
    edge = max(4, window // 2)
    best, fast = 0.7, 0.0
    for at in np.unique(np.linspace(edge, len(values) - edge, 60).astype(int)):
        before, after = float(np.median(level[:at])), float(np.median(level[at:]))
        if before > 0 and after / before < best:
            best, fast = after / before, before
    if not fast or fast - best * fast < 4 * max(noise(values), 0.01 * fast):
        return None
    slow = runs(level < 0.5 * (1 + best) * fast)[-1]
    if slow[1] < len(values) or slow[1] - slow[0] < edge or slow[0] < 3:
        return None
    return slow[0], best


def _step_time(group: Group) -> Iterator[Finding]:
    curve = group.curve("step_time", "bar_step_time")
    if curve is None or len(curve) < 2:
        return
    fair = curve.fair[1:] if len(curve.fair) > 3 else curve.fair
    middle = float(np.median(fair))
    if middle <= 0:
        return
    values = curve.values
    yield curve.at("step_time.median", plain(middle), int(np.argmin(np.abs(values - middle))))
    if curve.series.metric == "step_time" and len(curve) >= 8 and not _evaluates(group, curve, middle):
        yield from _unsteady(curve, fair, middle)
    data = group.curve("data_time")
    share = group.curve("data_fraction")
    if data is not None and len(data) >= 2:
        fraction = float(np.median(data.fair)) / middle
        if 0 <= fraction <= 1.5:
            at = int(np.argmin(np.abs(data.values - np.median(data.fair))))
            yield data.at("data_time.fraction", plain(round(fraction, 4)), at)
    elif share is not None:
        at = len(share) - 1
        yield share.at("data_time.fraction", plain(round(float(np.median(share.fair)) / 100, 4)), at)


def _evaluates(group: Group, curve: Curve, middle: float) -> bool:
    """Whether most slow steps are those in which the run evaluated: their time holds the evaluation."""
    held = group.curve("eval_loss", "eval_perplexity")
    slow = np.flatnonzero(curve.values > 2.5 * middle)
    if held is None or not held.series.stepped or not curve.series.stepped or not len(slow):
        return False
    return float(np.isin(curve.steps[slow], held.steps).mean()) > 0.5


def _unsteady(curve: Curve, fair: np.ndarray, middle: float) -> Iterator[Finding]:
    high = float(np.percentile(fair, 95))
    yield curve.at(
        "step_time.jitter_ratio", plain(round(high / middle, 3)), int(np.argmin(np.abs(curve.values - high)))
    )
    slow = np.flatnonzero(curve.values[1:] > 5 * middle) + 1
    if len(slow):
        worst = int(slow[np.argmax(curve.values[slow])])
        yield curve.at("step_time.outliers", len(slow), worst)
    period = _period(np.flatnonzero(curve.values > 2.5 * middle))
    if period is not None:
        every = float(np.median(np.diff(curve.steps))) * period
        yield curve.at("step_time.periodic", plain(every), int(np.flatnonzero(curve.values > 2.5 * middle)[-1]))
    rise = sustained_fall(1.0 / np.maximum(curve.values, 1e-9))
    if rise is not None:
        yield curve.at("step_time.rise_step", curve.when(rise[0]), rise[0])
        yield curve.at("step_time.rise_ratio", plain(round(1 / rise[1], 3)), rise[0])


def _period(slow: np.ndarray) -> int | None:
    """Points from one slow step to the next, when they come like a clock; None otherwise."""
    gaps = np.diff(slow)
    if len(gaps) < 3 or gaps.min() < 2:
        return None
    middle = float(np.median(gaps))
    return round(middle) if float((np.abs(gaps - middle) <= max(0.05 * middle, 0.5)).mean()) > 0.85 else None


def _memory(group: Group) -> Iterator[Finding]:
    for metric in ("memory", "peak_memory", "host_memory"):
        curve = group.curve(metric)
        if curve is None or curve.values.max() <= 0:
            continue
        if len(curve) >= 6:
            prefix = "memory.host_" if metric == "host_memory" else "memory."
            yield from _growth(curve, prefix, _unit(float(curve.values.max())), staircase=metric == "peak_memory")


def _unit(greatest: float) -> float:
    """Bytes in the unit of a memory column that names none: no device has 400 bytes or a million gigabytes."""
    if greatest > 4e6:
        return 1.0
    return float(1 << 30) if greatest <= 400 else float(1 << 20)


def _growth(curve: Curve, prefix: str, unit: float, *, staircase: bool) -> Iterator[Finding]:
    """Steady growth (a leak), or a peak that rises in a few stairs (longer batches, not a leak)."""
    start = max(1, len(curve) // 10)
    values, steps = curve.values[start:], curve.steps[start:]
    if len(values) < 5 or values[0] <= 0:
        return
    total, sigmas = change(values)
    grown = float(values[-1] - values[0])
    steps_up = np.flatnonzero(np.diff(values) > 0.005 * values[:-1]) + 1
    rising = float((np.diff(values) > 0).mean())
    straight = np.polyfit(steps, values, 1) if len(set(steps.tolist())) > 2 else None
    fit = float(np.std(values - np.polyval(straight, steps))) if straight is not None else float("inf")
    if (
        grown > 0.1 * values[0]
        and total > 3 * noise(values)
        and sigmas > 4
        and fit < 0.15 * grown
        and (rising > 0.6 or not staircase)
    ):
        yield curve.at(f"{prefix}growth_per_step", plain(round(slope(values, steps) * unit, 3)), len(curve) - 1)
    elif staircase and 0 < len(steps_up) <= 0.3 * len(values) and grown > 0.05 * values[0]:
        yield curve.at("memory.steps_up", len(steps_up), int(start + steps_up[-1]))


# ----------
# Steps that take longer and longer, and the phase of the step that does.

_GROWN = 1.25  # of what it was at first
_LEAST = 12  # points


def phase_findings(group: Group, settings: Sequence[PlainSetting]) -> Iterator[Finding]:
    """`step_time.growing` (last to first), and `step_time.trainer_phase_growing` where generation takes no longer."""
    step = group.curve("step_time")
    if step is not None and (ratio := _grown(step)):
        yield step.at("step_time.growing", plain(round(ratio, 3)), len(step) - 1)
    update, made = group.curve("update_time"), group.curve("generation_time")
    if update is None or made is None or not (ratio := _grown(update)) or (_grown(made) or 1.0) > 1 + (ratio - 1) / 3:
        return
    lengths = group.curve("response_length")
    if lengths is not None and (_grown(lengths) or 1.0) > 1 + (ratio - 1) / 3:
        return  # longer answers take longer to train on
    yield update.at("step_time.trainer_phase_growing", plain(round(ratio, 3)), len(update) - 1)
    experts = next((s for s in settings if s.name in ("expert_parallel", "num_experts") and s.value > 1), None)
    if experts is not None:
        yield update.at("expert.trainer_phase_growing", plain(round(ratio, 3)), len(update) - 1)


def _grown(curve: Curve) -> float | None:
    """How many times its first level a curve reached by rising all along; None where it did not."""
    values = curve.values[1:]  # the first step holds compilation and warm-up
    if len(values) < _LEAST or values.min() <= 0:
        return None
    net, sigmas = change(values)
    first, last = level(values, head(len(values), 0.2, 3)), level(values, tail(len(values), 0.2, 3))
    parts = [float(np.median(part)) for part in np.array_split(values, 5)]
    rising = all(after > before for before, after in pairwise(parts))
    return last / first if rising and net > 0 and sigmas > 6 and last > _GROWN * first else None
