"""`doctor hook`: a ready file for a scheduler, so that a failed job is diagnosed before anyone asks."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from ..sanitize import one_line

SECONDS, GRACE = 300, 60  # of a diagnosis; what training itself gets to save in a pod


def hook(
    scheduler: Annotated[str, typer.Argument(help="slurm, kubernetes, ray or torchrun.", metavar="SCHEDULER")],
    part: Annotated[
        str,
        typer.Option(help="slurm: epilog, sbatch. kubernetes: sidecar, run.", metavar="PART", show_default="the first"),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write.", metavar="FILE", show_default="standard output"),
    ] = None,
    doctor: Annotated[
        str, typer.Option(help="doctor on the machines where jobs run.", metavar="PATH", show_default="this one")
    ] = "",
    logs: Annotated[str, typer.Option(help="Where a Slurm epilog writes what it did.", metavar="DIR")] = (
        "/var/log/doctor"
    ),
    seconds: Annotated[int, typer.Option(help="At most for one diagnosis.", min=10, max=3600)] = SECONDS,
) -> None:
    """Print a commented file that makes failed jobs explain themselves: for Slurm, Kubernetes, Ray or torchrun.

    The file says at its top how to install it. Whatever doctor does there, the job's exit code stays what it is, and
    the scheduler sees 0 from the hook.
    """
    from ..hooks.templates import filled, template

    one = template(scheduler, part)
    program = doctor or ("/opt/doctor/bin/doctor" if one.scheduler == "kubernetes" else _own())
    if not program.startswith("/"):
        raise UsageError(f"{program!r} is no absolute path", "a hook has another folder and another PATH than you")
    values = {
        "DOCTOR": program, "LOGS": logs, "SECONDS": str(seconds), "GRACE": str(seconds + GRACE),
        "COMMAND": "python train.py" if one.part == "sbatch" else "train.py",
    }  # fmt: skip
    text = filled(one, values)
    if out is None:
        sys.stdout.write(text)
        return
    _written(out, text, one.script)
    sys.stderr.write(f"wrote {one_line(str(out))}: {one.what}\n")


def _own() -> str:
    """The program that runs now, as others would start it."""
    beside = Path(sys.executable).parent / "doctor"
    return str(beside) if beside.is_file() else shutil.which("doctor") or "/opt/doctor/bin/doctor"


def _written(path: Path, text: str, script: bool) -> None:
    """Never over something that is there."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755 if script else 0o644)
    except FileExistsError:
        raise UsageError(f"{one_line(str(path))} is there", "name another file: it is not overwritten") from None
    except OSError as e:
        raise UsageError(f"cannot write {one_line(str(path))}: {e.strerror}", "name another file") from None
    with os.fdopen(fd, "w", encoding="utf-8") as stream:
        stream.write(text)
