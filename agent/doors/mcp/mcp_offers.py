"""What is offered to a client: every tool of risk `read`, search over what is known, and whole diagnoses."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...core.errors import ToolError, UsageError
from ...core.report import Report
from ...core.types import Risk, ToolResult
from ...reading.run.workspace import Workspace
from ...reading.scan.windows import nearby
from ...tools.tool import Tool, all_tools, guarded
from .mcp_outgoing import Outgoing, Runs

# ----------
# What a client sees of a tool and gets from it; how its raw arguments are read.


Tell = Callable[[int, str], None]  # checks done so far, and what goes on now


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: a text, for a diagnosis its report as data too. A failure is one line."""

    text: str
    structured: dict[str, Any] | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as the client sees it. `call` takes the client's raw arguments and may raise DoctorError or ToolError."""

    name: str
    title: str
    description: str
    schema: dict[str, Any]
    call: Callable[[dict[str, Any], Tell], Answer]
    output: dict[str, Any] | None = None


def with_run(schema: dict[str, Any], runs: Runs) -> dict[str, Any]:
    """A tool's own schema and the run it shall look at."""
    schema = copy.deepcopy(schema)
    told: dict[str, Any] = {"type": "string", "title": "Run"}
    if runs.roots:
        told |= {"default": "", "description": "a folder or file inside what the user named; empty: all of that"}
    else:
        told |= {"description": "absolute path of the run's folder or file; empty where no run is concerned"}
        schema["required"] = [*schema.get("required", []), "run"]
    schema["properties"] = {**schema.get("properties", {}), "run": told}
    return schema


def named_run(given: dict[str, Any], runs: Runs) -> tuple[str, dict[str, Any]]:
    """The client's `run` and its other arguments.

    Raises:
        ToolError: it is missing where it is needed, or no text.
    """
    rest = {name: value for name, value in given.items() if name != "run"}
    run = given.get("run", "" if runs.roots else None)
    if run is None:
        raise ToolError("argument 'run': name the folder or file of the run; empty where no run is concerned")
    if not isinstance(run, str):
        raise ToolError("argument 'run': must be text")
    return run, rest


def valid(model: type, given: dict[str, Any]) -> Any:
    """The arguments of a call, checked.

    Raises:
        ToolError: they do not fit; one line.
    """
    try:
        return model(**given)
    except ValidationError as e:
        first = e.errors()[0]
        raise ToolError(f"argument {'.'.join(map(str, first['loc']))!r}: {first['msg']}") from None


# ----------
# What a client may read by address: playbooks and finished reports.

TEMPLATES = (
    ("playbook://{slug}", "Playbook", "How one failure is recognised, told apart, repaired and prevented"),
    ("report://{session}", "Report", "A finished diagnosis as JSON, whole"),
)
SHOWN = 20  # reports that are listed


@dataclass(frozen=True, slots=True)
class Listed:
    """A report that may be read."""

    uri: str
    title: str


def listed(runs: Runs, out: Outgoing) -> list[Listed]:
    """The latest reports on runs that the client may look at."""
    from ...session.store import reports, usable_state

    found = []
    for entry in reports(usable_state()[0]):
        try:
            kept_report(entry.id, runs)
        except UsageError:  # not for this client, gone since, or of another version
            continue
        title = f"{entry.cause or 'answer'} ({entry.status}): {entry.question[:120]}"
        found.append(Listed(f"report://{entry.id}", out.line(title)))
        if len(found) == SHOWN:
            break
    return found


def read(uri: str, runs: Runs, out: Outgoing) -> tuple[str, str]:
    """MIME type and text of a resource.

    Raises:
        UsageError: there is none at this address.
    """
    if m := re.fullmatch(r"report://([\w-]{1,80})", uri):
        return "application/json", _report(m[1], runs, out)
    if m := re.fullmatch(r"playbook://([\w.-]+(?:/[\w.-]+)?)", uri):
        return "text/markdown", _playbook(m[1], out)
    raise UsageError(f"no resource at {uri}", "addresses are report://SESSION and playbook://FAMILY/NAME")


def kept_report(session: str, runs: Runs) -> Report:
    """The report of a session that this client may see.

    Raises:
        UsageError: there is none.
    """
    from ...session.store import load_report, session_roots, usable_state

    state = usable_state()[0]
    report = load_report(state, session)
    if runs.roots and not runs.may_show(root for roots in session_roots(state, session) for root in roots):
        raise UsageError(f"no session {session!r}", "it is of a run outside the folders this server was started for")
    return report


def _report(session: str, runs: Runs, out: Outgoing) -> str:
    import json

    report = kept_report(session, runs)
    return json.dumps(out.data(report.model_dump(by_alias=True, mode="json")), ensure_ascii=False, indent=1)


def _playbook(slug: str, out: Outgoing) -> str:
    from ...core.playbook import playbooks

    path = next((p.path for p in playbooks() if slug in (p.slug, p.cause)), None)
    if path is None:
        raise UsageError(f"no playbook {slug!r}", "`search` finds them")
    return out.data(Path(path).read_text(encoding="utf-8"))


# ----------
# A whole diagnosis for a client: progress while it runs, the report as data and as text.

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
    from ...core.events import CallStarted, ReportReady, ToolFinished
    from ...session import session as sessions

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
    from ...session.store import session_roots, usable_state
    from ...verdict.intent import intent_of

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
    from ...telling.render import as_plain

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


# ----------

