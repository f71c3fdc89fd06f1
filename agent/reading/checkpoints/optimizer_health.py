"""The numbers in optimizer moments: one pass over first and second moment together.

Adam's moments bound each other. With g the gradients, m = (1-b1) sum b1^i g and v = (1-b2) sum b2^i g^2, so by
Cauchy and Schwarz m^2 <= (1-b1)^2 / (1 - b1^2/b2) / (1-b2) * v, element by element and whatever the gradients were.
A first moment beyond that does not belong to its second moment.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import deadline
from ...core.types import Value
from ..run.files import RunFile
from .layouts import Checkpoint
from .moments import Moments, Optimizer, number_of
from .numbers import chunks, in_threads
from .parts import Tensor
from .weights import Weights, is_adapter, is_trained

if TYPE_CHECKING:
    from ..run.workspace import Workspace

_FIRST = ("exp_avg", "momentum_buffer", "grad_avg", "moment1")
_SECOND = ("exp_avg_sq", "square_avg", "moment2", "sum")
_SLACK = 8.0  # betas may have been changed on the way, and moments may be kept in 16 bits
_ABSURD = 1e6  # times the bound: one such element is a broken number
_TINY = 1e-15  # a smaller gradient squares to nothing in float32
_ELEMENTS = 1 << 20


@dataclass(slots=True)
class MomentValues:
    """What stands in the moments of one parameter.

    Attributes:
        count: elements of the larger slot.
        first_nonzero, second_nonzero: elements that are not zero.
        nonfinite: elements of either slot that are NaN or infinite.
        negative: elements of the second moment below zero, which no average of squares can be.
        impossible: elements whose first moment is beyond what their second moment allows; `absurd`: by far.
        first_squares: sum of squares of the first moment.
        second_sum: sum of the second moment: of squared gradients.
    """

    moments: Moments
    count: int = 0
    has_first: bool = False
    has_second: bool = False
    first_nonzero: int = 0
    second_nonzero: int = 0
    nonfinite: int = 0
    negative: int = 0
    impossible: int = 0
    absurd: int = 0
    first_squares: float = 0.0
    second_sum: float = 0.0
    read: bool = True

    @property
    def gradient_rms(self) -> float:
        """Root mean square of recent gradients, from the second moment, else from the first."""
        if not self.count:
            return 0.0
        return ((self.second_sum if self.has_second else self.first_squares) / self.count) ** 0.5

    @property
    def silent(self) -> bool:
        """Nothing but zeros: no gradient other than zero ever came."""
        return self.read and self.count > 0 and not (self.first_nonzero or self.second_nonzero or self.nonfinite)


def values_of(ws: Workspace, optimizer: Optimizer, chosen: Iterable[Moments] | None = None) -> list[MomentValues]:
    """A pass over all moments of an optimizer, in a few threads; in their order.

    What the call's time did not allow comes back unread, and so does what cannot be read.
    """
    bound = _bound(optimizer.groups)
    todo = list(optimizer.moments if chosen is None else chosen)
    made = in_threads(todo, lambda m: _values(ws, m, bound))
    return [values or MomentValues(moments, read=False) for values, moments in zip(made, todo, strict=True)]


def _bound(groups: list[dict[str, Any]]) -> float:
    """The loosest bound among the groups' betas; that of (0.9, 0.999) where they are not kept."""
    return _SLACK * max((_limit(g.get("betas")) for g in groups if g.get("betas") is not None), default=_limit(None))


def _limit(betas: Any) -> float:
    try:
        one, two = float(betas[0]), float(betas[1])
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        one, two = 0.9, 0.999
    if not (0 <= one < 1 and 0 <= two < 1) or one * one >= two:
        return float("inf")
    return (1 - one) ** 2 / (1 - one * one / two) / (1 - two)


