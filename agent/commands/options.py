"""Options that several commands share, each declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Allow(StrEnum):
    """Risks that may be run unasked, each including those before it."""

    READ = "read"
    PROBE = "probe"
    COSTLY = "costly"


class FailOn(StrEnum):
    """From which certainty on a named cause makes the exit code 1."""

    LIKELY = "likely"
    CONFIRMED = "confirmed"


Run = Annotated[
    list[str] | None,
    typer.Option(
        "--run",
        help="Folder or file of the run, '-' for standard input; again for more.",
        metavar="PATH",
        show_default="this folder",
    ),
]
Also = Annotated[
    list[str] | None, typer.Option(help="Folder outside the run that its links may lead to.", metavar="DIR")
]
Good = Annotated[list[str] | None, typer.Option(help="A healthy run to compare with.", metavar="PATH")]
Pid = Annotated[
    list[int] | None,
    typer.Option(help="A process of the run on this machine; again for more.", metavar="PID", min=1),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print markdown, with secrets taken out.")]
Html = Annotated[
    str | None,
    typer.Option("--html", help="Also write a page for a browser, '-' for standard output.", metavar="FILE"),
]
Plain = Annotated[bool, typer.Option("--plain", help="One fact a line: no colour, no wrapping, ASCII marks.")]
Offline = Annotated[bool, typer.Option("--offline", help="Ask no model. No model is asked unless one is named.")]
Model = Annotated[
    str | None,
    typer.Option("--model", help="Ask this model, or that of a profile of this name in doctor.toml.", metavar="NAME"),
]
BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", help="OpenAI-compatible server, as in http://localhost:8000/v1.", metavar="URL"),
]
MaxCalls = Annotated[
    int | None, typer.Option("--max-calls", help="Requests to the model; 0: any number.", min=0, show_default="16")
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", help="Tokens in and out; 0: any number.", min=0, show_default="400000")
]
MaxSeconds = Annotated[
    float | None,
    typer.Option("--max-seconds", help="Seconds to wait for the model; 0: any.", min=0, show_default="300"),
]
MaxCost = Annotated[
    float | None,
    typer.Option("--max-cost", help="Cost, by the prices in doctor.toml; 0: any.", min=0, show_default="any"),
]
RequireModel = Annotated[
    bool, typer.Option("--require-model", help="Exit with 4 when the model fails, after the report without it.")
]
ShowPrompt = Annotated[
    bool, typer.Option("--show-prompt", help="Print the first request as it would be sent, and send nothing.")
]
AllowRisk = Annotated[
    Allow | None,
    typer.Option(help="Run checks up to this risk unasked.", show_default="read"),
]
Session = Annotated[str | None, typer.Option(help="Go on with this session.", metavar="ID")]
Record = Annotated[
    Path | None,
    typer.Option("--record", help="Also keep run, commands and question as an incident to label.", metavar="DIR"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
FailOnStatus = Annotated[FailOn | None, typer.Option(help="Exit with 1 when a cause is this certain.")]
