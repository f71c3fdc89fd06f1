"""What the logs say: failures as units, consequences told apart, signatures, how each log ends; and reading on."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..errors import ToolError
from ..reading.failures import failures
from ..reading.files import Line, RunFile
from ..reading.lines import strip, without_escapes
from ..reading.load_reports import load_reports
from ..reading.log_evidence import (
    ending_evidence,
    failure_evidence,
    note_evidence,
    signature_evidence,
    warning_evidence,
)
from ..reading.logpass import logpass
from ..reading.outlook import outlook
from ..reading.patterns import refusal, searcher
from ..tool import clean, finding, not_applicable, tool
from ..types import LINE_CAP, ToolResult
from ..workspace import Workspace

EMITS = (
    "sig.*",
    "error.exception",
    "error.message",
    "error.frame",
    "error.user_frame",
    "error.record_key",
    "error.library",
    "error.phase",
    "error.first",
    "error.first_unknown",
    "error.cascade",
    "error.exit_code",
    "error.signal",
    "error.native_crash",
    "error.bare_kill",
    "error.line",
    "stack.interrupted",
    "load.only_heads",
    "log.warning",
    "run.last_line",
    "run.state",
    "run.finished",
    "run.silent_end",
    "run.vanished",
    "run.restarted",
    "run.restart_stillborn",
    "run.healthy_end",
    "run.recovered",
)
MATCHES, WINDOW = 200, 240


@tool(recall=True, emits=EMITS)
def scan_logs(ws: Workspace) -> ToolResult:
    """Scan all logs for failures, known signatures and how they end

    One pass over every log and capture: tracebacks as units with the chain of exceptions and the failing frame,
    the first failure told apart from its consequences (watchdogs, launcher summaries, peers that lost a
    connection), kills and exit codes, distinct warnings, restarts, and whether the run reached its end.
    """
    found = logpass(ws)
    if not found.files:
        return not_applicable("no log, capture or other text to scan")
    wrong = failures(ws)
    evidence = [
        *failure_evidence(ws, wrong),
        *note_evidence(ws, wrong),
        *signature_evidence(ws, found, wrong),
        *load_reports(ws, found),
        *ending_evidence(ws, found, wrong),
        *warning_evidence(ws, found),
    ]
    read = sum(s.lines for s in found.files.values())
    text = outlook(found, wrong)
    if wrong.first is not None:
        return finding(
            f"first failure: {wrong.first.text[:160]} ({wrong.first.file.name}:{wrong.first.line.number})",
            evidence,
            text,
        )
    if wrong.units or wrong.notes or found.hits:
        return finding(
            f"{read} lines in {len(found.files)} files: no initiating exception, see consequences and signatures",
            evidence,
            text,
        )
    return clean(f"{read} lines in {len(found.files)} files: no failure and no known signature", evidence, text)


@tool(emits=("log.match",))
def grep_logs(
    ws: Workspace,
    pattern: Annotated[str, Field(description="what to look for, in re2 syntax (no look-around)", max_length=500)],
    file: Annotated[str, Field(description="only in files whose name contains this")] = "",
    limit: Annotated[int, Field(ge=1, le=MATCHES, description="matches to show")] = 50,
) -> ToolResult:
    """Search the run's text files for a pattern

    Use to check whether a line that would decide between two causes is there. Every file that is text is searched,
    configs and code too. Counts are exact; the first `limit` matches are shown.
    """
    search = searcher(pattern)
    if search is None:
        raise ToolError(f"grep_logs: {refusal(pattern) or 'the pattern cannot be used'}")
    files = [f for f in ws.files if f.role != "checkpoint" and file in f.name]
    evidence, shown, count = [], [], 0
    for f in files:
        for line in ws.lines(f):
            text = without_escapes(line.data).decode(errors="replace")
            if not search.search(text):
                continue
            count += 1
            if len(evidence) < limit:
                evidence.append(ws.cite(f, line, "log.match", pattern, rank=strip(text).rank or f.rank))
                shown.append(f"{f.name}:{line.number}: {text[:400]}")
    if not count:
        return clean(f"no line in {len(files)} files matches {pattern!r}")
    head = f"{count} lines match {pattern!r}" + (f", the first {len(shown)} are shown" if count > len(shown) else "")
    return finding(head, evidence, "\n".join([head, *shown]))


@tool(emits=("log.line",))
def read_lines(
    ws: Workspace,
    file: Annotated[str, Field(description="name of the file as listed by list_files")],
    start: Annotated[int, Field(ge=1, description="first line, from 1")] = 1,
    count: Annotated[int, Field(ge=1, le=WINDOW, description="how many lines")] = 60,
) -> ToolResult:
    """Read a stretch of lines of one file

    Use to see what stands around a line that another tool cites. `start` beyond the end gives the last lines.
    """
    wanted = _named(ws, file)
    lines: list[Line] = []
    last: list[Line] = []
    for line in ws.lines(wanted):
        if start <= line.number < start + count:
            lines.append(line)
        if line.number >= start + count:
            break
        last = [*last[-(count - 1) :], line] if count > 1 else [line]
    lines = lines or last
    if not lines:
        return clean(f"{file} has no lines")
    shown = "\n".join(f"{x.number}: {x.data[:LINE_CAP].decode(errors='replace')}" for x in lines)
    more = {"tool": "read_lines", "file": file, "start": lines[-1].number + 1, "count": count}
    evidence = [ws.cite(wanted, x, "log.line") for x in lines]
    return finding(f"{file}:{lines[0].number}-{lines[-1].number}", evidence, shown, more)


def _named(ws: Workspace, name: str) -> RunFile:
    for f in ws.files:
        if f.name == name:
            return f
    close = [f.name for f in ws.files if name in f.name][:5]
    raise ToolError(f"no file {name!r} in the run" + (f"; did you mean {', '.join(close)}?" if close else ""))
