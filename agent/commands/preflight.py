"""`doctor preflight`: what will go wrong, before a GPU hour is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from ..report import Report


def preflight(
    config: Annotated[list[str], typer.Argument(help="Config, launch script or folder of the job.", metavar="CONFIG")],
    gpu: Annotated[str, typer.Option(help="GiB of the devices it will run on, or their name such as H100.")] = "",
    gpus: Annotated[int, typer.Option(help="How many of them.", show_default="as the settings say", min=0)] = 0,
    also: options.Also = None,
    files_only: Annotated[bool, typer.Option("--files-only", help="Do not look at this machine.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when something will go wrong.")] = False,
    json: options.Json = False,
    markdown: options.Markdown = False,
    plain: options.Plain = False,
    quiet: options.Quiet = False,
) -> int:
    """Check a job before it starts: settings, memory, data, checkpoints, versions, and the machine it starts on.

    Local files that the settings name (data, models, checkpoints, further configs) are looked at too, and this
    machine: start it where the job will run.
    """
    from .. import session as sessions
    from ..config import settle
    from ..intent import PREFLIGHT
    from ..reading.named_paths import leave_foreign_out, named_paths
    from . import output
    from .material import workspace
    from .progress import follow

    settle()
    form = output.form(json=json, markdown=markdown, plain=plain)
    workspace(config, live=False)  # a machine alone is no job: without a file, this says so
    ws = workspace(config, also=also, live=not files_only)
    named, more = named_paths(ws)
    if named:
        ws = workspace([*config, *map(str, named)], also=also, live=not files_only)
        leave_foreign_out(ws, named)
    if more:
        ws.tell("settings", f"{more} further paths that they name were not looked at")
    report = follow(sessions.diagnose(ws, _question(gpu, gpus), intent=PREFLIGHT), quiet)
    output.show(report, form)
    return 1 if strict and _stops(report) else 0


def _question(gpu: str, gpus: int) -> str:
    """The devices as words of the question, where the estimate looks for them."""
    size = f"{gpu} GB" if gpu.isdigit() else gpu
    devices = f"{gpus} x {size or 'GPUs'}" if gpus else size
    return f"What will go wrong on {devices}?" if devices else "What will go wrong?"


def _stops(report: Report) -> bool:
    return any(s.level == "stops" for s in report.summary)
