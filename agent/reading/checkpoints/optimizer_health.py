"""What is wrong with an optimizer's moments, steps and shapes, as facts with the place that shows each."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ...types import Value
from ..files import RunFile
from .moment_values import MomentValues
from .moments import Moments, Optimizer
from .weights import Weights, is_adapter, is_trained

_HUGE = 1e4  # root mean square of gradients: of no training that works
_APART = 1e5  # times the median of the other parameters
_BEHIND = 0.02  # share of the steps by which a parameter may lag
_DISAGREE = 0.01  # share of impossible elements that proves moments of another parameter
_ZERO_SHARE = 0.999  # of a second moment at zero while its first moment is not


@dataclass(frozen=True, slots=True)
class Told:
    """A fact about a tensor or record of a file, before it becomes evidence."""

    key: str
    value: Value
    file: RunFile
    member: str
    text: str


def told(moments: Moments, key: str, value: Value, text: str) -> Told:
    """A fact about the moments of one parameter."""
    tensor = next(iter(moments.slots.values()), None)
    if tensor is None:
        return Told(key, value, moments.state.file, moments.path, text)
    return Told(key, value, tensor.file, tensor.name, text)


def health(values: list[MomentValues], optimizer: Optimizer) -> Iterator[Told]:
    """Moments that are not finite, negative, impossible, zero or huge."""
    read = [v for v in values if v.read and v.count]
    typical = statistics.median([v.gradient_rms for v in read if v.gradient_rms > 0] or [0.0])
    silent = [v for v in read if v.silent]
    # Where most of them disagree it is another rule than Adam's (SOAP, ADOPT), not damage.
    adam = sum(map(_disagrees, read)) * 2 <= len(read)
    for v in values:
        yield from _broken(v, adam)
        rms = v.gradient_rms
        if rms > _HUGE or (typical and len(read) > 3 and rms > _APART * typical and not v.impossible):
            times = f", {rms / typical:.3g} times the median" if typical else ""
            text = f"{v.moments.label}: gradients of {rms:.3g} on average{times}"
            yield told(v.moments, "optimizer.huge", float(f"{rms:.4g}"), text)
    if silent and len(silent) == len(values):
        text = f"all {len(read)} moments are zero: the optimizer never took a step with a gradient"
        yield told(silent[0].moments, "optimizer.never_stepped", True, text)
    else:
        for v in silent:
            steps = f" after {v.moments.step:g} steps" if v.moments.step else ""
            text = f"{v.moments.label}: both moments are all zero{steps}: no gradient other than zero reached it"
            yield told(v.moments, "optimizer.zero_moments", v.moments.label, text)
    if read and typical:
        text = f"median over {len(read)} parameters of the gradients' root mean square: {typical:.4g}"
        yield told(read[0].moments, "optimizer.gradient_rms", float(f"{typical:.4g}"), text)


def _disagrees(v: MomentValues) -> bool:
    """Whether the first moment cannot stem from the gradients that made the second, by Adam's rule."""
    return v.impossible > max(1, _DISAGREE * v.count) or v.absurd > 0


def _broken(v: MomentValues, adam: bool) -> Iterator[Told]:
    label = v.moments.label
    if v.nonfinite:
        text = f"{label}: {v.nonfinite} elements of its moments ({v.count} each) are NaN or infinite"
        yield told(v.moments, "optimizer.nonfinite", label, text)
    if v.negative:
        text = f"{label}: {v.negative} elements of the second moment, an average of squares, are negative"
        yield told(v.moments, "optimizer.negative_variance", label, text)
    lost = v.has_first and v.has_second and v.first_nonzero and v.second_nonzero <= (1 - _ZERO_SHARE) * v.count
    if lost and v.first_nonzero > 0.1 * v.count:
        text = f"{label}: the second moment is zero while the first is not: the next step divides by epsilon alone"
        yield told(v.moments, "optimizer.variance_zero", label, text)
    elif adam and _disagrees(v):
        text = (
            f"{label}: in {v.impossible} of {v.count} elements the first moment is larger than the second allows: "
            "they do not belong together"
        )
        yield told(v.moments, "optimizer.moments_disagree", label, text)


