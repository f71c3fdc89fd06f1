"""Options that several commands share, each declared once."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...core.errors import UsageError

if TYPE_CHECKING:
    from ...core.config import Config
    from ...core.shell import Shell
    from ...llm.model_settings import ModelSettings
    from ...reading.run.workspace import Workspace


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


# ----------
# From the options of a command to the model it asks, or to none.


def model_settings(
    config: Config,
    *,
    model: str | None = None,
    base_url: str | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    max_seconds: float | None = None,
    max_cost: float | None = None,
    offline: bool = False,
    hook: bool = False,
    required: bool = False,
) -> ModelSettings | None:
    """The model that the user named, within the user's bounds; None where none was named: then nothing is sent.

    Args:
        config: what `settle()` gave; the rest are the options of the same names, None where not given.
        offline: no model, whatever else is set.
        hook: a model that only the config file names is not asked (`doctor triage`).
        required: a model must be named (`--require-model`).

    Raises:
        UsageError: an option or a setting is wrong, or options ask for a model and none is named.
    """
    from ...core.config import flags
    from ...core.errors import UsageError
    from ...llm.model_settings import NAME_ONE, resolve

    if offline:
        if required:
            raise UsageError("--offline and --require-model exclude each other", "leave one out")
        return None
    given = flags(
        {
            "model": model, "base_url": base_url, "max_calls": max_calls, "max_tokens": max_tokens,
            "max_seconds": max_seconds, "max_cost": max_cost,
        }
    )  # fmt: skip
    settings = resolve(config, given, hook=hook)
    if settings is None and (required or base_url):
        option = "--require-model" if required else "--base-url"
        raise UsageError(f"{option} is given, but no model is named", NAME_ONE)
    return settings


def within_the_run(settings: ModelSettings | None, roots: Iterable[Path]) -> tuple[ModelSettings | None, list[str]]:
    """The same within what a `doctor.toml` of the run asks for, and what is to be told in `meta.degraded`."""
    from ...core.config import project_bounds
    from ...llm.model_settings import tightened

    bounds, told = project_bounds(roots)
    if settings is None:
        return None, told
    settings, more = tightened(settings, bounds)
    return settings, [*told, *more]


# ----------
# From paths on the command line to a workspace.

STDIN = "-"


def workspace(
    run: list[str] | None,
    good: list[str] | None = None,
    also: list[str] | None = None,
    question: str = "",
    pids: list[int] | None = None,
    live: bool | None = None,
    shell: Shell | None = None,
    may_be_empty: bool = False,
    ray: str | None = None,
) -> Workspace:
    """A workspace over the named paths (this folder where none is named).

    Args:
        live: this machine itself is asked about, so that no file is needed; False: never; None: where the run was
            made here.
        shell: runs commands in place of the usual one.
        may_be_empty: no file is needed either, though nothing is asked of this machine.
        ray: address of a Ray cluster whose workers read the logs; without one that of DOCTOR_RAY, if it is set.

    Raises:
        UsageError: a path does not exist, or standard input cannot be read (twice).
        NothingReadable: no file in any role.
    """
    from ...jobs.nodes.ray_nodes import spread_over
    from ...reading.run.workspace import Workspace

    names = run or ["."]
    if STDIN in names:
        _check_stdin([*names, *(good or [])].count(STDIN))
    made = Workspace(
        [_path(name) for name in names],
        good=[_path(name) for name in good or []],
        also=[_existing(name) for name in also or []],
        question=question,
        live=True if live or pids else live,
        shell=shell,
        pids=tuple(pids or ()),
        may_be_empty=bool(live or pids or may_be_empty),
    )
    spread_over(made, ray)
    return made


def _path(name: str) -> Path:
    return Path(name) if name == STDIN else _existing(name)


def _existing(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.exists():
        raise UsageError(f"no such path: {name}", "name a folder, a file, or - for standard input")
    return path


def _check_stdin(times: int) -> None:
    if times > 1:
        raise UsageError("standard input can be read once", "name `-` once")
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("standard input is closed", "pipe a log into it, or name a path")
    if sys.stdin.isatty():
        sys.stderr.write("doctor: reading the log from the terminal; end it with Ctrl-D\n")
