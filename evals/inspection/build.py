"""Cases as a dataset, and the task made of dataset, solver and scorers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from inspect_ai import Task  # pyright: ignore[reportMissingImports]
from inspect_ai.dataset import MemoryDataset, Sample  # pyright: ignore[reportMissingImports]

from ...agent.core.errors import UsageError
from ..case import Case, find
from ..solvers import NAMES
from .scorers import verdict
from .solvers import diagnosed, pasted


def dataset(cases: Iterable[Case], name: str = "incidents") -> MemoryDataset:
    """The questions with their right causes; where the files lie is told in the metadata."""
    samples = [
        Sample(
            id=case.id,
            input=case.question,
            target=list(case.expected),
            metadata={
                "folder": str(case.folder),
                "family": case.family,
                "difficulty": case.difficulty,
                "acceptable": list(case.acceptable),
            },
        )
        for case in cases
    ]
    return MemoryDataset(samples, name=name)


def build(paths: Sequence[Path], solver: str = "offline", model: str = "", base_url: str = "", sample: int = 0) -> Task:
    """The task over the incidents below some paths.

    Raises:
        UsageError: no such path or solver, or a model is needed and none is named.
    """
    if solver not in NAMES:
        raise UsageError(f"no such solver: {solver}", f"there are {', '.join(NAMES)}")
    if solver == "model" and not model:
        raise UsageError("solver=model needs a model", "name one with -T model=NAME")
    cases = find(paths)
    if 0 < sample < len(cases):
        cases = [cases[i * len(cases) // sample] for i in range(sample)]
    way = pasted() if solver == "paste" else diagnosed(solver, model, base_url)
    return task_of(cases, way, solver)


def task_of(cases: Sequence[Case], way: Any, name: str) -> Task:
    """The task over cases that are at hand, by a solver of inspect's."""
    known = {case.id: case for case in cases}
    return Task(
        name=f"incidents-{name}", dataset=dataset(cases), solver=way, scorer=verdict(known), metadata={"solver": name}
    )
