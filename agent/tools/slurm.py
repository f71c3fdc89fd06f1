"""The scheduler's side of a job: how it ended, what it used, what is wrong with its nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from ..errors import ToolError
from ..reading.anchor_lines import anchored
from ..reading.anchor_windows import excerpt
from ..reading.command_output import output_lines
from ..reading.files import RunFile
from ..reading.processes import processes
from ..reading.slurm_accounts import Row, json_rows, rows
from ..reading.slurm_verdicts import FAULTS, Verdict, verdicts
from ..shell import Completed
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

FIELDS = "JobID,JobName,User,State,ExitCode,DerivedExitCode,Elapsed,Timelimit,MaxRSS,ReqMem,NodeList,Reason,Start,End"
SECONDS, JOBS, EACH = 15.0, 2, 12
JSON_LIMIT = 4 << 20
_NAME = re.compile(r"(?:^|/)slurm-(\d{1,10})(?:_\d+)?\.(?:out|err|log)$")
_ID = re.compile(r"\d{1,10}(?:_\d{1,6}|_\[[\d,%-]{1,80}\]|\+\d{1,6})?")
_LINE = re.compile(r"\*\*\* (?:JOB|STEP) (\d{1,10})|\bStepId=(\d{1,10})\b|\bSLURM_JOB_?ID\W{1,3}(\d{1,10})\b")
_NODES = re.compile(r"[\w.,\[\]-]{1,400}")


@tool(
    emits=(
        "slurm.state", "slurm.exit", "slurm.signal", "slurm.failed", "slurm.out_of_memory", "slurm.time_limit",
        "slurm.node_fail", "slurm.preempted", "slurm.cancelled_by", "slurm.time_share", "slurm.max_rss_bytes",
        "slurm.memory_share", "slurm.memory_near_limit", "slurm.requeued", "slurm.pending", "slurm.node_state",
        "slurm.node_reason",
    ),
    recall=True,
    live=True,
)  # fmt: skip
def slurm_job(
    ws: Workspace, job: Annotated[str, Field(description="job id; else the one named by the run's files")] = ""
) -> ToolResult:
    """How Slurm says a job ended: state, exit code and signal, memory and time against what was asked, node reasons.

    Use when a job was killed, cancelled, preempted, requeued or ran into its time limit, or when a node is suspected.
    Asks sacct and scontrol where the run is this machine's own; reads their recorded output (text, -P, --json) too.
    """
    if job and not _ID.fullmatch(job):
        raise ToolError(f"{job!r} is no Slurm job id", "name a number, such as 4711, 4711_3 or 4711+1")
    ids = [job.partition("_[")[0]] if job else _ids(ws)  # tasks that still wait have no rows of their own
    evidence = [e for file in anchored(ws).files("slurm") for e in _recorded(ws, file, ids)]
    why = ""
    if ws.live:
        here, why = _asked(ws, ids) if ids else ([], "no Slurm job id is known: name one")
        evidence += here
    evidence = list({(e.key, str(e.value), e.file, e.line, e.text): e for e in evidence}.values())
    if not evidence:
        if why and "not installed" not in why and "is known" not in why:
            return failed(why)
        return not_applicable(why or "no output of sacct or scontrol among the run's files")
    text = "\n".join(f"{f'{e.file}:{e.line or e.member}' if e.file else 'slurm'} {e.key} = {e.value}" for e in evidence)
    faults = [e for e in evidence if e.key.split(".")[1] in FAULTS]
    if not faults:
        states = sorted({str(e.value) for e in evidence if e.key == "slurm.state"})
        return clean(f"Slurm reports no failure ({', '.join(states)})", evidence, text)
    kinds = list(dict.fromkeys(e.key.split(".")[1].replace("_", " ") for e in faults))
    return finding(f"{', '.join(kinds[:5])}: {str(faults[0].value)[:100]}", evidence, text)


def _recorded(ws: Workspace, file: RunFile, ids: list[str]) -> Iterator[Evidence]:
    """Of a list that also holds jobs of others only the run's own, where its files name them."""
    if file.path.suffix.lower() == ".json":
        found = json_rows(ws.text(file, JSON_LIMIT))
    else:
        found = list(rows(excerpt(ws, file, "slurm")))
    own = [r for r in found if r.kind == "node" or r.job in ids or r.id.partition(".")[0] in ids]
    if any(r.kind == "job" for r in own):
        found = own
    for v in _few(verdicts(found)):
        if v.line is None:
            text = f"{v.row.id}: {', '.join(f'{k}={x}' for k, x in v.row.fields.items() if x)}"
            yield ws.binary(file, v.row.member, f"slurm.{v.key}", v.value, text)
        else:
            yield ws.cite(file, v.line, f"slurm.{v.key}", v.value)


def _few(found: Iterator[Verdict]) -> Iterator[Verdict]:
    shown: dict[str, int] = {}
    for v in found:
        shown[v.key] = shown.get(v.key, 0) + 1
        if shown[v.key] <= EACH:
            yield v


def _ids(ws: Workspace) -> list[str]:
    """Jobs that the run's file names and Slurm's own lines name, the newest first."""
    found = [m[1] for f in ws.files if not f.good and (m := _NAME.search(f.name))]
    seen = processes(ws) if ws.live and ws.pids else None
    named = [p.variables.get("SLURM_JOB_ID", "") for p in (seen.of(ws.pids) if seen else ())]
    found += [job for job in named if job.isdigit()]
    for hit in anchored(ws).of("host"):
        found += [g for m in _LINE.finditer(hit.text[:2000]) for g in m.groups() if g]
    return sorted(set(found), key=int, reverse=True)[:JOBS]


def _asked(ws: Workspace, ids: list[str]) -> tuple[list[Evidence], str]:
    done = ws.shell(["sacct", "-P", "-D", "-j", ",".join(ids), "-o", FIELDS], SECONDS)
    if done.code != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        return [], f"sacct: {said[-1].removeprefix('sacct: ')}" if said else "sacct gave no answer"
    accounts = [r for r in rows(output_lines(done.stdout)) if r.job in ids or r.id.partition(".")[0] in ids]
    if not accounts:
        return [], f"sacct knows no job {', '.join(ids)}"
    evidence = list(_answered(ws, done, accounts))
    more = ws.shell(["scontrol", "show", "job", ids[0]], SECONDS)  # known for some minutes after the end only
    if more.code == 0:
        shown = [v for v in verdicts(list(rows(output_lines(more.stdout)))) if v.key in {"requeued", "pending"}]
        evidence += [_evidence(ws, more, v) for v in shown]
    for nodes in _nodes(accounts):
        node = ws.shell(["scontrol", "show", "node", nodes], SECONDS)
        if node.code == 0:
            evidence += _answered(ws, node, list(rows(output_lines(node.stdout))))
    return evidence, ""


def _nodes(accounts: list[Row]) -> list[str]:
    """Node lists of the jobs that did not end well."""
    bad = [r for r in accounts if not r.is_step and r.get("state") not in {"COMPLETED", "RUNNING"}]
    return [n for n in dict.fromkeys(r.get("nodelist") for r in bad) if _NODES.fullmatch(n)][:JOBS]


def _answered(ws: Workspace, done: Completed, found: list[Row]) -> Iterator[Evidence]:
    for v in _few(verdicts(found)):
        yield _evidence(ws, done, v)


def _evidence(ws: Workspace, done: Completed, v: Verdict) -> Evidence:
    return ws.answered(done, f"slurm.{v.key}", v.value, v.line.text if v.line else "")
