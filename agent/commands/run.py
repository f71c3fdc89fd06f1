"""`doctor run`: a job as it would run without doctor, and a report if it fails."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, NoReturn

import typer

from ..errors import UsageError


class OnHang(StrEnum):
    """What is done about a job that stands still."""

    REPORT = "report"
    KILL = "kill"


def run(
    command: Annotated[list[str], typer.Argument(help="The command and its arguments.", metavar="[--] COMMAND...")],
    folder: Annotated[
        str,
        typer.Option("--run", help="Folder of the run.", metavar="DIR", show_default="doctor-runs/TIME-NAME"),
    ] = "",
    restart: Annotated[
        int, typer.Option(help="Start again up to N times, where the report advises it.", metavar="N", min=0)
    ] = 0,
    resume: Annotated[
        str, typer.Option(help="Arguments added to a restart; {checkpoint} is filled in.", metavar="ARGS")
    ] = "",
    hang_after: Annotated[
        float, typer.Option(help="Seconds without a step before a job counts as hung; 0: never.", min=0)
    ] = 600.0,
    on_hang: Annotated[OnHang, typer.Option(help="What to do about a hang.")] = OnHang.REPORT,
    no_triage: Annotated[bool, typer.Option("--no-triage", help="Make no report.")] = False,
    leave: Annotated[
        list[str] | None, typer.Option(help="Variable that is not to be set, or all; again for more.", metavar="NAME")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but the verdict.")] = False,
    notify: Annotated[
        list[str] | None,
        typer.Option(help="Where to send a short notice; again for more, 'none': nowhere.", metavar="URL"),
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long the report may take.", min=1)] = 60.0,
    also: Annotated[
        list[str] | None, typer.Option(help="Folder or file that the report reads too; again.", metavar="PATH")
    ] = None,
) -> NoReturn:
    """Run a training command, and explain it if it fails or hangs.

    The exit code, signals, streams and terminal are those of the command; 128 + n if signal n ended it.
    """
    from ..supervisor.whole import supervise
    from ..supervisor.wishes import Wishes

    if not command:
        raise UsageError("no command to run", "doctor run -- torchrun train.py")
    if notify:
        from ..notices.targets import check_form

        check_form([("--notify", url) for url in notify])
    wishes = Wishes(
        folder, restart, resume, hang_after, on_hang is OnHang.KILL, not no_triage, leave or [], quiet, notify or [],
        seconds, also or [],
    )  # fmt: skip
    # Past what the command line does at an end of its own: it tells of interrupts, and flushes a stdout that may be
    # closed.
    sys.exit(supervise(command, wishes))
