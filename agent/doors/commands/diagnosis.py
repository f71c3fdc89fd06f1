"""`doctor ask` and `doctor triage`: the same diagnosis, with and without a question."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...core.errors import UsageError
from . import diagnosis_options
from .diagnosis_options import Allow, FailOn

if TYPE_CHECKING:
    from ...core.report import Report
    from ...core.shell import Recording
    from ...jobs.nodes.slurm_material import Material
    from ...llm.model_settings import ModelSettings
    from ...reading.run.workspace import Workspace
    from .output import Form


def ask(
    question: Annotated[str, typer.Argument(help="What is wrong, in your own words.", metavar="QUESTION")],
    run: diagnosis_options.Run = None,
    also: diagnosis_options.Also = None,
    good: diagnosis_options.Good = None,
    pid: diagnosis_options.Pid = None,
    json: diagnosis_options.Json = False,
    markdown: diagnosis_options.Markdown = False,
    html: diagnosis_options.Html = None,
    plain: diagnosis_options.Plain = False,
    model: diagnosis_options.Model = None,
    offline: diagnosis_options.Offline = False,
    base_url: diagnosis_options.BaseUrl = None,
    max_calls: diagnosis_options.MaxCalls = None,
    max_tokens: diagnosis_options.MaxTokens = None,
    max_seconds: diagnosis_options.MaxSeconds = None,
    max_cost: diagnosis_options.MaxCost = None,
    require_model: diagnosis_options.RequireModel = False,
    show_prompt: diagnosis_options.ShowPrompt = False,
    allow: diagnosis_options.AllowRisk = None,
    session: diagnosis_options.Session = None,
    record: diagnosis_options.Record = None,
    quiet: diagnosis_options.Quiet = False,
    fail_on: diagnosis_options.FailOnStatus = None,
) -> int:
    """Diagnose a run: name the root cause, show the evidence, say how to repair it."""
    from ...core.config import settle
    from ...session.store import checked_session, turns, usable_state, with_new_checks
    from . import output
    from .diagnosis_options import model_settings

    form = output.form(json=json, markdown=markdown, plain=plain)
    output.check_page(html, form)
    asked = model_settings(
        settle(), model=model, base_url=base_url, max_calls=max_calls, max_tokens=max_tokens, max_seconds=max_seconds,
        max_cost=max_cost, offline=offline, required=require_model,
    )  # fmt: skip
    shell = shell_for(record, run, session, show_prompt)
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
        keep(ws, shell, record, report, quiet)
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
    json: diagnosis_options.Json = False,
    markdown: diagnosis_options.Markdown = False,
    html: diagnosis_options.Html = None,
    plain: diagnosis_options.Plain = False,
    model: diagnosis_options.Model = None,
    offline: diagnosis_options.Offline = False,
    base_url: diagnosis_options.BaseUrl = None,
    allow: diagnosis_options.AllowRisk = None,
    quiet: diagnosis_options.Quiet = False,
    fail_on: diagnosis_options.FailOnStatus = None,
    notify: Annotated[
        list[str] | None,
        typer.Option("--notify", help="Send the verdict there; again for more, 'none': nowhere.", metavar="URL"),
    ] = None,
) -> int:
    """Diagnose a run without a question; what a failure hook calls. A model only if named here or by DOCTOR_MODEL."""
    from ...core.config import settle
    from ...jobs.notices.delivery import check_form
    from . import output
    from .diagnosis_options import model_settings

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

    from ...jobs.notices.announce import tell
    from ...safety.fences import one_line

    path = Path(place).expanduser()
    for line in tell(report, path if path.is_dir() else path.parent, notify):
        with suppress(OSError):
            sys.stderr.write(f"doctor: {one_line(line)}\n")


def _slurm_job(number: str, quiet: bool) -> Material:
    """What is to be read of a Slurm job; what cannot be read is said before the diagnosis."""
    import sys

    from ...jobs.nodes.slurm_job import job_of
    from ...jobs.nodes.slurm_material import material
    from ...safety.fences import one_line
    from ...session.store import usable_state

    found = material(job_of(number), usable_state()[0])
    for note in found.notes if not quiet else ():
        sys.stderr.write(f"doctor: {one_line(note)}\n")
    return found


def _report_places(job: Material) -> list[str]:
    """Raises:
    UsageError: the report can be written neither beside the job's logs nor into its folder.
    """
    from ...core.errors import UsageError
    from ...jobs.nodes.slurm_material import report_folder

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

    from ...core.config import settle
    from .diagnosis_options import within_the_run
    from .output import approve, follow, may_ask

    config, ws = settle(), _workspace(order)
    from ...core.types import Risk
    from ...session import session as sessions

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
    from ...reading.run.workspace import Workspace
    from ...session.store import is_kept, session_roots, usable_state
    from ...verdict.intent import intent_of
    from .diagnosis_options import workspace

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
    from ...core.config import settle
    from ...core.types import Risk
    from ...llm.model_settings import ModelSettings
    from ...session.session import first_request
    from .output import print_line

    model = order.model or ModelSettings("(no model is named)")
    allow = Risk(order.allow or settle().allow)
    print_line(first_request(_workspace(order), order.question, model, session=order.session, allow=allow))
    return 0


def _exit_code(report: Report, fail_on: FailOn | None, require_model: bool = False) -> int:
    """0 whatever the report says, unless the user asked for a code.

    Raises:
        ModelFailed: the model was required, and the report was made without it.
    """
    from ...core.errors import ModelFailed

    if require_model and report.meta.planner != "llm":
        why = next((d for d in report.meta.degraded if d.startswith("model ")), "the model gave no verdict")
        raise ModelFailed(why, "the report was made without it")
    failing = {None: (), FailOn.CONFIRMED: ("confirmed",), FailOn.LIKELY: ("likely", "confirmed")}[fail_on]
    return 1 if report.status in failing else 0


# ----------
# `doctor ask --record DIR`: the diagnosis kept as an incident that somebody can label.


def shell_for(folder: Path | None, run: list[str] | None, session: str | None, show_prompt: bool) -> Recording | None:
    """A shell that keeps what commands answer, where an incident is asked for.

    Raises:
        UsageError: the folder cannot be written, or there will be no whole diagnosis to keep.
    """
    from ...core.shell import Live, Recording
    from ...telling.collect.kept_incident import refuse_place

    if folder is None:
        return None
    if session or show_prompt:
        other = "--session" if session else "--show-prompt"
        raise UsageError(f"--record keeps a diagnosis from its beginning to its end, not with {other}", "leave one out")
    refuse_place(folder, [Path(name).expanduser() for name in run or ["."]])
    return Recording(Live())


def keep(ws: Workspace, shell: Recording, folder: Path, report: Report, quiet: bool) -> None:
    """Write the incident, and say in a line what it holds and what is to be done with it."""
    from ...safety.fences import one_line
    from ...telling.collect.kept_incident import record

    kept = record(ws, shell, folder, report)
    if not quiet:
        what = f"{kept.files} of {kept.of} files, {kept.commands} commands, {kept.redacted} secrets taken out"
        place = one_line(str(folder))
        sys.stderr.write(
            f"recorded {place}: {what}; read it, fill in {place}/incident.yaml, then run: doctor eval {place}\n"
        )


# ----------
# `doctor preflight`: what will go wrong, before a GPU hour is spent.


def preflight(
    config: Annotated[list[str], typer.Argument(help="Config, launch script or folder of the job.", metavar="CONFIG")],
    gpu: Annotated[str, typer.Option(help="GiB of the devices it will run on, or their name such as H100.")] = "",
    gpus: Annotated[int, typer.Option(help="How many of them.", show_default="as the settings say", min=0)] = 0,
    also: diagnosis_options.Also = None,
    files_only: Annotated[bool, typer.Option("--files-only", help="Do not look at this machine.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when something will go wrong.")] = False,
    json: diagnosis_options.Json = False,
    markdown: diagnosis_options.Markdown = False,
    plain: diagnosis_options.Plain = False,
    quiet: diagnosis_options.Quiet = False,
) -> int:
    """Check a job before it starts: settings, memory, data, checkpoints, versions, and the machine it starts on.

    Local files that the settings name (data, models, checkpoints, further configs) are looked at too, and this
    machine: start it where the job will run.
    """
    from ...core.config import settle
    from ...reading.settings.catalogue import leave_foreign_out, named_paths
    from ...session import session as sessions
    from ...verdict.intent import PREFLIGHT
    from . import output
    from .diagnosis_options import workspace
    from .output import follow

    settle()
    form = output.form(json=json, markdown=markdown, plain=plain)
    workspace(config, live=False)  # a machine alone is no job: without a file, this says so
    ws = workspace(config, also=also, live=not files_only)
    named, more = named_paths(ws)
    if named:
        ws = workspace([*config, *map(str, named)], also=also, live=not files_only)
        leave_foreign_out(ws, named)
    if more:
        ws.tell("settings", f"{more} further paths that they name were not looked at")
    report = follow(sessions.diagnose(ws, _question(gpu, gpus), intent=PREFLIGHT), quiet)
    output.show(report, form)
    return 1 if strict and _stops(report) else 0


def _question(gpu: str, gpus: int) -> str:
    """The devices as words of the question, where the estimate looks for them."""
    size = f"{gpu} GB" if gpu.isdigit() else gpu
    devices = f"{gpus} x {size or 'GPUs'}" if gpus else size
    return f"What will go wrong on {devices}?" if devices else "What will go wrong?"


def _stops(report: Report) -> bool:
    return any(s.level == "stops" for s in report.summary)
