"""`doctor config`: what is set, and by whom."""

from __future__ import annotations

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


def _show(json: bool) -> None:
    from dataclasses import asdict

    from ..config import config_file, origins
    from ..sanitize import one_line
    from .streams import print_json, print_line

    found = origins()
    if json:
        print_json({"file": str(config_file()), "settings": [asdict(o) for o in found]})
        return
    exists = "" if config_file().is_file() else " (not there)"
    print_line(f"config file: {one_line(str(config_file()))}{exists}")
    for o in found:
        print_line(f"{o.name} = {one_line(o.value)}  ({one_line(o.origin)})")
        print_line(f"    {o.meaning}; DOCTOR_{o.name.upper()}")
