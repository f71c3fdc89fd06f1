"""Options of `doctor eval`, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HARDER = "Made harder"
RESULTS = "Results"

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
