"""What the run is known to have had none of."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...core.types import Evidence, ToolResult
from ...reading.code.circumstances import Circumstances
from ...reading.code.project import code_project
from ...reading.run.workspace import Workspace
from ..tool import clean, finding, not_applicable, tool

# Words without which a program has no such part; looked for in its code, its settings and its logs.
_PARTS = {
    "experts": (r"(?i)\bmoe|mixture.of.experts|num_experts|\bexperts?\b|router", "no word of experts or a router"),
    "policy": (r"(?i)reward|rollout|\bpolic(?:y|ies)\b|\b[a-z]*po\b|\brl(?:hf)?\b|actor|episode", "no policy"),
    "engine": (r"(?i)vllm|sglang|engine|tensorrt|\btgi\b|rollout|inference.server", "no word of an inference engine"),
}  # fmt: skip


@tool(emits=("run.lacks",), recall=True)
def presupposed(ws: Workspace) -> ToolResult:
    """Tell what the run is known to have had none of: a GPU, other processes, a resume, experts, a policy, an engine.

    Use to take causes out of question that presuppose such a thing. Only of programs that are at hand as a whole and
    are known to have run; where nothing tells, nothing is said.
    """
    if not ws.ran.programs:
        return not_applicable("no program is known to have run")
    project, left = code_project(ws)
    known = {c.file.name for c in project.codes if not c.syntax.unparsed}
    if left or not all(set(p.reached) <= known for p in ws.ran.programs):
        return not_applicable("what ran is not at hand as a whole")
    found = dict(_lacking(ws, project.run))
    sources = [c.source for c in project.codes if any(c.file.name in p.reached for p in ws.ran.programs)]
    texts = [
        ws.question,
        *sources,
        *(ws.text(f, 1 << 18) for f in ws.by_role("log", "config", "capture", "environment")),
    ]
    found |= {name: why for name, (words, why) in _PARTS.items() if not any(map(re.compile(words).search, texts))}
    if not found:
        return clean("nothing that a cause presupposes is known to be lacking")
    searched = sorted(name for p in ws.ran.programs for name in (*p.reached, *p.logs))[:20]
    text = "\n".join(f"no {name}: {why}" for name, why in found.items())
    evidence = [
        Evidence(key="run.lacks", value=n, kind="absent", text=why, searched=searched) for n, why in found.items()
    ]
    return finding(f"the run had no {', no '.join(found)}", evidence, text)


def _lacking(ws: Workspace, run: Circumstances) -> Iterator[tuple[str, str]]:
    if run.on_cpu:
        yield "gpu", "it ran on the CPU, by its own words or as its code knows no other device"
    if not run.several and ws.by_role("log"):
        yield "peers", "nothing in its commands, its code or its logs makes it more than one process"
    if not run.resumes and not run.loads:
        yield "resume", "it went on from no earlier attempt of its own"
