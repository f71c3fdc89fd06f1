"""`doctor ask` and `doctor triage`: the same diagnosis, with and without a question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .options import Allow, FailOn

if TYPE_CHECKING:
    from ..llm.settings import ModelSettings
    from ..nodes.slurm_material import Material
    from ..report import Report
    from ..shell import Recording
    from ..workspace import Workspace
    from .output import Form


def ask(
    question: Annotated[str, typer.Argument(help="What is wrong, in your own words.", metavar="QUESTION")],
    run: options.Run = None,
    also: options.Also = None,
    good: options.Good = None,
    pid: options.Pid = None,
    json: options.Json = False,
    markdown: options.Markdown = False,
    html: options.Html = None,
    plain: options.Plain = False,
    model: options.Model = None,
    offline: options.Offline = False,
    base_url: options.BaseUrl = None,
    max_calls: options.MaxCalls = None,
    max_tokens: options.MaxTokens = None,
    max_seconds: options.MaxSeconds = None,
    max_cost: options.MaxCost = None,
    require_model: options.RequireModel = False,
    show_prompt: options.ShowPrompt = False,
    allow: options.AllowRisk = None,
    session: options.Session = None,
    record: options.Record = None,
    quiet: options.Quiet = False,
    fail_on: options.FailOnStatus = None,
) -> int:
    """Diagnose a run: name the root cause, show the evidence, say how to repair it."""
    from ..config import settle
    from ..store import checked_session, turns, usable_state, with_new_checks
    from . import output, recording
    from .model import model_settings

    form = output.form(json=json, markdown=markdown, plain=plain)
    output.check_page(html, form)
    asked = model_settings(
        settle(), model=model, base_url=base_url, max_calls=max_calls, max_tokens=max_tokens, max_seconds=max_seconds,
        max_cost=max_cost, offline=offline, required=require_model,
    )  # fmt: skip
    shell = recording.shell_for(record, run, session, show_prompt)
    before = []
    if session:
        state = usable_state()[0]
        before = turns(state, checked_session(state, session))
    order = _Order(question, run, also, good, allow, session, quiet, pid, model=asked, shell=shell)
    if show_prompt:
        return _show_prompt(order)
    report, ws = _diagnose(order)
    shown = report if json else with_new_checks(report, before)
    _show(shown, ws, form, html, quiet)
    if record is not None and shell is not None:
        recording.keep(ws, shell, record, report, quiet)
    return _exit_code(report, fail_on, require_model)


def triage(
    path: Annotated[
        list[str] | None, typer.Argument(help="Folder or file of the run.", show_default="this folder")
    ] = None,
    slurm: Annotated[
        str | None,
        typer.Option("--slurm", help="Diagnose this Slurm job: Slurm says where its logs are.", metavar="JOBID"),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Also put doctor-report.json, .md and .html into the run's folder.")
    ] = False,
    json: options.Json = False,
    markdown: options.Markdown = False,
    html: options.Html = None,
    plain: options.Plain = False,
    model: options.Model = None,
    offline: options.Offline = False,
    base_url: options.BaseUrl = None,
    allow: options.AllowRisk = None,
    quiet: options.Quiet = False,
    fail_on: options.FailOnStatus = None,
    notify: Annotated[
        list[str] | None,
        typer.Option("--notify", help="Send the verdict there; again for more, 'none': nowhere.", metavar="URL"),
    ] = None,
) -> int:
    """Diagnose a run without a question; what a failure hook calls. A model only if named here or by DOCTOR_MODEL."""
    from ..config import settle
    from ..notices.targets import check_form
    from . import output
    from .model import model_settings

    form = output.form(json=json, markdown=markdown, plain=plain)
    output.check_page(html, form)
    check_form([("--notify", url) for url in notify or ()])
    asked = model_settings(settle(), model=model, base_url=base_url, offline=offline, hook=True)
    job = _slurm_job(slurm, quiet) if slurm else None
    paths = [*job.paths, *(path or [])] if job else path
    notes = tuple(job.notes) if job else ()
    report, ws = _diagnose(
        _Order("", paths, None, None, allow, None, quiet, None, model=asked, may_ask=False, notes=notes)
    )
    places = (_report_places(job) if write else job.paths) if job else path or ["."]
    if write:
        output.write(report, places, quiet, ws)
    _show(report, ws, form, html, quiet)
    if (write or notify) and report.status != "healthy":
        _tell(report, places[0], notify or [])
    return _exit_code(report, fail_on)


def _tell(report: Report, place: str, notify: list[str]) -> None:
    """Tell who wants to hear of a failure; that nobody could be told is a line, not an error."""
    import sys
    from contextlib import suppress
    from pathlib import Path

    from ..notices.announce import tell
    from ..sanitize import one_line

    path = Path(place).expanduser()
    for line in tell(report, path if path.is_dir() else path.parent, notify):
        with suppress(OSError):
            sys.stderr.write(f"doctor: {one_line(line)}\n")


def _slurm_job(number: str, quiet: bool) -> Material:
    """What is to be read of a Slurm job; what cannot be read is said before the diagnosis."""
    import sys

    from ..nodes.slurm_job import job_of
    from ..nodes.slurm_material import material
    from ..sanitize import one_line
    from ..store import usable_state

    found = material(job_of(number), usable_state()[0])
    for note in found.notes if not quiet else ():
        sys.stderr.write(f"doctor: {one_line(note)}\n")
    return found


def _report_places(job: Material) -> list[str]:
    """Raises:
    UsageError: the report can be written neither beside the job's logs nor into its folder.
    """
    from ..errors import UsageError
    from ..nodes.slurm_material import report_folder

    if (place := report_folder(job)) is None:
        raise UsageError("the report cannot be written beside the job's logs", "leave out --write, or use --html FILE")
    return [str(place)]


@dataclass(frozen=True, slots=True)
class _Order:
    """What the options ask for."""

    question: str
    run: list[str] | None
    also: list[str] | None
    good: list[str] | None
    allow: Allow | None
    session: str | None
    quiet: bool
    pids: list[int] | None
    model: ModelSettings | None = None
    may_ask: bool = True
    notes: tuple[str, ...] = ()
    shell: Recording | None = None  # where the diagnosis is to be kept as an incident: a run is looked at in any case


def _show(report: Report, ws: Workspace, form: Form, html: str | None, quiet: bool) -> None:
    """Print a report, and write its page where one is wanted; a page on standard output stands there alone."""
    from . import output

    if html != output.STDOUT:
        output.show(report, form)
    if html is not None:
        output.show_page(report, ws, html, quiet)


def _diagnose(order: _Order) -> tuple[Report, Workspace]:
    """The report, and the workspace with all that was read for it."""
    from functools import partial

    from ..config import settle
    from .model import within_the_run
    from .progress import approve, follow, may_ask

    config, ws = settle(), _workspace(order)
    from .. import session as sessions
    from ..types import Risk

    model, told = within_the_run(order.model, ws.roots)
    events = sessions.diagnose(
        ws,
        order.question,
        session=order.session,
        allow=Risk(order.allow or config.allow),
        approve=partial(approve, workspace=ws) if order.may_ask and may_ask(order.quiet) else None,
        model=model,
        notes=[*told, *order.notes],
    )
    return follow(events, order.quiet), ws


def _workspace(order: _Order) -> Workspace:
    """The run to look at; none where the question alone says what is wanted."""
    from ..intent import intent_of
    from ..store import is_kept, session_roots, usable_state
    from ..workspace import Workspace
    from .material import workspace

    state = usable_state()[0]
    if order.run is None and not order.pids and order.session and is_kept(state, order.session):
        roots, good = session_roots(state, order.session)
        if roots:
            healthy = order.good or [str(g) for g in good]
            return workspace([str(r) for r in roots], healthy, order.also, order.question)
    alone = order.run is None and not order.pids and order.shell is None
    if alone and intent_of(order.question) is not None:
        return Workspace([], question=order.question, may_be_empty=True)
    return workspace(order.run, order.good, order.also, order.question, order.pids, shell=order.shell)


def _show_prompt(order: _Order) -> int:
    """Print the first request. Where no model is named it shows what one would be sent."""
    from ..config import settle
    from ..llm.settings import ModelSettings
    from ..session import first_request
    from ..types import Risk
    from .streams import print_line

    model = order.model or ModelSettings("(no model is named)")
    allow = Risk(order.allow or settle().allow)
    print_line(first_request(_workspace(order), order.question, model, session=order.session, allow=allow))
    return 0


def _exit_code(report: Report, fail_on: FailOn | None, require_model: bool = False) -> int:
    """0 whatever the report says, unless the user asked for a code.

    Raises:
        ModelFailed: the model was required, and the report was made without it.
    """
    from ..errors import ModelFailed

    if require_model and report.meta.planner != "llm":
        why = next((d for d in report.meta.degraded if d.startswith("model ")), "the model gave no verdict")
        raise ModelFailed(why, "the report was made without it")
    failing = {None: (), FailOn.CONFIRMED: ("confirmed",), FailOn.LIKELY: ("likely", "confirmed")}[fail_on]
    return 1 if report.status in failing else 0
