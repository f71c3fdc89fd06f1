"""`doctor eval`: score recorded incidents."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from ...evals.case import Case
    from ...evals.exchanges import Exchange
    from ...evals.score import Score
    from ..llm.settings import ModelSettings


def evaluate(
    incidents: Annotated[list[Path], typer.Argument(help="Incidents, or folders of them.", metavar="INCIDENTS...")],
    json: options.Json = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Diagnoses at a time.")] = 2,
    keep: Annotated[Path | None, typer.Option(help="Keep each report as <id>.json here.", metavar="DIR")] = None,
    model: options.Model = None,
    base_url: options.BaseUrl = None,
    max_calls: options.MaxCalls = None,
    replay: Annotated[
        Path | None, typer.Option(help="Recorded exchanges to stand in for the model.", metavar="DIR")
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Diagnose recorded incidents and score the verdicts; with a model, beside the same without one."""
    from ...evals import case, exchanges, table
    from ..config import settle
    from .model import model_settings
    from .streams import print_json, print_line

    asked = model_settings(settle(), model=model, base_url=base_url, max_calls=max_calls, hook=True)
    recorded = exchanges.load(replay) if replay else {}
    cases = [c for c in case.find(incidents) if not replay or c.id in recorded]
    scores = _score(cases, jobs, keep, quiet)
    if not (asked or recorded):
        if json:
            print_json(table.as_data(scores))
        else:
            print_line("\n".join(table.as_lines(scores)))
        return
    with_model = _score(cases, jobs, keep / "model" if keep else None, quiet, asked, recorded)
    if json:
        print_json({**table.as_data(scores), "model": table.as_data(with_model)})
    else:
        print_line("\n".join(table.beside(scores, with_model)))


def _score(
    cases: list[Case],
    jobs: int,
    keep: Path | None,
    quiet: bool,
    model: ModelSettings | None = None,
    recorded: Mapping[str, Exchange] | None = None,
) -> list[Score]:
    from ...evals import run

    if quiet or not sys.stderr.isatty():
        return run.evaluate(cases, jobs, keep=keep, model=model, exchanges=recorded)
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("diagnosing", total=len(cases))
        return run.evaluate(cases, jobs, lambda score: bar.advance(task), keep, model, recorded)
