"""`doctor collect`: a bundle of what a run left behind, for whoever shall help."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from . import options


def collect(
    paths: Annotated[
        list[str] | None, typer.Argument(help="Folders or files of the run.", show_default="this folder")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write.", metavar="FILE", show_default="doctor-bundle-TIME.tar.gz"),
    ] = None,
    question: Annotated[str, typer.Option(help="What is to be found out.")] = "",
    machine: Annotated[
        bool, typer.Option("--machine/--no-machine", help="Ask this machine too: GPUs, kernel, host, scheduler.")
    ] = True,
    also: options.Also = None,
    pid: options.Pid = None,
    quiet: options.Quiet = False,
) -> None:
    """Put configs, logs, versions and what the machine says into one file, with secrets taken out.

    Nothing leaves the machine: read the bundle before you pass it on. Long logs are kept as their start and end,
    checkpoints and data are only named. It refuses to overwrite, and replays with `doctor eval`.
    """
    from ..collect import collect as put_together
    from ..sanitize import one_line
    from ..shell import Live, Recording
    from .material import workspace
    from .streams import print_line

    now = datetime.now().astimezone()
    target = out or Path(f"doctor-bundle-{now:%Y%m%d-%H%M%S}.tar.gz")
    shell = Recording(Live())
    ws = workspace(paths, also=also, question=question, pids=pid, live=machine, shell=shell)

    def tell(what: str) -> None:
        if not quiet:
            sys.stderr.write(f"collecting {what}\n")

    bundle = put_together(ws, shell, target, question, tell)
    size = target.stat().st_size
    what = f"{bundle.kept} of {len(bundle.files) + bundle.more} files, {len(bundle.tools)} checks, {size >> 10} KiB"
    print_line(f"{one_line(str(target))}: {what}")
    print_line(f"{bundle.redacted} secrets taken out; read it before you pass it on (manifest.json says what is in it)")
