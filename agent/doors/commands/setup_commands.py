"""What is set and by whom (`doctor config`), and the way in for coding agents (`doctor mcp`)."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from . import diagnosis_options
from .diagnosis_options import Allow

# ----------
# `doctor config`: what is set, and by whom.

config_app = typer.Typer(help="Show doctor's own settings and where each comes from.", invoke_without_command=True)


@config_app.callback()
def config(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        _show(False)


@config_app.command()
def show(json: diagnosis_options.Json = False) -> None:
    """Print every setting, its value and its origin."""
    _show(json)


@config_app.command()
def notify(
    notify: Annotated[
        list[str] | None,
        typer.Option("--notify", help="Another target beside those that are set; again for more.", metavar="URL"),
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="Send each of them a message now.")] = False,
    json: diagnosis_options.Json = False,
) -> int:
    """List where notices go, without their secrets, and try it: exit code 1 where a message did not arrive."""
    from ...jobs.notices import delivery
    from ...jobs.notices.announce import tried
    from ...safety.fences import one_line
    from .output import print_json, print_line

    found = list({url: who for who, url in reversed(delivery.named(notify or []))}.items())[::-1]
    answers = tried([url for url, _ in found]) if test else [None] * len(found)
    if json:
        rows = [
            {"target": delivery.shown(url), "origin": who} | ({"sent": not why, "why": why} if why is not None else {})
            for (url, who), why in zip(found, answers, strict=True)
        ]
        print_json({"targets": rows})
    else:
        for (url, who), why in zip(found, answers, strict=True):
            came = "" if why is None else f": {why}" if why else ": sent"
            print_line(f"{delivery.shown(url)}  ({one_line(who)}){came}")
        if not found:
            print_line("No target is named: no notice is sent.")
    return 1 if any(answers) else 0


def _show(json: bool) -> None:
    from dataclasses import asdict

    from ...core.config import config_file, origins, settle
    from ...jobs.notices import delivery
    from ...llm import model_settings as of_model
    from ...safety.fences import one_line
    from .output import print_json, print_line

    found = [*origins(), *of_model.origins()]
    named = of_model.listed(settle())
    if json:
        settings = [asdict(o) for o in found]
        told = [{"target": delivery.shown(url), "origin": who} for who, url in delivery.named()]
        print_json(
            {"file": str(config_file()), "settings": settings, "profiles": [asdict(p) for p in named], "notify": told}
        )
        return
    exists = "" if config_file().is_file() else " (not there)"
    print_line(f"config file: {one_line(str(config_file()))}{exists}")
    for o in found:
        print_line(f"{o.name} = {one_line(o.value)}  ({one_line(o.origin)})")
        print_line(f"    {o.meaning}{_variable(o.name)}")
    for who, url in delivery.named():
        print_line(f"notify = {delivery.shown(url)}  ({one_line(who)})")
    for p in named:
        server = "the default server" if p.base_url == "-" else p.base_url
        print_line(one_line(f"profile {p.name}: {p.model or 'no model'} at {server}"))
    if not any(o.name == "model" and o.value != "-" for o in found):
        print_line("No model is named: nothing is sent.")


def _variable(name: str) -> str:
    """The variable of a setting; a key has none, so that none is ever told to be put there."""
    from ...core.config import variable

    return "" if name == "key" else f"; {variable(name)}"


# ----------
# `doctor mcp`: the read tools, search and diagnose for coding agents, by the Model Context Protocol.


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
    allow: diagnosis_options.AllowRisk = None,
) -> int:
    """Serve the tools to a coding agent over standard input and output (Model Context Protocol)."""
    from ...core.config import settle
    from ...core.errors import UsageError

    if allow not in (None, Allow.READ):
        raise UsageError("a client cannot approve anything: only `read` is served", "leave --allow out")
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("standard input is closed", "a client starts this command and talks to it there")
    settle()
    from ..mcp.mcp_server import serve

    if sys.stdin.isatty():
        sys.stderr.write("doctor: waiting for a client on standard input; docs/mcp.md says how one starts this\n")
    serve(run or [], [name.replace("-", "_") for name in tool or []])
    return 0
