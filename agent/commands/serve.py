"""`doctor serve`: a server on loopback that has the runs diagnosed that alerts name."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from . import options


def serve(
    alertmanager: Annotated[
        bool, typer.Option("--alertmanager", help="Take webhooks of Prometheus Alertmanager.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free one.", min=0, max=65535)] = 9099,
    host: Annotated[str, typer.Option(help="127.0.0.1 or ::1; nothing else is served.")] = "127.0.0.1",
    root: Annotated[
        list[Path] | None, typer.Option("--root", help="Runs below this folder may be named; again for more.")
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="Jobs of Slurm may be named too.")] = False,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="Label or annotation that holds run_dir or slurm_job_id.",
            metavar="run_dir=LABEL",
            show_default="the same names",
        ),
    ] = None,
    notify: Annotated[
        list[str] | None,
        typer.Option("--notify", help="Send verdicts there (docs/notices.md); again for more.", metavar="URL"),
    ] = None,
    json: options.Json = False,
) -> None:
    """Hear alerts on loopback and triage the run that each names, once. DOCTOR_SERVE_TOKEN: who knows it may talk."""
    from ..config import settle
    from ..errors import UsageError

    if not alertmanager:
        raise UsageError("there is nothing to serve", "doctor serve --alertmanager takes webhooks of Alertmanager")
    if host not in ("127.0.0.1", "::1", "localhost"):
        raise UsageError("only 127.0.0.1 and ::1 are served", "a proxy with TLS can stand in front")
    settle()
    if not root and not slurm:
        raise UsageError("no alert may name a run yet", "--root DIR names the folder that runs lie below")
    import asyncio

    from ..notices.announce import send_again
    from ..notices.targets import checked
    from ..serving.alerts import Places
    from ..serving.heard import Heard
    from ..serving.server import Listening
    from ..serving.server import serve as serve_alerts
    from ..store import usable_state

    places = Places([_folder(r) for r in root or []], slurm, _map(names or []))
    urls = checked(notify or [])
    heard = Heard(usable_state()[0] / "serving")
    token = os.environ.get("DOCTOR_SERVE_TOKEN", "")
    send_again()
    where = Listening("127.0.0.1" if host == "localhost" else host, port, token)
    try:
        asyncio.run(serve_alerts(places, heard, where, _tell_json if json else _tell, urls))
    finally:
        heard.close()


def _folder(named: Path) -> Path:
    from ..errors import UsageError
    from ..sanitize import one_line

    path = named.expanduser()
    if not path.is_dir():
        raise UsageError(f"no such folder: {one_line(str(path))}", "--root names a folder that runs lie below")
    return path.resolve()


def _map(pairs: list[str]) -> dict[str, str]:
    from ..errors import UsageError
    from ..sanitize import one_line
    from ..serving.alerts import FIELDS

    found = {}
    for pair in pairs:
        field, _, label = pair.partition("=")
        if field not in FIELDS or not label:
            raise UsageError(
                f"--map {one_line(pair)}: not of the form run_dir=LABEL", f"there are {' and '.join(FIELDS)}"
            )
        found[field] = label
    return found


def _tell(event: dict[str, Any]) -> None:
    """One line on standard error; one that nobody can read any more stops nothing."""
    from contextlib import suppress

    from ..sanitize import one_line

    bare = ("event", "alert", "run", "url")
    words = " ".join(one_line(str(v)) if k in bare else f"({k}: {one_line(str(v))})" for k, v in event.items())
    with suppress(OSError):
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()


def _tell_json(event: dict[str, Any]) -> None:
    """One object a line on standard output."""
    import json
    from contextlib import suppress

    with suppress(OSError):
        sys.stdout.write(f"{json.dumps(event)}\n")
        sys.stdout.flush()
