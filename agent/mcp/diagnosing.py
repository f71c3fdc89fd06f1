"""A whole diagnosis for a client: progress while it runs, the report as data and as text."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ..errors import UsageError
from ..nearby import nearby
from ..report import Report
from ..types import Risk
from ..workspace import Workspace
from .offer import Answer, Tell, named_run, valid
from .outgoing import Outgoing
from .resources import kept_report
from .runs import Runs

QUOTED = 1000  # characters of a cited line in a diagnosis; the report's own address gives all that was kept

DIAGNOSE = """Find out why a training run failed, hangs, crawls or learns nothing.

Use first. Reads the whole run (any size) and answers with the root cause, how certain it is, the lines that prove it,
what was ruled out and how to repair it. Needs no model and changes nothing. A question that concerns no run (what an
error code or a setting means) is answered from what is known."""


class DiagnoseArguments(BaseModel):
    """What `diagnose` takes, beside `run`."""

    model_config = ConfigDict(extra="forbid")
    question: Annotated[str, Field(description="what is wrong, in plain words; may be empty", max_length=4000)] = ""
    good: Annotated[str, Field(description="folder or file of a sound run to compare with")] = ""
    session: Annotated[
        str, Field(description="id of an earlier diagnosis, to ask on with its evidence", pattern=r"^[\w-]{0,80}$")
    ] = ""


def diagnose(runs: Runs, out: Outgoing, given: dict[str, Any], tell: Tell) -> Answer:
    """Diagnose a run offline, whatever model is configured: the client is the model.

    Raises:
        DoctorError: no such run or session, or nothing readable.
        ToolError: an argument does not fit.
    """
    from .. import session as sessions
    from ..events import CallStarted, ReportReady, ToolFinished

    run, rest = named_run(given, runs)
    asked = valid(DiagnoseArguments, rest)
    ws = _workspace(runs, run, asked)
    before, done, running = out.redacted, 0, []
    tell(0, "reading")
    for event in sessions.diagnose(ws, asked.question, session=asked.session or None, allow=Risk.READ):
        match event:
            case CallStarted(call):
                running.append(call.tool)
            case ToolFinished(call, _, _):
                done += 1
                running.remove(call.tool)
                tell(done, f"{call.tool} done" + (f", {', '.join(running[:3])} at work" if running else ""))
            case ReportReady(report):
                for around in nearby(ws, report.evidence):
                    out.learn(around)
                return _shown(report, out, before)
            case _:
                pass
    raise RuntimeError("the diagnosis ended without a report")


def _workspace(runs: Runs, run: str, asked: DiagnoseArguments) -> Workspace:
    from ..intent import intent_of
    from ..store import session_roots, usable_state

    good = asked.good
    if asked.session:
        kept_report(asked.session, runs)  # or it is none of this client's
        own, sound = session_roots(usable_state()[0], asked.session, by="`run`")
        run = run or (str(own[0]) if len(own) == 1 else "")
        good = good or (str(sound[0]) if len(sound) == 1 else "")
    if not run and not runs.roots and intent_of(asked.question) is None:
        raise UsageError("no run is named", "give its folder in `run`")
    return runs.workspace(run, good, question=asked.question)


def _shown(report: Report, out: Outgoing, before: int) -> Answer:
    """A report as it leaves: as data, and as text with the verdict first.

    Args:
        before: secrets taken out before this answer, so that the report counts its own.
    """
    from ..render import as_plain

    data = out.data(report.model_dump(by_alias=True, mode="json"))
    data["meta"]["redacted"] = out.redacted - before
    for e in data["evidence"]:
        if len(e["text"]) > QUOTED:
            e["text"], e["cut"] = e["text"][:QUOTED], True
    clean = Report.model_validate(data)
    cause = clean.root_cause
    verdict = f"{cause.id or 'answer'} ({clean.status}, {cause.confidence:.2f}), session {clean.session}"
    text = out.text(as_plain(clean), "report of doctor, which quotes the run", f"whole: report://{clean.session}")
    return Answer(f"diagnose: {verdict}\n{text}", structured=data)
