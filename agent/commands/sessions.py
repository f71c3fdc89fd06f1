"""`doctor sessions`: the reports that were made, newest first."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options

app = typer.Typer(help="List earlier diagnoses, or show one again.", invoke_without_command=True)


@app.callback()
def sessions(
    context: typer.Context,
    json: options.Json = False,
    limit: Annotated[int, typer.Option(min=1, help="How many to list.")] = 20,
) -> None:
    if context.invoked_subcommand is None:
        _list(json, limit)


@app.command()
def show(
    session: Annotated[str, typer.Argument(metavar="ID", help="As `doctor sessions` lists it.")],
    json: options.Json = False,
    markdown: options.Markdown = False,
    plain: options.Plain = False,
    every: Annotated[bool, typer.Option("--all", help="Also the answers to its further questions.")] = False,
) -> None:
    """Print the report of a session again."""
    from ..config import settle
    from ..store import load_report, turns, usable_state
    from . import output

    form = output.form(json=json, markdown=markdown, plain=plain)
    settle()
    state = usable_state()[0]
    report = load_report(state, session)
    for shown in (turns(state, session) if every else []) or [report]:
        output.show(shown, form)


def _list(json: bool, limit: int) -> None:
    import time
    from dataclasses import asdict

    from ..config import settle
    from ..sanitize import one_line
    from ..store import reports, usable_state
    from .streams import print_json, print_line

    settle()
    found = reports(usable_state()[0])[:limit]
    if json:
        print_json([asdict(entry) for entry in found])
        return
    if not found:
        print_line("No sessions yet: `doctor ask` makes one.")
    for entry in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.time))
        about = entry.question or ", ".join(entry.roots)
        print_line(one_line(f"{entry.id}  {when}  {entry.status:<21}  {entry.cause or '-'}"))
        print_line(f"  {one_line(about)[:100]}")
