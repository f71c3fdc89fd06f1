"""`doctor eval`: score recorded incidents."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from ...evals.case import Case
    from ...evals.score import Score


def evaluate(
    incidents: Annotated[list[Path], typer.Argument(help="Incidents, or folders of them.", metavar="INCIDENTS...")],
    json: options.Json = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Diagnoses at a time.")] = 2,
    keep: Annotated[Path | None, typer.Option(help="Keep each report as <id>.json here.", metavar="DIR")] = None,
    quiet: options.Quiet = False,
) -> None:
    """Diagnose recorded incidents and compare with what was found to be wrong."""
    from ...evals import case, table
    from .streams import print_json, print_line

    scores = _score(case.find(incidents), jobs, keep, quiet)
    if json:
        print_json(table.as_data(scores))
    else:
        print_line("\n".join(table.as_lines(scores)))


def _score(cases: list[Case], jobs: int, keep: Path | None, quiet: bool) -> list[Score]:
    from ...evals import run

    if quiet or not sys.stderr.isatty():
        return run.evaluate(cases, jobs, keep=keep)
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("diagnosing", total=len(cases))
        return run.evaluate(cases, jobs, lambda score: bar.advance(task), keep)