def _values(ws: Workspace, moments: Moments, bound: float) -> MomentValues:
    found = MomentValues(moments)
    first = next((moments.slots[s] for s in _FIRST if s in moments.slots), None)
    second = next((moments.slots[s] for s in _SECOND if s in moments.slots), None)
    found.has_first, found.has_second = first is not None, second is not None
    found.count = max((int(np.prod(t.shape)) for t in (first, second) if t is not None), default=0)
    if first is not None and second is not None and first.shape == second.shape:
        seen = 0
        for one, two in zip(chunks(ws, first, _ELEMENTS), chunks(ws, second, _ELEMENTS), strict=False):
            deadline.check()
            _add_first(found, one)
            _add_second(found, two)
            if len(one) == len(two):
                _compare(found, one, two, bound)
            seen += len(one)
        found.read = seen == found.count
    else:
        found.read = all(
            _alone(ws, found, tensor, add)
            for tensor, add in ((first, _add_first), (second, _add_second))
            if tensor is not None
        )
    for slot, tensor in moments.slots.items():
        if tensor is not first and tensor is not second:
            found.read &= _other(ws, found, slot, tensor)
    return found


def _other(ws: Workspace, found: MomentValues, slot: str, tensor: Tensor) -> bool:
    """Factored moments (Adafactor's rows and columns) and the like; quantised ones are not decoded."""
    if not tensor.dtype.startswith(("float", "bfloat")):
        return False
    found.count = found.count or tensor.count

    def add(found: MomentValues, block: np.ndarray) -> None:
        kept = block[np.isfinite(block)]
        found.first_nonzero += int(np.count_nonzero(block))
        found.nonfinite += len(block) - len(kept)
        found.negative += int((kept < 0).sum()) if "sq" in slot else 0

    return _alone(ws, found, tensor, add)


def _compare(found: MomentValues, one: np.ndarray, two: np.ndarray, bound: float) -> None:
    """Count elements whose first moment is beyond its second; looked at closely where any may be."""
    with np.errstate(all="ignore"):
        suspects = np.flatnonzero(one * one > np.float32(min(bound, 1e30)) * two)
        if len(suspects):
            first, second = one[suspects].astype(np.float64), two[suspects].astype(np.float64)
            squares, most = first * first, bound * np.maximum(second, 0)
            beyond = (np.abs(first) > _TINY) & (squares > most)
            found.impossible += int(beyond.sum())
            found.absurd += int((beyond & (second > 0) & (squares > _ABSURD * most)).sum())


def _alone(ws: Workspace, found: MomentValues, tensor: Tensor, add: Any) -> bool:
    seen = 0
    for block in chunks(ws, tensor, _ELEMENTS):
        deadline.check()
        add(found, block)
        seen += len(block)
    return seen == int(np.prod(tensor.shape))


def _add_first(found: MomentValues, block: np.ndarray) -> None:
    found.first_nonzero += int(np.count_nonzero(block))
    with np.errstate(all="ignore"):
        squares = float(np.dot(block, block))
    if not math.isfinite(squares):
        kept = block[np.isfinite(block)].astype(np.float64)
        found.nonfinite += len(block) - len(kept)
        squares = float(np.dot(kept, kept))
    found.first_squares += squares


def _add_second(found: MomentValues, block: np.ndarray) -> None:
    found.second_nonzero += int(np.count_nonzero(block))
    with np.errstate(all="ignore"):
        total, least = float(block.sum(dtype=np.float64)), float(block.min(initial=0.0))
    if not math.isfinite(total) or least < 0:
        kept = block[np.isfinite(block)]
        found.nonfinite += len(block) - len(kept)
        found.negative += int((kept < 0).sum())
        total = float(np.maximum(kept, 0).sum(dtype=np.float64))
    found.second_sum += total


# ----------
# What is wrong with an optimizer's moments, steps and shapes, as facts with the place that shows each.

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


# ----------
# What an optimizer's groups say: rates, decay, betas; and how they and the steps stand to the checkpoint's own.

