"""`doctor sessions`: the reports that were made, newest first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from ..workspace import Workspace

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
    html: options.Html = None,
    plain: options.Plain = False,
    every: Annotated[bool, typer.Option("--all", help="Also the answers to its further questions.")] = False,
) -> None:
    """Print the report of a session again."""
    from ..config import settle
    from ..errors import UsageError
    from ..store import load_report, turns, usable_state
    from . import output

    form = output.form(json=json, markdown=markdown, plain=plain)
    if html is not None and every:
        raise UsageError("a page has one report", "leave --all or --html out")
    output.check_page(html, form)
    settle()
    state = usable_state()[0]
    report = load_report(state, session)
    if html != output.STDOUT:
        for shown in (turns(state, session) if every else []) or [report]:
            output.show(shown, form)
    if html is not None:
        output.show_page(report, _run_of(state, session), html)


def _run_of(state: Path, session: str) -> Workspace | None:
    """The run of a session, if it is still there."""
    from ..errors import DoctorError
    from ..store import session_roots
    from ..workspace import Workspace

    try:
        roots, good = session_roots(state, session)
        return Workspace(roots, good=good, live=False) if roots else None
    except DoctorError:
        return None


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
