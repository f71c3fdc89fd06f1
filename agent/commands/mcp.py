"""`doctor mcp`: the read tools, search and diagnose for coding agents, by the Model Context Protocol."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from . import options
from .options import Allow


def mcp(
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--run",
            help="Folder or file of the run; nothing outside is then read. Again for more.",
            metavar="PATH",
            show_default="the client names it",
        ),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            help="Offer only this diagnostic beside search and diagnose; again for more.",
            metavar="NAME",
            show_default="all that only read",
        ),
    ] = None,
    allow: options.AllowRisk = None,
) -> int:
    """Serve the tools to a coding agent over standard input and output (Model Context Protocol)."""
    from ..config import settle
    from ..errors import UsageError

    if allow not in (None, Allow.READ):
        raise UsageError("a client cannot approve anything: only `read` is served", "leave --allow out")
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("standard input is closed", "a client starts this command and talks to it there")
    settle()
    from ..mcp.server import serve

    if sys.stdin.isatty():
        sys.stderr.write("doctor: waiting for a client on standard input; docs/mcp.md says how one starts this\n")
    serve(run or [], [name.replace("-", "_") for name in tool or []])
    return 0
