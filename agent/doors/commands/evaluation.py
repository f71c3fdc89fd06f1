"""`doctor eval`: score recorded incidents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from . import diagnosis_options

if TYPE_CHECKING:
    from ....evals.case import Case
    from ....evals.compare import Changes
    from ....evals.exchanges import Exchange
    from ....evals.modes import Mode, Outcome
    from ....evals.score import Score
    from ...llm.model_settings import ModelSettings


# ----------
# Options of `doctor eval`, each declared once.


HARDER = "Made harder"
RESULTS = "Results"
FACTS = "Facts"

Incidents = Annotated[list[Path], typer.Argument(help="Incidents, or folders of them.", metavar="INCIDENTS...")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Diagnoses at a time.")]
Sample = Annotated[int, typer.Option(min=0, help="So many of them, spread evenly.", metavar="N", show_default="all")]
Solver = Annotated[
    str,
    typer.Option(
        help="offline, model, paste (logs pasted to a model), retrieval or grep.",
        metavar="NAME",
        show_default="offline",
    ),
]
Replay = Annotated[Path | None, typer.Option(help="Recorded exchanges to stand in for the model.", metavar="DIR")]
Hay = Annotated[
    list[str] | None,
    typer.Option(
        help="Also buried in ordinary lines: 100x, 20MB, 1GB, 1024ranks; again for more.",
        metavar="SIZE",
        rich_help_panel=HARDER,
    ),
]
Withhold = Annotated[bool, typer.Option("--withhold", help="Also without what decides.", rich_help_panel=HARDER)]
Inject = Annotated[bool, typer.Option("--inject", help="Also with hostile text planted.", rich_help_panel=HARDER)]
Facts = Annotated[
    bool,
    typer.Option(
        "--facts", help="Is all evidence true? INCIDENTS are label files (evals/facts).", rich_help_panel=FACTS
    ),
]
Missing = Annotated[bool, typer.Option("--missing", help="Name what has no label yet.", rich_help_panel=FACTS)]
Keep = Annotated[
    Path | None, typer.Option(help="Keep each report as <id>.json here.", metavar="DIR", rich_help_panel=RESULTS)
]
Html = Annotated[
    Path | None, typer.Option(help="Also write a page for a browser.", metavar="FILE", rich_help_panel=RESULTS)
]
Log = Annotated[
    Path | None,
    typer.Option(help="Also write logs for inspect view (needs inspect-ai).", metavar="DIR", rich_help_panel=RESULTS),
]
Baseline = Annotated[
    Path | None, typer.Option(help="Compare with an earlier evaluation.", metavar="FILE", rich_help_panel=RESULTS)
]
FailOnDrop = Annotated[
    bool,
    typer.Option(
        "--fail-on-drop", help="Exit with 1 where fewer are right than in the baseline.", rich_help_panel=RESULTS
    ),
]
WriteBaseline = Annotated[
    Path | None,
    typer.Option(help="Keep the verdicts for a later --baseline.", metavar="FILE", rich_help_panel=RESULTS),
]


# ----------


def evaluate(
    incidents: Incidents,
    json: diagnosis_options.Json = False,
    jobs: Jobs = 2,
    sample: Sample = 0,
    solver: Solver = "",
    model: diagnosis_options.Model = None,
    base_url: diagnosis_options.BaseUrl = None,
    max_calls: diagnosis_options.MaxCalls = None,
    replay: Replay = None,
    hay: Hay = None,
    withhold: Withhold = False,
    inject: Inject = False,
    facts: Facts = False,
    missing: Missing = False,
    keep: Keep = None,
    html: Html = None,
    log: Log = None,
    baseline: Baseline = None,
    fail_on_drop: FailOnDrop = False,
    write_baseline: WriteBaseline = None,
    quiet: diagnosis_options.Quiet = False,
) -> None:
    """Diagnose recorded incidents and score the verdicts; with a model, beside the same without one."""
    from ....evals import case, compare, exchanges
    from ...core.config import settle
    from ...core.errors import UsageError
    from .diagnosis_options import model_settings

    if facts or missing:
        return _facts(incidents, json, missing)
    asked = model_settings(settle(), model=model, base_url=base_url, max_calls=max_calls, hook=True)
    if fail_on_drop and not baseline:
        raise UsageError("--fail-on-drop needs --baseline", "name an earlier evaluation")
    earlier = compare.read(baseline) if baseline else None
    recorded = exchanges.load(replay) if replay else {}
    _usable(solver, bool(asked or recorded), log, bool(hay or withhold or inject))
    cases = [c for c in case.find(incidents) if not replay or c.id in recorded]
    if 0 < sample < len(cases):
        cases = [cases[i * len(cases) // sample] for i in range(sample)]
    modes = _modes(hay, withhold, inject)
    with TemporaryDirectory(prefix="doctor-eval-") as scratch:
        reports = keep or (Path(scratch) if log else None)
        scores = _score(cases, jobs, reports, quiet, asked if solver == "paste" else None, solver=solver)
        harder = [_harder(mode, cases, scores, jobs, quiet, solver) for mode in modes]
        with_model = None
        if solver in ("", "model") and (asked or recorded):
            reports = reports / "model" if reports else None
            with_model = _score(cases, jobs, reports, quiet, asked, recorded)
        last = with_model or scores
        if log and reports:
            from ....evals.inspection.logs import write

            write(last, cases, log, "model" if with_model else solver or "offline", reports)
    changed = compare.changes(earlier, compare.kept(last)) if earlier is not None else None
    _write(cases, last, changed, html, write_baseline)
    _print(json, scores, with_model, harder, changed)
    if fail_on_drop and changed and changed.dropped:
        raise typer.Exit(1)


def _facts(files: list[Path], json: bool, missing: bool) -> None:
    """What each piece of evidence of labelled runs was found to be."""
    from ....evals import fact_labels, facts
    from .output import print_json, print_line

    runs = facts.measured(fact_labels.find(files), lambda line: typer.echo(line, err=True))
    if json:
        print_json(facts.as_data(runs))
    else:
        print_line("\n".join(facts.missing(runs) if missing else facts.as_lines(facts.as_data(runs))))


def _modes(hay: list[str] | None, withhold: bool, inject: bool) -> list[Mode]:
    from ....evals.modes import Mode
    from ....evals.variants.hay import parsed

    modes = [Mode("hay", size) for size in hay or () if parsed(size)]
    return modes + [Mode("withhold")] * withhold + [Mode("inject")] * inject


def _write(
    cases: list[Case], scores: list[Score], changed: Changes | None, html: Path | None, baseline: Path | None
) -> None:
    from ....evals import compare, results_page

    if baseline:
        compare.write(baseline, scores)
    if html:
        title = f"doctor eval: {len(cases)} incidents"
        html.write_text(results_page.page(scores, title, changed), encoding="utf-8")


def _usable(solver: str, has_model: bool, log: Path | None, harder: bool) -> None:
    """What can be known to be missing before anything is diagnosed.

    Raises:
        UsageError: an option names what there is not.
    """
    from importlib.util import find_spec

    from ....evals.solvers import NAMES
    from ...core.errors import UsageError

    if solver and solver not in NAMES:
        raise UsageError(f"no such solver: {solver}", f"there are {', '.join(NAMES)}")
    if solver in ("model", "paste") and not has_model:
        raise UsageError(f"--solver {solver} needs a model", "name one with --model")
    if solver == "paste" and harder:
        raise UsageError("--solver paste is not combined with harder incidents", "leave one of them out")
    if log and find_spec("inspect_ai") is None:
        raise UsageError("--log needs inspect-ai, which is not installed", "see docs/evals.md for how to install it")


def _print(
    json: bool,
    scores: list[Score],
    with_model: list[Score] | None,
    harder: list[Outcome],
    changed: Changes | None,
) -> None:
    from dataclasses import asdict

    from ....evals import compare, modes, table
    from .output import print_json, print_line

    if json:
        data = table.as_data(scores)
        data |= {"model": table.as_data(with_model)} if with_model else {}
        data |= {"harder": [modes.as_data(h) for h in harder]} if harder else {}
        data |= {"baseline": {**asdict(changed), "dropped": changed.dropped}} if changed else {}
        print_json(data)
        return
    lines = table.beside(scores, with_model) if with_model else table.as_lines(scores)
    for outcome in harder:
        lines += ["", *modes.as_lines(outcome)]
    print_line("\n".join([*lines, *(["", *compare.as_lines(changed)] if changed else [])]))


def _score(
    cases: list[Case],
    jobs: int,
    keep: Path | None,
    quiet: bool,
    model: ModelSettings | None = None,
    recorded: Mapping[str, Exchange] | None = None,
    solver: str = "",
) -> list[Score]:
    from ....evals import run

    with _progress(len(cases), "diagnosing", quiet) as told:
        return run.evaluate(cases, jobs, told, keep, model, recorded, solver or "offline")


def _harder(mode: Mode, cases: list[Case], scores: list[Score], jobs: int, quiet: bool, solver: str) -> Outcome:
    from ....evals import modes
    from ....evals.solvers import OTHERS

    with _progress(len(cases), mode.name, quiet) as told:
        return modes.compared(mode, cases, scores, jobs, told, solver if solver in OTHERS else "offline")


@contextmanager
def _progress(total: int, name: str, quiet: bool) -> Iterator[Callable[[Score], None] | None]:
    """What is to be called with each score: it moves a bar on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total)
        yield lambda score: bar.advance(task)
