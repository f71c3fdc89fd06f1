"""Stacks: where every thread stands, and which rank stands elsewhere than the rest; recorded, or dumped now."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import Annotated

from pydantic import Field

from ..reading import live_dumps
from ..reading import stack_dumps as sd
from ..reading.anchor_lines import anchored
from ..reading.anchor_windows import excerpt
from ..reading.files import Line, RunFile
from ..reading.processes import processes
from ..reading.stack_groups import EMITS, LOCKING, Place, analysed, at_lock, groups, place, told
from ..reading.stack_places import user_frame
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, Risk, ToolResult
from ..workspace import Workspace

STATES_SHOWN = 12


@tool(emits=EMITS, recall=True)
def stacks(ws: Workspace) -> ToolResult:
    """Read recorded stack dumps (py-spy, faulthandler, gdb, lldb, pystack, probing, crash handlers).

    Use for hangs and native crashes: says what every dumped thread stands in (a collective, the data loader,
    a lock, input or output, a checkpoint, compilation), merges equal stacks over ranks, says which library the
    innermost frames belong to, whether all workers stand in the same call, and which rank stands elsewhere than
    the others.
    """
    places = [p for f in anchored(ws).files("stack") for p in _places(ws, f)]
    if not places:
        return not_applicable("no stack dump among the run's files")
    waiting = [(p, e) for p in told(places) if (e := _lock_line(ws, p))]
    locked = {id(p) for p, _ in waiting}
    places = [at_lock(p) if id(p) in locked else p for p in places]
    evidence = [*analysed(places), *(e for _, e in waiting[:4])]
    if not evidence:
        return clean(f"{len(places)} stacks, none in a telling place")
    return finding(_summary(places), evidence, _text(places))


@tool(
    emits=(*EMITS, "stack.progress", "stack.process_state"),
    risk=Risk.PROBE,
    recall=True,  # where processes are named and probing them is allowed
    live=True,
)
def dump_stacks(
    ws: Workspace,
    seconds: Annotated[float, Field(description="time between the two looks at each process", ge=0, le=60)] = 1.0,
) -> ToolResult:
    """Dump the stacks of running processes with py-spy, twice, and hold the ranks against each other.

    Use for a job that hangs or crawls on this machine: the processes named by pid (a launcher stands for its
    ranks), or every rank found here. Says who stands where, who is the odd one out, which workers are stuck in
    the same call or wait for a lock that a fork left locked, which children are dead or stopped, and whether the
    ranks move at all. The processes are read without being stopped.
    """
    if not ws.live:
        return not_applicable("not asked to look at this machine's processes (name them with --pid)")
    seen = processes(ws)
    if seen is None:
        return failed("this machine's processes could not be listed (no /proc, or no answer)")
    found = live_dumps.targets(ws, seen)
    if not found:
        return not_applicable(_nobody(ws, len(seen.ranks())))
    after = live_dumps.dumped(ws, found, seen, seconds)
    places = [p for t in found for p in t.places]
    kernel = live_dumps.states(ws, found, after)
    trouble = list(dict.fromkeys(t.trouble for t in found if t.trouble))
    if not places:
        return ToolResult("failed", "; ".join(trouble[:3]), kernel, "\n".join(trouble[:20]))
    moves = [e for t in found if (e := _progress(ws, t))]
    text = "\n".join([_text(places), *(_line(t) for t in found[:40]), *trouble[:10]])
    if not kernel and not trouble and all(t.progress == "moving" for t in found):
        return clean(f"{len(found)} process(es) looked at twice, all of them moving", moves[:STATES_SHOWN], text)
    evidence = [*analysed(places, still=all(t.still for t in found)), *kernel, *moves[:STATES_SHOWN]]
    missing = f"; {len(trouble)} could not be read: {trouble[0]}" if trouble else ""
    return finding(_summary(places) + missing, evidence, text)


def _nobody(ws: Workspace, ranks: int) -> str:
    if ws.pids:
        return f"no Python process with pid {', '.join(map(str, ws.pids[:8]))} runs here"
    if ranks:
        return f"{ranks} rank(s) run on this machine, none of them in this run's folder: name them with --pid"
    return "no process here knows a rank (RANK, SLURM_PROCID): name the processes with --pid"


def _progress(ws: Workspace, t: live_dumps.Target) -> Evidence | None:
    main = next((p for p in t.places if p.stack.pid == t.process.pid and p.stack.thread == "MainThread"), None)
    if t.still is None or main is None or t.done is None:
        return None
    return ws.answered(t.done, "stack.progress", t.progress, text=main.frame.line.text, rank=t.process.rank)


def _line(t: live_dumps.Target) -> str:
    used = "" if t.cpu is None else f", {t.cpu:.0%} of a processor"
    return f"rank {t.process.rank} pid {t.process.pid}: {t.progress}{used}"


def _places(ws: Workspace, file: RunFile) -> list[Place]:
    def cite(line: Line, key: str, value: object, rank: int | None) -> Evidence:
        return ws.cite(file, line, key, value, rank=rank)

    if file.path.suffix == ".json":
        found = sd.json_stacks(ws.text(file, 8 << 20))
    else:
        found = sd.stacks(excerpt(ws, file, "stack"))
    return [p for s in found if (p := place(s, file.rank, file.name, cite))]


def _lock_line(ws: Workspace, p: Place) -> Evidence | None:
    """The line of the run's own code that a stack stands on, where it takes a lock.

    A sampler sees no frame for a lock taken in C: the thread seems to stand still in the user's code.
    """
    frame = user_frame(p.stack)
    if p.where not in ("user", "worker") or frame is None or frame is not p.frame:
        return None
    name = PurePath(frame.place).name
    for file in ws.by_role("code"):
        if PurePath(file.name).name == name:
            line = ws.memo(("line", file.name, frame.number), lambda f=file: _line_of(ws, f, frame.number))
            if line and LOCKING.search(line.text):
                return ws.cite(file, line, "stack.lock_line", line.text.strip()[:120], rank=p.rank)
    return None


def _line_of(ws: Workspace, file: RunFile, number: int) -> Line | None:
    return next((x for x in ws.lines(file) if x.number == number), None)


def _summary(places: list[Place]) -> str:
    shown = told(places)
    count = Counter(p.where for p in shown)
    return f"{len(shown)} stack(s): " + ", ".join(f"{n} in {where}" for where, n in count.most_common(5))


def _text(places: list[Place]) -> str:
    return "\n".join(g.text for g in groups(places)[:40])
