"""What the program that ran does, statement by statement."""

from __future__ import annotations

from ...core.types import ToolResult
from ...reading.code.acts import acts
from ...reading.code.project import code_project
from ...reading.run.workspace import Workspace
from ..tool import clean, few, finding, not_applicable, tool

EACH = 3  # statements of one kind in one file
ALL = 40


@tool(emits=("code.does.*",), recall=True)
def training_acts(ws: Workspace) -> ToolResult:
    """Tell what the training program does, by its own statements, in order.

    Use to see what is there at all before asking what is wrong: which lines make the optimizer and the schedule, work
    out and print the loss, bound and clear gradients, divide and serve the data, switch to evaluation, save and take
    up states, seed, wrap and freeze. Only of programs that are known to have run, and lines that they can have reached.
    """
    printed = {name: ws.ran.printed(p) for p in ws.ran.programs for name in p.reached}
    if not printed:
        return not_applicable("no program is known to have run")
    project, _ = code_project(ws)
    found = list(few(acts(project, printed), EACH, lambda x: (x[0].file.name, x[1].name)))[:ALL]
    evidence = [ws.cite(c.file, c.lines[a.line - 1], f"code.does.{a.name}", a.text) for c, a in found]
    if not evidence:
        return clean("the program that ran makes none of the calls of a training")
    text = "\n".join(f"{c.file.name}:{a.line} {a.says}: {a.text}" for c, a in found)
    return finding(f"{len(evidence)} statements: {', '.join(sorted({a.name for _, a in found}))}", evidence, text)