_GROUPS_BEHIND = 0.1  # share of the checkpoint's steps that may be without an update (skipped ones, warm restarts)


def group_findings(optimizer: Optimizer) -> Iterator[Told]:
    """Rates as facts; betas, epsilon and decay that no recipe uses."""
    if not optimizer.moments:
        return
    file = optimizer.moments[0].state.file
    rates = [r for g in optimizer.groups if (r := number_of(g.get("lr"))) is not None]
    if rates:
        text = f"learning rates of {len(rates)} groups: {', '.join(f'{r:.6g}' for r in rates[:8])}"
        yield Told("optimizer.learning_rate", max(rates), file, "param_groups", text)
    for i, group in enumerate(optimizer.groups):
        if odd := _odd(group):
            yield Told("optimizer.odd_group", odd, file, f"param_groups.{i}", f"group {i}: {odd}")


def _odd(group: dict[str, Any]) -> str:
    betas, eps, decay = group.get("betas"), number_of(group.get("eps")), number_of(group.get("weight_decay"))
    if isinstance(betas, list | tuple) and len(betas) >= 2:
        one, two = number_of(betas[0]), number_of(betas[1])
        if one is not None and two is not None:
            if not (0 <= one < 1 and 0 <= two < 1):
                return f"betas ({one:g}, {two:g}) lie outside 0 to 1"
            if two < one:
                return f"beta2 {two:g} is below beta1 {one:g}: the step is not normalised by a longer average"
    if eps is not None and (eps > 1e-2 or eps == 0):
        return f"epsilon is {eps:g}"
    if decay is not None and (decay < 0 or decay > 1):
        return f"weight decay is {decay:g}"
    return ""


def schedule_findings(
    ws: Workspace, checkpoint: Checkpoint, optimizer: Optimizer, before: tuple[Checkpoint, Optimizer] | None
) -> Iterator[Told]:
    """Steps behind the checkpoint's step, steps that stand still between checkpoints, a rate of zero before the end."""
    counted = [m.step for m in optimizer.moments if m.step is not None]
    file = optimizer.moments[0].state.file
    step = max(counted, default=None)
    at = checkpoint.step
    if step is not None and at and at - step > max(1, _GROUPS_BEHIND * at):
        text = f"the optimizer counts {step:g} updates, the checkpoint is at step {at}"
        yield Told("optimizer.steps_behind", round(at - step, 1), file, "step", text)
    earlier = max((m.step for m in before[1].moments if m.step is not None), default=None) if before else None
    if before and step is not None and earlier is not None and (before[0].step or 0) < (at or 0) and earlier >= step:
        text = f"the optimizer counts {step:g} updates at step {at} and {earlier:g} already at step {before[0].step}"
        yield Told("optimizer.step_stuck", step, file, "step", text)
    rates = [r for g in optimizer.groups if (r := number_of(g.get("lr"))) is not None]
    if rates and not any(rates) and not _at_end(ws, checkpoint):
        earlier_rates = [r for g in before[1].groups if (r := number_of(g.get("lr"))) is not None] if before else []
        if any(earlier_rates):
            return  # it has come down, which is what schedules do
        text = f"the rate of all {len(rates)} groups is 0 at step {at if at is not None else 'unknown'}"
        yield Told("optimizer.learning_rate_zero", True, file, "param_groups", text)


def _at_end(ws: Workspace, checkpoint: Checkpoint) -> bool:
    """Whether the run was over at this checkpoint: a rate of zero is then the end of the schedule."""
    for files in checkpoint.files.values():
        for file in files:
            if file.path.name == "trainer_state.json":
                try:
                    state = json.loads(ws.text(file))
                except (ValueError, RecursionError):
                    continue
                if isinstance(state, dict):
                    most, now = number_of(state.get("max_steps")), number_of(state.get("global_step"))
                    return bool(most and now is not None and now >= most)
    return False
