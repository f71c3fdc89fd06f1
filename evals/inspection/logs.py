"""What `doctor eval` has found, as logs that `inspect view` shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..case import Case
from ..score import Score


def write(scores: Sequence[Score], cases: Sequence[Case], folder: Path, name: str, reports: Path) -> Any:
    """Write a log of an evaluation that is done; nothing is diagnosed again and no model is asked.

    Args:
        name: of the solver.
        reports: the folder that `evaluate` kept the reports in.
    """
    from inspect_ai import eval as run  # pyright: ignore[reportMissingImports]

    from .build import task_of
    from .solvers import kept

    seconds = {s.id: s.seconds for s in scores}
    task = task_of(cases, kept(reports, seconds), name)
    (log,) = run(task, model=None, log_dir=str(folder), display="none", log_format="eval", score_display=False)
    return log
