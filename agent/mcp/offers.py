"""What is offered to a client: every tool of risk `read`, search over what is known, and whole diagnoses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ..calls import guarded
from ..errors import ToolError, UsageError
from ..nearby import nearby
from ..report import Report
from ..tool import Tool, all_tools
from ..types import Risk, ToolResult
from ..workspace import Workspace
from .diagnosing import DIAGNOSE, DiagnoseArguments, diagnose
from .offer import Answer, Offer, Tell, named_run, valid, with_run
from .outgoing import Outgoing
from .runs import Runs

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
    from ...index import search as searching

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
