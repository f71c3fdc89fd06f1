"""What one line says of the metrics of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..metric_names import Meaning


@dataclass(slots=True)
class Reading:
    """What one line (or one redraw of a progress bar) says. `values`: (meaning, raw label, value, start, end)."""

    step: float | None = None
    step_span: tuple[int, int] | None = None
    epoch_span: tuple[int, int] | None = None
    start: int = 0  # where the prefix that names a rank ends
    epoch: float | None = None
    total: float | None = None
    rank: int | None = None
    learnable: bool = True  # what a number means shows from its place alone, so that such lines are read as columns
    values: list[tuple[Meaning, str, float, int, int]] = field(default_factory=list)
