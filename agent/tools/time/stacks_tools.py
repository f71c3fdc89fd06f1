"""Stacks: where every thread stands, and which rank stands elsewhere than the rest; recorded, or dumped now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import Annotated

from pydantic import Field

from ...core.shell import Completed
from ...core.types import Evidence, Risk, ToolResult
from ...reading.machine.job_processes import Process, processes
from ...reading.run.files import Line, RunFile
from ...reading.run.workspace import Workspace
from ...reading.scan.anchors import anchored, excerpt
from ...reading.stacks import live_dumps, probing
from ...reading.stacks import stack_dumps as sd
from ...reading.stacks.probing import number
from ...reading.stacks.stack_groups import EMITS, LOCKING, Place, analysed, at_lock, groups, place, told, user_frame
from ...reading.stacks.stack_groups import EMITS as STACK_KEYS
from ..rehearsal import rehearses, would_run
from ..tool import clean, failed, finding, not_applicable, tool

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
    locks = {id(p): line for p in told(places) if (line := _lock_line(ws, p))}
    places = [at_lock(p) if id(p) in locks else p for p in places]
    evidence = analysed(places)
    if not evidence:
        return clean(f"{len(places)} stacks, none in a telling place")
    return finding(_summary(places), evidence, "\n".join([_text(places), *dict.fromkeys(locks.values())]))


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


def _lock_line(ws: Workspace, p: Place) -> str:
    """The line of the run's own code that a stack stands on, where it takes a lock; empty where it takes none.

    A sampler sees no frame for a lock taken in C: the thread seems to stand still in the user's code.
    """
    frame = user_frame(p.stack)
    if p.where not in ("user", "worker") or frame is None or frame is not p.frame:
        return ""
    name = PurePath(frame.place).name
    for file in ws.by_role("code"):
        if PurePath(file.name).name == name:
            line = ws.memo(("line", file.name, frame.number), lambda f=file: _line_of(ws, f, frame.number))
            if line and LOCKING.search(line.text):
                return f"{file.name}:{line.number} takes a lock: {line.text.strip()[:120]}"
    return ""


def _line_of(ws: Workspace, file: RunFile, number: int) -> Line | None:
    return next((x for x in ws.lines(file) if x.number == number), None)


def _summary(places: list[Place]) -> str:
    shown = told(places)
    count = Counter(p.where for p in shown)
    return f"{len(shown)} stack(s): " + ", ".join(f"{n} in {where}" for where, n in count.most_common(5))


def _text(places: list[Place]) -> str:
    return "\n".join(g.text for g in groups(places)[:40])


# ----------
# Questions to processes that were started with probing: stacks, timings of modules, memory; code only when asked.

MOST, ROWS, SHOWN = 16, 40, 8
MODULES = (
    "select module, stage, count(*) as n, sum(cast(duration as double)) as seconds from python.torch_trace "
    "where stage like 'post%' group by module, stage order by seconds desc limit 12"
)
MEMORY = (
    "select step, max(cast(allocated as double)) as allocated, max(cast(max_allocated as double)) as peak, "
    "max(cast(cached as double)) as cached from python.torch_trace group by step order by step desc limit 40"
)


@tool(
    emits=(*STACK_KEYS, "live.row"),
    risk=Risk.PROBE,
    live=True,
)
def live_query(
    ws: Workspace,
    sql: Annotated[str, Field(description="one select over its tables, e.g. python.torch_trace; empty: overview")] = "",
) -> ToolResult:
    """Ask processes that were started with probing for their stacks, module timings and memory.

    Use on a running job started with PROBING=1: without a query an overview (the stack of each rank held against
    the others, the modules that take longest, memory by step and its growth); with one the rows it gives. Tables:
    python.torch_trace(step, seq, module, stage, allocated, max_allocated, cached, duration), python.trace_event,
    python.variables, cluster.nodes, rdma.io, information_schema.tables. The environment of the process is not
    read.
    """
    if not ws.live:
        return not_applicable("not asked to look at this machine's processes (name them with --pid)")
    if sql and (why := probing.refusal(sql)):
        return failed(f"query not sent: {why}")
    seen = processes(ws)
    found = probing.listening(seen, ws)[:MOST] if seen else []
    if not found:
        return not_applicable(
            f"no process here was started with probing: start the job with `{probing.START} torchrun ...`"
        )
    return _rows(ws, found, sql) if sql else _overview(ws, found)


@tool(emits=("live.value",), risk=Risk.COSTLY, live=True)
def live_eval(
    ws: Workspace,
    expression: Annotated[str, Field(description="Python expression evaluated inside the training process")],
) -> ToolResult:
    """Evaluate one Python expression inside a running process that was started with probing.

    Use only when the user asked for it: this runs code in the training process. The answer is the value's repr.
    """
    if not ws.live:
        return not_applicable("not asked to look at this machine's processes (name them with --pid)")
    seen = processes(ws)
    found = probing.listening(seen, ws)[:MOST] if seen else []
    if not found:
        return not_applicable("no process here was started with probing")
    if rehearses(ws):  # the answer comes by way of a file, and a rehearsal writes none
        code = f"open('{{answer}}', 'w').write(repr(eval({expression!r}))[:65536])"
        for p in found:
            would_run(ws, ["probing", "-t", str(p.pid), "eval", code], probing.SECONDS)
        return not_applicable("not run")
    evidence, trouble = [], []
    for p in found:
        answer = probing.evaluate(ws, p.pid, expression)
        if answer.trouble:
            trouble.append(answer.trouble)
        else:
            evidence.append(
                ws.answered(answer.done, "live.value", answer.text[:4000], text=answer.text[:4000], rank=p.rank)
            )
    if not evidence:
        return failed("; ".join(trouble[:3]))
    text = "\n".join(f"rank {e.rank}: {e.value}" for e in evidence)
    return finding(f"{len(evidence)} answer(s): {str(evidence[0].value)[:120]}", evidence, text)


def _overview(ws: Workspace, found: list[Process]) -> ToolResult:
    places: list[Place] = []
    slow: list[str] = []
    memory: list[str] = []
    trouble: list[str] = []
    deaf = 0
    for p in found:
        told = probing.backtrace(ws, p.pid)
        if told.trouble:
            trouble.append(told.trouble)
            deaf += not told.listens
            continue
        places += _places_live(ws, p, told)
        slow += _modules(ws, p)
        memory += _memory(ws, p)
    if not places and not slow and not memory:
        return not_applicable(trouble[0]) if deaf == len(found) else failed("; ".join(trouble[:3]))
    text = "\n".join([_text(places), *slow, *memory])
    slowest = f", slowest module {slow[0].partition(': ')[2].partition(' (')[0]}" if slow else ""
    missing = f"; {trouble[0]}" if trouble else ""
    return finding(f"{len(found) - len(trouble)} process(es) answered{slowest}{missing}", analysed(places), text)


def _places_live(ws: Workspace, p: Process, told: probing.Answer) -> Iterator[Place]:
    def cite(line: Line, key: str, value: object, rank: int | None) -> Evidence:
        return ws.answered(_without_locals(told.done), key, value, text=line.text.strip(), rank=rank)

    lines = [Line(n, 0, x.encode()) for n, x in enumerate(told.text.split("\n"), 1)]
    stack = next(iter(sd.stacks(lines)), None)
    if stack:
        stack.pid, stack.thread = p.pid, "MainThread"
        found = place(stack, p.rank, str(p.pid), cite)
        if found:
            yield found


def _without_locals(done: Completed) -> Completed:
    return Completed(done.argv, done.code, "", "")


def _modules(ws: Workspace, p: Process) -> list[str]:
    """The modules that take longest, the slowest first."""
    answer = probing.query(ws, p.pid, MODULES)
    rows = [(r, s) for r in answer.rows if (s := number(r.get("seconds", ""))) is not None]
    return [f"rank {p.rank}: {r['module']} ({r['stage']}): {r['n']} calls, {s:.6g} s in all" for r, s in rows[:SHOWN]]


def _memory(ws: Workspace, p: Process) -> Iterator[str]:
    """Memory at the last step, and its growth where enough steps are known."""
    answer = probing.query(ws, p.pid, MEMORY)
    rows = [[number(r.get(c, "")) for c in ("step", "allocated", "peak", "cached")] for r in answer.rows]
    known = sorted([r for r in rows if None not in r], key=lambda r: r[0] or 0)
    if not known:
        return
    step, allocated, peak, _ = known[-1]
    yield f"rank {p.rank}: step {step:.0f}: {allocated:.0f} bytes allocated, peak {peak:.0f}"
    first, last = known[0], known[-1]
    if peak and len(known) >= 5 and last[0] != first[0]:
        growth = ((last[1] or 0) - (first[1] or 0)) / ((last[0] or 0) - (first[0] or 0))
        yield f"rank {p.rank}: {growth:.0f} bytes a step from step {first[0]:.0f} to {last[0]:.0f}"


def _rows(ws: Workspace, found: list[Process], sql: str) -> ToolResult:
    evidence, lines, trouble, deaf = [], [], [], 0
    for p in found:
        answer = probing.query(ws, p.pid, sql)
        if answer.trouble:
            trouble.append(answer.trouble)
            deaf += not answer.listens
            continue
        lines.append(f"rank {p.rank} pid {p.pid}: {len(answer.rows)} rows")
        for row in answer.rows[:ROWS]:
            told = ", ".join(f"{k}={v}" for k, v in row.items())
            lines.append("  " + told)
            evidence.append(ws.answered(answer.done, "live.row", told[:1000], text=told, rank=p.rank))
    if len(trouble) == len(found):
        return not_applicable(trouble[0]) if deaf == len(found) else failed("; ".join(trouble[:3]))
    return finding(f"{len(evidence)} row(s) of {len(found)} process(es)", evidence[: ROWS * 2], "\n".join(lines))
