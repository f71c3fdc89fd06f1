"""Steps that take longer and longer, and the phase of the step that does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ..plain_settings import PlainSetting
from ..shape import change, head, level, tail
from .finding import Curve, Finding, Group, plain

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
