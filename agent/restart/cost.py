"""What going back costs: steps to be done again, and the hours of all GPUs that they took. Known, or not told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..predicates import Facts
from ..reading.curves import curves
from ..reading.settings import read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

_REACHED = ("error.first", "loss.first_nan_step", "memory.oom", "watchdog.timeout", "loss.final_value")


@dataclass(frozen=True, slots=True)
class Cost:
    """How far the run came, what a step took and on how many GPUs; None where the run does not say.

    `seconds` are per step, the median of what the run measured or stamped.
    """

    reached: int | None = None
    seconds: float | None = None
    gpus: int | None = None

    def lost(self, step: int | None) -> tuple[int | None, float | None]:
        """Steps and GPU-hours since `step`."""
        if self.reached is None or step is None or step > self.reached:
            return None, None
        steps = self.reached - step
        if self.seconds is None or self.gpus is None:
            return steps, None
        return steps, round(steps * self.seconds * self.gpus / 3600, 2)


def cost_of(ws: Workspace, facts: Facts, failed_at: int | None) -> Cost:
    """The cost as the run's own numbers give it."""
    own = [s for s in curves(ws).series if not s.file.good and s.stepped and len(s.steps)]
    steps = [int(s.steps.max()) for s in own]
    steps += [e.step for key in _REACHED for e in facts.get(key) if e.step is not None]
    steps += [failed_at] if failed_at is not None else []
    return Cost(max(steps, default=None), _seconds(facts), _gpus(ws, facts))


def _seconds(facts: Facts) -> float | None:
    told = [e for e in facts.get("step_time.median") if e.kind != "absent"]
    values = [float(e.value) for e in told if isinstance(e.value, int | float) and e.value > 0]
    return values[0] if values else None


def _gpus(ws: Workspace, facts: Facts) -> int | None:
    """As many as there are ranks: what the log says, else what the run's settings say without a default."""
    for e in facts.get("rank.world_size"):
        if e.kind != "absent" and isinstance(e.value, int) and e.value > 0:
            return e.value
    settings = read_settings(ws)
    if (size := _whole(settings.value("world_size"))) is not None:
        return size
    nodes, each = _whole(settings.value("nodes")), _whole(settings.value("processes_per_node"))
    return nodes * each if nodes is not None and each is not None else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