SECONDS = 120.0  # deadline of one call of a tool
INSIDE = frozenset({"file", "path", "before", "after", "against", "config"})  # arguments that name what a run holds
ANYWHERE = frozenset({"environment"})  # those that a tool looks up on the machine


class SearchArguments(BaseModel):
    """What `search` takes."""

    model_config = ConfigDict(extra="forbid")
    query: Annotated[str, Field(description="what to look for, in your own words", min_length=2, max_length=800)]
    limit: Annotated[int, Field(description="how many passages at most", ge=1, le=10)] = 5


def offers(runs: Runs, out: Outgoing, only: Sequence[str] = ()) -> dict[str, Offer]:
    """Everything that is offered, by name; `diagnose` first, as clients show lists in order.

    Args:
        only: names of the tools to offer beside search and diagnose; empty: all of risk `read`.

    Raises:
        UsageError: there is no such tool, or it does more than read.
    """
    reading = {name: tool for name, tool in all_tools().items() if tool.risk is Risk.READ}
    if unknown := [name for name in only if name not in reading]:
        raise UsageError(f"no tool {unknown[0]!r} that only reads", "`doctor tool` lists the diagnostics")
    known = [
        Offer(
            "diagnose", "Diagnose a run", DIAGNOSE, with_run(DiagnoseArguments.model_json_schema(), runs),
            partial(diagnose, runs, out), Report.model_json_schema(mode="serialization", by_alias=True),
        ),
        Offer("search", "Search what is known", SEARCH, SearchArguments.model_json_schema(), partial(_search, out)),
    ]  # fmt: skip
    for tool in reading.values():
        if not only or tool.name in only:
            schema = with_run(tool.schema()["parameters"], runs)
            call = partial(_run_tool, tool, runs, out)
            known.append(Offer(tool.name, tool.title, tool.description, schema, call))
    return {offer.name: offer for offer in known}


SEARCH = """Search playbooks of training failures and the user's own documents, by words and by meaning.

Use to read how a failure is recognised, told from its neighbours, repaired and prevented. Answers with passages and
where they stand; says so when nothing bears on the query."""


def _run_tool(tool: Tool, runs: Runs, out: Outgoing, given: dict[str, Any], tell: Tell) -> Answer:
    run, args = named_run(given, runs)
    for name in args.keys() - tool.arguments.model_fields.keys():
        raise ToolError(f"argument {name!r}: {tool.name} takes {', '.join([*tool.arguments.model_fields, 'run'])}")
    for name in ANYWHERE & args.keys():
        if isinstance(args[name], str) and args[name] and runs.leads_out(args[name]):
            raise ToolError(f"argument {name!r}: nothing outside the folders this server was started for is read")
    ws = runs.workspace(run, live=tool.live)
    if tool.live and ws.files and ws.live:
        ws = runs.workspace(run, fresh=True)  # what the machine says now, not what it said an hour ago
    tell(0, tool.name)
    result, _ = guarded(tool, ws, _relative(args, ws), SECONDS)
    if result.outcome == "failed":
        return Answer(out.line(result.summary), failed=True)
    for around in nearby(ws, result.evidence):
        out.learn(around)
    outcome = result.outcome.replace("_", " ")
    return Answer(f"{tool.name}: {outcome}\n" + out.text(_body(result), tool.name, _how_on(result)))


def _relative(args: dict[str, Any], ws: Workspace) -> dict[str, Any]:
    """Arguments with a full path into the run replaced by the name that tools know it by."""
    many = len(ws.roots) + len(ws.good) > 1
    found = dict(args)
    for name in INSIDE & args.keys():
        for number, root in enumerate([*ws.roots, *ws.good], 1):
            path = Path(str(args[name]))
            if path.is_absolute() and path.is_relative_to(root):
                inner = path.name if path == root else path.relative_to(root).as_posix()
                found[name] = f"r{number}/{inner}" if many else inner
    return found


def _body(result: ToolResult) -> str:
    """Summary, text, and the evidence that the text does not show, one line each."""
    lines = [result.summary] if result.text.splitlines()[:1] != [result.summary] else []
    lines.append(result.text)
    for e in result.evidence:
        where = f"{e.file}:{e.line}" if e.file and e.line else e.file or " ".join(e.argv or ())
        if e.kind == "line" and where and where in result.text:
            continue
        lines.append(f"{e.key} = {e.value!r}  ({'not there' if e.kind == 'absent' else where})")
    return "\n".join(lines)


def _how_on(result: ToolResult) -> str:
    """How the tool itself says that what it cut can be read."""
    more = dict(result.more or {})
    tool = more.pop("tool", None)
    return f"go on with {tool}({', '.join(f'{k}={v!r}' for k, v in more.items())})" if tool else ""


def _search(out: Outgoing, given: dict[str, Any], tell: Tell) -> Answer:
    from ....index import search as searching

    asked = valid(SearchArguments, given)
    tell(0, "searching")
    found = searching.search(asked.query, k=asked.limit)
    told = f" ({out.line(found.degraded)})" if found.degraded else ""
    if not found:
        return Answer(f"search: nothing that is known bears on that{told}")
    passages = []
    for r in found:
        name = Path(r.document).name if r.kind == "document" else f"playbook {r.document}"
        cause = f" (cause {r.cause})" if r.cause else ""
        passages.append(f"[{' > '.join([name, *r.headings])}]{cause}\n{r.text}")
    return Answer(f"search: {len(found)} passages{told}\n" + out.text("\n\n".join(passages), "playbooks and documents"))
