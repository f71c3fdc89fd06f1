"""The run's own code: known hazards by its syntax tree, and source around a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from ...core.errors import ToolError
from ...core.types import Evidence, ToolResult
from ...reading.code.project import Project, code_project, hazards
from ...reading.logs.failures import failures
from ...reading.run.files import RunFile
from ...reading.run.workspace import Workspace
from ..tool import clean, few, finding, not_applicable, tool

EACH = 4  # lines shown of one hazard
LINES = 80  # of `read_source`


@tool(emits=("code.*",), recall=True)
def find_hazards(ws: Workspace) -> ToolResult:
    """Find known training hazards in the run's own Python code by its syntax tree.

    Use when the code of the run is at hand: masks that one path forgets, collectives only some ranks reach, a fixed
    device in code that runs once per GPU, checkpoints without the scheduler, losses kept with their graph, weights
    loaded after an adapter was unmerged, generic stop strings, worker processes forked over native thread pools and
    about forty more. Told are hazards that the run can have met: the line was reached as far as options, references
    and prints tell, and what it needs (several processes, a GPU, a state that was taken up) was so. Excerpts are read
    as far as they parse. A hazard is not yet a cause.
    """
    project, left = code_project(ws)
    if not project.codes:
        return not_applicable("no Python code among the run's files")
    evidence = [
        ws.cite(code.file, code.lines[hazard.line - 1], f"code.{hazard.name}", hazard.value)
        for code, hazard in few(hazards(project), EACH, lambda x: (x[0].file.name, x[1].name))
    ]
    evidence += _failing(ws, project)
    unparsed = sum(c.syntax.unparsed for c in project.codes)
    read = f"{len(project.codes)} code files read" + (f", {left} left out" if left else "")
    read += f", {unparsed} lines not understood" if unparsed else ""
    if not evidence:
        return clean(f"{read}, no known hazard")
    kinds = sorted({e.key.removeprefix("code.") for e in evidence})
    text = "\n".join(f"{e.file}:{e.line} {e.key} {e.value}: {e.text.strip()}" for e in evidence)
    return finding(f"{read}: {', '.join(kinds)}", evidence, text)


def _failing(ws: Workspace, project: Project) -> Iterator[Evidence]:
    """Lines of the code at hand that a traceback of the logs names, where both still agree."""
    seen: set[tuple[str, int]] = set()
    for unit in failures(ws).units[:50]:
        for frame in unit.frames:
            for code in project.codes:
                same = code.file.name.rsplit("/", 1)[-1] == frame.path.replace("\\", "/").rsplit("/", 1)[-1]
                if not same or not frame.code or not 1 <= frame.number <= len(code.lines):
                    continue
                line = code.lines[frame.number - 1]
                if line.text.strip().startswith(frame.code.strip()[:60]) and (code.file.name, frame.number) not in seen:
                    seen.add((code.file.name, frame.number))
                    yield ws.cite(code.file, line, "code.failing_line", frame.function)


@tool(emits=("code.line",))
def read_source(
    ws: Workspace,
    file: Annotated[str, Field(description="name of a code file of the run, or the end of it")],
    start: Annotated[int, Field(description="first line, from 1", ge=1)] = 1,
    lines: Annotated[int, Field(description="how many lines", ge=1, le=LINES)] = LINES,
) -> ToolResult:
    """Read lines of a code file of the run.

    Use to look at the code around a frame of a traceback or around a hazard. Paths printed in tracebacks are matched
    by their end.
    """
    found = _matching(ws, file)
    read = list(ws.lines(found))
    part = read[start - 1 : start - 1 + lines]
    if not part:
        raise ToolError(f"read_source: {found.name} has {len(read)} lines")
    evidence = [ws.cite(found, line, "code.line", line.text.strip()) for line in part if line.data.strip()]
    text = "\n".join(f"{line.number:>5}  {line.text}" for line in part)
    rest = len(read) - (start - 1 + len(part))
    more = {"tool": "read_source", "file": found.name, "start": start + len(part)} if rest > 0 else None
    return finding(f"{found.name}:{start}-{start - 1 + len(part)} of {len(read)} lines", evidence, text, more)


def _matching(ws: Workspace, name: str) -> RunFile:
    """The file of that name; else the one that shares most of the path's end."""
    wanted = name.replace("\\", "/").split("/")
    best: tuple[int, RunFile] | None = None
    for file in ws.everything:
        if file.name == name:
            return file
        common = 0
        for mine, theirs in zip(reversed(file.name.split("/")), reversed(wanted), strict=False):
            if mine != theirs:
                break
            common += 1
        if common and (best is None or common > best[0]):
            best = (common, file)
    if best is None:
        raise ToolError(f"read_source: no file {name!r} in the run")
    return best[1]