def steps(optimizer: Optimizer) -> Iterator[Told]:
    """How many updates were made; whether parameters differ in that."""
    counted = [m for m in optimizer.moments if m.step is not None]
    if not counted:
        return
    most = max(counted, key=lambda m: m.step or 0)
    yield told(most, "optimizer.step", most.step, f"{len(counted)} parameters with a step count, at most {most.step:g}")
    for m in counted:
        if m.step is not None and most.step and m.step < most.step * (1 - _BEHIND) - 1:
            text = f"{m.label}: updated {m.step:g} times where others were updated {most.step:g} times"
            yield told(m, "optimizer.step_differs", m.label, text)


def matching(optimizer: Optimizer, weights: Weights) -> Iterator[Told]:
    """Whether moments fit the weights: shapes, and parameters that have none."""
    if optimizer.flat or not optimizer.moments or not weights.tensors:
        return
    for m in optimizer.moments:
        own = m.shape
        for slot, tensor in m.slots.items():
            if own and slot in ("exp_avg", "exp_avg_sq", "momentum_buffer") and tensor.shape != own:
                text = f"{m.label}: {slot} has shape {list(tensor.shape)}, the other moment {list(own)}"
                yield told(m, "optimizer.shape_differs", m.label, text)
        parameter = weights.tensors.get(m.parameter or "")
        if parameter is not None and own and own != parameter.shape:
            text = f"{m.label}: moments of shape {list(own)}, parameter of shape {list(parameter.shape)}"
            yield told(m, "optimizer.shape_differs", m.label, text)
    yield from _counts(optimizer, weights)


def _counts(optimizer: Optimizer, weights: Weights) -> Iterator[Told]:
    """Shapes counted on both sides: names need not be known to see that something has no moments."""
    adapters = weights.adapter
    trained = {
        n: t
        for n, t in weights.tensors.items()
        if is_trained(t, n) and (not adapters or is_adapter(n)) and " @" not in n
    }
    have = Counter(m.shape for m in optimizer.moments if m.shape)
    want = Counter(t.shape for t in trained.values())
    first = optimizer.moments[0]
    yield told(first, "optimizer.parameters", len(optimizer.moments), f"state for {len(optimizer.moments)} parameters")
    strange, missing = have - want, want - have
    if _laid_out_anew(strange, missing):
        return
    if strange and not adapters and trained:
        shape = next(iter(strange))
        m = next(m for m in optimizer.moments if m.shape == shape)
        if not want[shape]:
            text = f"moments of shape {list(shape)} ({sum(strange.values())} such), which no weight of the model has"
            yield told(m, "optimizer.shape_differs", m.label, text)
    for name in _without(optimizer, trained, missing):
        text = f"{name}: no state in the optimizer ({sum(missing.values())} of {len(trained)} weights have none)"
        yield Told("optimizer.missing_params", name, first.state.file, first.path, text)


def _laid_out_anew(strange: Counter[tuple[int, ...]], missing: Counter[tuple[int, ...]]) -> bool:
    """Whether the model joins what its file keeps apart: then shapes say nothing.

    transformers 5 trains the experts of a layer as one tensor and saves one for each.
    """
    if not strange:
        return False
    extra, short = (sum(prod(s) * n for s, n in shapes.items()) for shapes in (strange, missing))
    joined = all(len(s) >= 3 for s in strange) and all(len(s) <= 2 for s in missing)
    return extra == short or (joined and extra < short)


def _without(optimizer: Optimizer, trained: dict, missing: Counter) -> list[str]:
    """Names of weights without state: exact where moments have names, else by the shapes that are short."""
    if not missing:
        return []
    have = optimizer.names
    named = [n for n, t in trained.items() if n not in have and missing[t.shape]]
    if len(named) > sum(missing.values()):  # some of them have state: which, their shape does not tell
        alike = Counter(trained[n].shape for n in named)
        certain = [n for n in named if missing[trained[n].shape] == alike[trained[n].shape]]
        return certain or [f"{count} of shape {list(shape)}" for shape, count in missing.items()]
    return named
