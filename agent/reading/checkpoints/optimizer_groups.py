"""What an optimizer's groups say: rates, decay, betas; and how they and the steps stand to the checkpoint's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .layouts import Checkpoint
from .moments import Optimizer, number_of
from .optimizer_health import Told

if TYPE_CHECKING:
    from ...workspace import Workspace

_BEHIND = 0.1  # share of the checkpoint's steps that may be without an update (skipped ones, warm restarts)


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
    if step is not None and at and at - step > max(1, _BEHIND * at):
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
