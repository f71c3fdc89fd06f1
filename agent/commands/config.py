"""`doctor config`: what is set, and by whom."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options

app = typer.Typer(help="Show doctor's own settings and where each comes from.", invoke_without_command=True)


@app.callback()
def config(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        _show(False)


@app.command()
def show(json: options.Json = False) -> None:
    """Print every setting, its value and its origin."""
    _show(json)


@app.command()
def notify(
    notify: Annotated[
        list[str] | None,
        typer.Option("--notify", help="Another target beside those that are set; again for more.", metavar="URL"),
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="Send each of them a message now.")] = False,
    json: options.Json = False,
) -> int:
    """List where notices go, without their secrets, and try it: exit code 1 where a message did not arrive."""
    from ..notices import targets
    from ..notices.trial import tried
    from ..sanitize import one_line
    from .streams import print_json, print_line

    found = list({url: who for who, url in reversed(targets.named(notify or []))}.items())[::-1]
    answers = tried([url for url, _ in found]) if test else [None] * len(found)
    if json:
        rows = [
            {"target": targets.shown(url), "origin": who} | ({"sent": not why, "why": why} if why is not None else {})
            for (url, who), why in zip(found, answers, strict=True)
        ]
        print_json({"targets": rows})
    else:
        for (url, who), why in zip(found, answers, strict=True):
            came = "" if why is None else f": {why}" if why else ": sent"
            print_line(f"{targets.shown(url)}  ({one_line(who)}){came}")
        if not found:
            print_line("No target is named: no notice is sent.")
    return 1 if any(answers) else 0


def _show(json: bool) -> None:
    from dataclasses import asdict

    from ..config import config_file, origins, settle
    from ..llm import origins as of_model
    from ..notices import targets
    from ..sanitize import one_line
    from .streams import print_json, print_line

    found = [*origins(), *of_model.origins()]
    named = of_model.listed(settle())
    if json:
        settings = [asdict(o) for o in found]
        told = [{"target": targets.shown(url), "origin": who} for who, url in targets.named()]
        print_json(
            {"file": str(config_file()), "settings": settings, "profiles": [asdict(p) for p in named], "notify": told}
        )
        return
    exists = "" if config_file().is_file() else " (not there)"
    print_line(f"config file: {one_line(str(config_file()))}{exists}")
    for o in found:
        print_line(f"{o.name} = {one_line(o.value)}  ({one_line(o.origin)})")
        print_line(f"    {o.meaning}{_variable(o.name)}")
    for who, url in targets.named():
        print_line(f"notify = {targets.shown(url)}  ({one_line(who)})")
    for p in named:
        server = "the default server" if p.base_url == "-" else p.base_url
        print_line(one_line(f"profile {p.name}: {p.model or 'no model'} at {server}"))
    if not any(o.name == "model" and o.value != "-" for o in found):
        print_line("No model is named: nothing is sent.")


def _variable(name: str) -> str:
    """The variable of a setting; a key has none, so that none is ever told to be put there."""
    from ..config import variable

    return "" if name == "key" else f"; {variable(name)}"
