"""`doctor ask` and `doctor triage`: the same diagnosis, with and without a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .options import Allow, FailOn

if TYPE_CHECKING:
    from ..report import Report


def ask(
    question: Annotated[str, typer.Argument(help="What is wrong, in your own words.", metavar="QUESTION")],
    run: options.Run = None,
    also: options.Also = None,
    good: options.Good = None,
    pid: options.Pid = None,
    json: options.Json = False,
    markdown: options.Markdown = False,
    plain: options.Plain = False,
    offline: options.Offline = False,
    allow: options.AllowRisk = None,
    session: options.Session = None,
    quiet: options.Quiet = False,
    fail_on: options.FailOnStatus = None,
) -> int:
    """Diagnose a run: name the root cause, show the evidence, say how to repair it."""
    from . import output

    form = output.form(json=json, markdown=markdown, plain=plain)
    report = _diagnose(question, run, also, good, allow, session, quiet, pid)
    output.show(report, form)
    return _exit_code(report, fail_on)


def triage(
    path: Annotated[list[str] | None, typer.Argument(help="Folder or file of the run.", show_default="this folder")]
    = None,
    write: Annotated[
        bool, typer.Option("--write", help="Also put doctor-report.json and .md into the run's folder.")
    ] = False,
    json: options.Json = False,
    markdown: options.Markdown = False,
    plain: options.Plain = False,
    allow: options.AllowRisk = None,
    quiet: options.Quiet = False,
    fail_on: options.FailOnStatus = None,
) -> int:
    """Diagnose a run without a question; what a failure hook calls."""
    from . import output

    form = output.form(json=json, markdown=markdown, plain=plain)
    report = _diagnose("", path, None, None, allow, None, quiet, ask_approval=False)
    if write:
        output.write(report, path or ["."], quiet)
    output.show(report, form)
    return _exit_code(report, fail_on)


def _diagnose(
    question: str,
    run: list[str] | None,
    also: list[str] | None,
    good: list[str] | None,
    allow: Allow | None,
    session: str | None,
    quiet: bool,
    pids: list[int] | None = None,
    ask_approval: bool = True,
) -> Report:
    from ..config import settle
    from .material import workspace
    from .progress import approve, follow, may_ask

    config = settle()
    from ..intent import intent_of
    from ..workspace import Workspace

    if run is None and not pids and intent_of(question) is not None:  # no run is needed to say what a word means
        ws = Workspace([], question=question, may_be_empty=True)
    else:
        ws = workspace(run, good, also, question, pids)
    from .. import session as sessions
    from ..types import Risk

    events = sessions.diagnose(
        ws,
        question,
        session=session,
        allow=Risk(allow or config.allow),
        approve=approve if ask_approval and may_ask(quiet) else None,
    )
    return follow(events, quiet)


def _exit_code(report: Report, fail_on: FailOn | None) -> int:
    """0 whatever the report says, unless the user asked for a code."""
    failing = {None: (), FailOn.CONFIRMED: ("confirmed",), FailOn.LIKELY: ("likely", "confirmed")}[fail_on]
    return 1 if report.status in failing else 0
