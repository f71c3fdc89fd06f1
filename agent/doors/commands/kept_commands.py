"""`doctor sessions`: the reports that were made, newest first."""

from __future__ import annotations

import re
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...core.errors import DoctorError, UsageError
from . import diagnosis_options

if TYPE_CHECKING:
    from ...core.report import Report
    from ...reading.run.workspace import Workspace
    from ...session.history.diagnoses import Entry
    from ...session.history.history_database import Place
    from ...session.history.team import Correction, Recurring
    from ...telling.collect.cleaning import Cleaning

sessions_app = typer.Typer(help="List earlier diagnoses, or show one again.", invoke_without_command=True)


@sessions_app.callback()
def sessions(
    context: typer.Context,
    json: diagnosis_options.Json = False,
    limit: Annotated[int, typer.Option(min=1, help="How many to list.")] = 20,
) -> None:
    if context.invoked_subcommand is None:
        _list(json, limit)


@sessions_app.command()
def show(
    session: Annotated[str, typer.Argument(metavar="ID", help="As `doctor sessions` lists it.")],
    json: diagnosis_options.Json = False,
    markdown: diagnosis_options.Markdown = False,
    html: diagnosis_options.Html = None,
    plain: diagnosis_options.Plain = False,
    every: Annotated[bool, typer.Option("--all", help="Also the answers to its further questions.")] = False,
) -> None:
    """Print the report of a session again."""
    from ...core.config import settle
    from ...core.errors import UsageError
    from ...session.store import load_report, turns, usable_state
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
    from ...core.errors import DoctorError
    from ...reading.run.workspace import Workspace
    from ...session.store import session_roots

    try:
        roots, good = session_roots(state, session)
        return Workspace(roots, good=good, live=False) if roots else None
    except DoctorError:
        return None


def _list(json: bool, limit: int) -> None:
    import time
    from dataclasses import asdict

    from ...core.config import settle
    from ...safety.fences import one_line
    from ...session.store import reports, usable_state
    from .output import print_json, print_line

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


# ----------
# `doctor history`: what jobs of this team failed of before, and which nodes and causes come again.

