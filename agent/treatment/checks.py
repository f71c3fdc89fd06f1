"""A patch set is checked before it is shown: what it does to the run's other settings, and to memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..reading import memory_model
from ..reading.files import RunFile
from ..reading.lint_arithmetic import arithmetic_lints
from ..reading.lints import lints
from ..reading.memory_model import Estimate
from ..reading.memory_model_capacity import recorded
from ..reading.memory_model_room import fits, needed
from ..reading.memory_model_settings import plan_of
from ..reading.model_config import models_of
from ..reading.overlaid import Overlaid, reread
from ..workspace import Workspace
from .ground import Ground

GIB = 1 << 30
_ADVICE = ("folklore_setting",)  # rules that tell of habits, not of conflicts


@dataclass(slots=True)
class Checked:
    """What a patch set brings with it.

    Attributes:
        conflicts: sums that do not come out any more; such a set is not offered.
        notes: what else is to be known of the run as it would be.
        memory: the estimate before and after, empty where nothing is known or nothing changes.
    """

    conflicts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    memory: str = ""


def checked(on: Ground, texts: dict[RunFile, str]) -> Checked:
    """Read the run again as it would be."""
    reading = reread(on.reading, texts)
    then = Overlaid(on.ws, reading, texts)
    before = {x.rule for x in on.lints}
    new = [x for x in lints(then, reading) if x.rule not in {*before, *_ADVICE}]
    sums = {x.rule for x in arithmetic_lints(reading)}
    out = Checked(memory=_memory(on.ws, then))
    for x in new:
        (out.conflicts if x.rule in sums else out.notes).append(x.says)
    return out


def _memory(ws: Workspace, then: Workspace) -> str:
    """The estimate before and after, for the largest model the run describes; empty where it stays or is unknown."""
    found = models_of(ws)
    if not found:
        return ""
    model = max(found, key=lambda d: memory_model.parameters_of(d.model)).model
    plans = [plan_of(w) for w in (ws, then)]
    if plans[0].assumed != plans[1].assumed:  # places that disagree: the difference would be one of assumptions
        return ""
    try:
        before, after = (memory_model.of(model, p.plan) for p in plans)
    except ValueError:  # sizes that cannot be, such as more stages than layers
        return ""
    if before.plan == after.plan or abs(before.peak.total - after.peak.total) < 0.01 * GIB:
        return ""
    return _told(ws, before, after)


def _told(ws: Workspace, before: Estimate, after: Estimate) -> str:
    said = f"Estimated memory of a step: {needed(before) / GIB:.1f} GiB before, {needed(after) / GIB:.1f} GiB after"
    capacity = recorded(ws)
    if capacity is None:
        return f"{said}, on each card."
    words = {"yes": "fits", "tight": "is tight", "no": "does not fit"}[fits(after, capacity.bytes)]
    return f"{said}; that {words} in {capacity.bytes / GIB:.1f} GiB."
