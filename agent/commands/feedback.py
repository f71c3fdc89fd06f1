"""`doctor feedback`: what a diagnosis really was, kept in the team's history and as an incident of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import DoctorError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from ..collect.cleaning import Cleaning
    from ..history.corrections import Correction
    from ..history.place import Place
    from ..report import Report
    from ..workspace import Workspace

SECONDS = 20.0  # to wait for the history: somebody asked for it


def feedback(
    report: Annotated[str, typer.Argument(metavar="REPORT", help="A session, 'last', or a report as JSON.")],
    cause: Annotated[
        str, typer.Option(help="What it really was, by the id of a cause.", metavar="ID", show_default=False)
    ] = "",
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
    from ..config import settle
    from ..history.place import place_of
    from ..reported import report_of
    from ..store import usable_state

    settle()
    state, _ = usable_state()
    found, path = report_of(report, state)
    if found.root_cause.id is None or not found.session:
        raise UsageError("that report answers a question, it names no cause", "name a diagnosis: `doctor sessions`")
    place = place_of(state)
    if undo:
        _take_back(place, found.session)
        return
    truth = _truth(found, cause, good)
    ws = _run_of(found, path, state, run)
    _say(place, found, _kept(place, found, truth, note, ws))


def _truth(report: Report, cause: str, good: bool) -> str:
    from .causes import known_cause

    if not (cause or good):
        raise UsageError("what was it?", "--cause ID names it, --good says the diagnosis was right")
    said = report.root_cause.id or ""
    truth = known_cause(cause) if cause else said
    if good and truth != said:
        raise UsageError(f"--good says it was {said}, --cause says {truth}", "give one of them")
    return truth


def _run_of(report: Report, path: Path | None, state: Path, run: list[str] | None) -> Workspace | None:
    """The run as it is now; None where it is gone. What the user names must be there."""
    from ..reported import roots_of
    from ..workspace import Workspace

    try:
        roots = roots_of(report, path, state, run)
        return Workspace([r.path for r in roots if not r.good], good=[], question=report.question, live=False)
    except DoctorError:
        if run:
            raise
        return None


def _kept(place: Place, report: Report, truth: str, note: str, ws: Workspace | None) -> Correction:
    """Write the incident and the correction."""
    from ..collect.cleaning import Cleaning
    from ..history import corrections, diagnoses, incident
    from ..history.database import Unusable, reading, writing
    from ..history.row import error_in, user_here
    from ..restart.resume import framework_of

    cleaning = Cleaning()
    try:
        row = reading(place, lambda base: diagnoses.by_session(base, report.session), None, SECONDS)
        files = _texts(ws, report, cleaning) if ws is not None else incident.kept_files(place, report.session)
        note, question = cleaning.text(note), cleaning.text(report.question)
        yaml = incident.labels(report, truth, note, files, question)
        folder = None
        if files and ws is not None:
            folder = incident.keep(place, report.session, yaml, files)
        elif files:
            folder = incident.relabel(place, report.session, yaml)
        kept = corrections.Correction(
            session=report.session, time=diagnoses.now(), user=user_here(), said=report.root_cause.id or "",
            truth=truth, note=note, incident=str(folder or ""),
            framework=row.framework if row else framework_of(ws) if ws else "",
            error=row.error if row else cleaning.text(error_in(report)),
        )  # fmt: skip
        writing(place, lambda base: corrections.put(base, kept), SECONDS)
    except (Unusable, OSError) as e:
        raise UsageError(str(e) if isinstance(e, Unusable) else f"{place.folder}: {e.strerror}") from None
    return kept


def _texts(ws: Workspace, report: Report, cleaning: Cleaning) -> dict[str, bytes]:
    """The run's texts by name, bounded, with secrets taken out."""
    from ..collect.incident import texts

    members, _ = texts(ws, report, cleaning)
    return {name.removeprefix("files/"): data for name, data in members.items()}


def _say(place: Place, report: Report, kept: Correction) -> None:
    from datetime import UTC, datetime

    from ..history import corrections
    from ..history.database import reading
    from ..history.shift import FEWEST, Kind, shifts
    from ..sanitize import one_line
    from .streams import print_line

    right = kept.said == kept.truth
    print_line(one_line(f"{report.session}: {f'{kept.said} was right' if right else f'{kept.truth}, not {kept.said}'}"))
    if kept.incident:
        print_line(one_line(f"an incident of your own: doctor eval {kept.incident}"))
    else:
        print_line("the run is not here any more, so no incident was made; --run names where it is now")
    every = reading(place, corrections.everything, [], SECONDS)
    lean = shifts(every, kept.said, Kind(kept.framework, kept.error), datetime.now(UTC))
    for shift in lean:
        print_line(one_line(f"from now on: {shift.told}"))
    if not right and not lean:
        print_line(f"from {FEWEST} such corrections on, runs like this one lean towards it; evidence still decides")


def _take_back(place: Place, session: str) -> None:
    from ..history import corrections, incident
    from ..history.database import Unusable, writing
    from ..sanitize import one_line
    from .streams import print_line

    try:
        kept = writing(place, lambda base: corrections.take_back(base, session), SECONDS)
        gone = incident.drop(place, session)
    except Unusable as e:
        raise UsageError(str(e)) from None
    if kept is None and not gone:
        raise UsageError(f"nothing was said about {one_line(session)}", "`doctor history` lists what there is")
    print_line(one_line(f"taken back: {session}" + (" and its incident" if gone else "")))