_SINCE = re.compile(r"(\d{1,5})([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def history(
    cause: Annotated[str, typer.Option(help="Only this cause.", metavar="ID", show_default=False)] = "",
    node: Annotated[str, typer.Option(help="Only what named this node.", metavar="NAME", show_default=False)] = "",
    job: Annotated[
        str, typer.Option(help="Only jobs with this in their name or folder, or of this id.", show_default=False)
    ] = "",
    since: Annotated[str, typer.Option(help="Only the last 12h, 30d, 8w ...", metavar="TIME", show_default="all")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many to list.")] = 20,
    json: diagnosis_options.Json = False,
) -> None:
    """List earlier diagnoses by job, cause and node, and what comes again and again.

    Kept in the state folder, or in the folder that `history` in doctor.toml (DOCTOR_HISTORY) names, which a team may
    share. `doctor feedback` says what a diagnosis really was.
    """
    from dataclasses import asdict

    from ...core.config import settle
    from ...session.history import diagnoses, team
    from ...session.history.history_database import Unusable, place_of, reading
    from ...session.store import usable_state
    from .output import print_json, print_line

    settle()
    place = place_of(usable_state()[0])
    wanted = diagnoses.Wanted(_known(cause), node, job, _span(since), limit)

    def look(base: Any) -> tuple[list[Entry], list[Recurring], list[Recurring], list[Correction]]:
        often = team.recurring_nodes(base), team.recurring_causes(base)
        return diagnoses.found(base, wanted), *often, team.everything(base)

    try:
        found, nodes, causes, corrected = reading(place, look, ([], [], [], []), seconds=20.0)
    except Unusable as e:
        raise UsageError(str(e)) from None
    truth = {c.session: c for c in corrected}
    if json:
        entries = [asdict(e) | {"truth": truth[e.session].truth if e.session in truth else None} for e in found]
        often = {"nodes": [asdict(r) for r in nodes], "causes": [asdict(r) for r in causes]}
        print_json({"place": str(place.folder), "diagnoses": entries, "recurring": often})
        return
    for line in _lines(found, truth) or ["Nothing yet: every diagnosis is kept here."]:
        print_line(line)
    for title, often in (("Nodes that come again", nodes), ("Causes that come again", causes)):
        if often and not (cause or node or job or since):
            print_line(f"\n{title}")
            for line in map(_recurring, often):
                print_line(line)


def _lines(found: list[Entry], truth: dict[str, Correction]) -> list[str]:
    from ...safety.fences import one_line

    lines = []
    for e in found:
        cause = e.cause
        if (known := truth.get(e.session)) is not None:
            cause += " (right)" if known.truth == e.cause else f", really {known.truth}"
        where = [f"on {', '.join(e.nodes)}"] if e.nodes else []
        where += [f"step {e.step}"] if e.step is not None else []
        job = e.job or e.folder or "-"
        named = f"{job} ({e.job_id})" if e.job_id else job
        lines.append(one_line(f"{e.time.replace('T', ' ')[:16]}  {e.status:<13}  {cause}  {' '.join(where)}".rstrip()))
        lines.append(f"  {one_line(f'{named}  {e.user}@{e.host}  {e.session}')}")
    return lines


def _recurring(r: Recurring) -> str:
    from ...safety.fences import one_line

    return one_line(f"  {r.name}  {r.times} of the last {r.of}, last {r.last[:10]}")


def _known(cause: str) -> str:
    """A cause as it was typed, if there is one of that name."""
    pass

    return known_cause(cause) if cause else ""


def _span(text: str) -> timedelta | None:
    if not text:
        return None
    found = _SINCE.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(f"--since {text[:40]!r} is no span of time", "12h, 30d or 8w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


# ----------
# `doctor feedback`: what a diagnosis really was, kept in the team's history and as an incident of its own.

SECONDS = 20.0  # to wait for the history: somebody asked for it


def feedback(
    report: Annotated[str, typer.Argument(metavar="REPORT", help="A session, 'last', or a report as JSON.")],
    truth: Annotated[
        str, typer.Argument(metavar="ID", help="What it really was, by the id of a cause.", show_default=False)
    ] = "",
    cause: Annotated[str, typer.Option(help="The same.", metavar="ID", show_default=False)] = "",
    good: Annotated[bool, typer.Option("--good", help="The diagnosis was right.")] = False,
    note: Annotated[str, typer.Option(help="How it came out.", show_default=False)] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Take back what was said about it.")] = False,
    run: Annotated[
        list[str] | None,
        typer.Option("--run", help="Where the run is now; again for more.", metavar="PATH", show_default="as reported"),
    ] = None,
) -> None:
    """Say what a diagnosis really was.

    From two corrections of the same kind on, diagnoses of this team start with a small lean towards the truth, which
    evidence outweighs. The run's texts, bounded and with secrets taken out, become an incident for `doctor eval`.
    """
    from ...core.config import settle
    from ...session.history.history_database import place_of
    from ...session.reported import report_of
    from ...session.store import usable_state

    settle()
    state, _ = usable_state()
    found, path = report_of(report, state)
    if found.root_cause.id is None or not found.session:
        raise UsageError("that report answers a question, it names no cause", "name a diagnosis: `doctor sessions`")
    place = place_of(state)
    if undo:
        _take_back(place, found.session)
        return
    really = _truth(found, cause or truth, good)
    ws = _run_looked_at(found, path, state, run)
    _say(place, found, _kept(place, found, really, note, ws))


def _truth(report: Report, cause: str, good: bool) -> str:
    if not (cause or good):
        raise UsageError("what was it?", "--cause ID names it, --good says the diagnosis was right")
    said = report.root_cause.id or ""
    truth = known_cause(cause) if cause else said
    if good and truth != said:
        raise UsageError(f"--good says it was {said}, --cause says {truth}", "give one of them")
    return truth


def _run_looked_at(report: Report, path: Path | None, state: Path, run: list[str] | None) -> Workspace | None:
    """The run as it is now; None where it is gone. What the user names must be there."""
    from ...reading.run.workspace import Workspace
    from ...session.reported import roots_of

    try:
        roots = roots_of(report, path, state, run)
        return Workspace([r.path for r in roots if not r.good], good=[], question=report.question, live=False)
    except DoctorError:
        if run:
            raise
        return None


def _kept(place: Place, report: Report, truth: str, note: str, ws: Workspace | None) -> Correction:
    """Write the incident and the correction."""
    from ...repair.restart import framework_of
    from ...session.history import diagnoses, team
    from ...session.history.diagnoses import error_in, user_here
    from ...session.history.history_database import Unusable, reading, writing
    from ...telling.collect.cleaning import Cleaning

    cleaning = Cleaning()
    try:
        row = reading(place, lambda base: diagnoses.by_session(base, report.session), None, SECONDS)
        files = _texts(ws, report, cleaning) if ws is not None else diagnoses.kept_files(place, report.session)
        note, question = cleaning.text(note), cleaning.text(report.question)
        yaml = diagnoses.labels(report, truth, note, files, question)
        folder = None
        if files and ws is not None:
            folder = diagnoses.keep(place, report.session, yaml, files)
        elif files:
            folder = diagnoses.relabel(place, report.session, yaml)
        kept = team.Correction(
            session=report.session, time=diagnoses.now(), user=user_here(), said=report.root_cause.id or "",
            truth=truth, note=note, incident=str(folder or ""),
            framework=row.framework if row else framework_of(ws) if ws else "",
            error=row.error if row else cleaning.text(error_in(report)),
        )  # fmt: skip
        writing(place, lambda base: team.put(base, kept), SECONDS)
    except (Unusable, OSError) as e:
        raise UsageError(str(e) if isinstance(e, Unusable) else f"{place.folder}: {e.strerror}") from None
    return kept


def _texts(ws: Workspace, report: Report, cleaning: Cleaning) -> dict[str, bytes]:
    """The run's texts by name, bounded, with secrets taken out."""
    from ...telling.collect.kept_incident import texts

    members, _ = texts(ws, report, cleaning)
    return {name.removeprefix("files/"): data for name, data in members.items()}


def _say(place: Place, report: Report, kept: Correction) -> None:
    from datetime import UTC, datetime

    from ...safety.fences import one_line
    from ...session.history import team
    from ...session.history.history_database import reading
    from ...session.history.team import FEWEST, Kind, shifts
    from .output import print_line

    right = kept.said == kept.truth
    print_line(one_line(f"{report.session}: {f'{kept.said} was right' if right else f'{kept.truth}, not {kept.said}'}"))
    if kept.incident:
        print_line(one_line(f"an incident of your own: doctor eval {kept.incident}"))
    else:
        print_line("the run is not here any more, so no incident was made; --run names where it is now")
    every = reading(place, team.everything, [], SECONDS)
    lean = shifts(every, kept.said, Kind(kept.framework, kept.error), datetime.now(UTC))
    for shift in lean:
        print_line(one_line(f"from now on: {shift.told}"))
    if not right and not lean:
        print_line(f"from {FEWEST} such corrections on, runs like this one lean towards it; evidence still decides")


def _take_back(place: Place, session: str) -> None:
    from ...safety.fences import one_line
    from ...session.history import diagnoses, team
    from ...session.history.history_database import Unusable, writing
    from .output import print_line

    try:
        kept = writing(place, lambda base: team.take_back(base, session), SECONDS)
        gone = diagnoses.drop(place, session)
    except Unusable as e:
        raise UsageError(str(e)) from None
    if kept is None and not gone:
        raise UsageError(f"nothing was said about {one_line(session)}", "`doctor history` lists what there is")
    print_line(one_line(f"taken back: {session}" + (" and its incident" if gone else "")))


# ----------
# A cause that a user names: looked up, with what is near where there is none of that name.


def known_cause(named: str) -> str:
    """The id of a cause.

    Raises:
        UsageError: there is none of that name; the hint has the nearest ones.
    """
    from ...core.playbook import causes, playbooks
    from ...safety.fences import one_line

    every = dict.fromkeys([*causes(), *(p.cause for p in playbooks())])
    if named in every:
        return named
    wanted = named.strip().lower()
    slugs = {c.partition(".")[2]: c for c in every}
    near = get_close_matches(wanted, list(every), 3, 0.5)
    near += [slugs[s] for s in get_close_matches(wanted.rpartition(".")[2], list(slugs), 3, 0.6)]
    near += [c for c in every if wanted and wanted in c]
    hint = f"near it: {', '.join(dict.fromkeys(near[:4]))}" if near else "`doctor playbook list` has them all"
    raise UsageError(f"no cause is called {one_line(named)[:80]!r}", hint)
