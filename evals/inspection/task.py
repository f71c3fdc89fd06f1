"""The task that `inspect eval` finds here. It is loaded as a file by itself, so it reaches the package by name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from inspect_ai import Task, task  # pyright: ignore[reportMissingImports]


@task
def incidents(paths: str = "", solver: str = "offline", model: str = "", base_url: str = "", sample: int = 0) -> Task:
    """Recorded incidents, diagnosed and scored.

    Args:
        paths: incidents or folders of them, with commas, from the repository's root; by default the public ones.
        solver: offline, model, paste, retrieval or grep.
        model, base_url: the model of doctor's own planner, for `solver=model`; `paste` asks the model of inspect.
        sample: so many of them, spread evenly; 0 means all.
    """
    build = import_module("traindoctor.evals.inspection.build").build
    root = Path(__file__).resolve().parents[2]  # inspect runs in the folder of this file
    found = [root / p for p in paths.split(",") if p] or [root / "evals" / "incidents"]
    return build(found, solver, model, base_url, sample)
