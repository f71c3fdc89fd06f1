"""Questions to processes that were started with probing: stacks, timings of modules, memory; code only when asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from ..reading import probing_client
from ..reading import stack_dumps as sd
from ..reading.files import Line
from ..reading.probing_table import number
from ..reading.processes import Process, processes
from ..reading.stack_groups import EMITS as STACK_KEYS
from ..reading.stack_groups import Place, analysed, groups, place
from ..rehearsal import rehearses, would_run
from ..shell import Completed
from ..tool import failed, finding, not_applicable, tool
from ..types import Evidence, Risk, ToolResult
from ..workspace import Workspace

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
    emits=(*STACK_KEYS, "live.slow_module", "live.module_seconds", "live.step", "live.memory_allocated",
           "live.memory_peak", "live.memory_growth_per_step", "live.row"),
    risk=Risk.PROBE,
    live=True,
)  # fmt: skip
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
    if sql and (why := probing_client.refusal(sql)):
        return failed(f"query not sent: {why}")
    seen = processes(ws)
    found = probing_client.listening(seen, ws)[:MOST] if seen else []
    if not found:
        return not_applicable(
            f"no process here was started with probing: start the job with `{probing_client.START} torchrun ...`"
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
    found = probing_client.listening(seen, ws)[:MOST] if seen else []
    if not found:
        return not_applicable("no process here was started with probing")
    if rehearses(ws):  # the answer comes by way of a file, and a rehearsal writes none
        code = f"open('{{answer}}', 'w').write(repr(eval({expression!r}))[:65536])"
        for p in found:
            would_run(ws, ["probing", "-t", str(p.pid), "eval", code], probing_client.SECONDS)
        return not_applicable("not run")
    evidence, trouble = [], []
    for p in found:
        answer = probing_client.evaluate(ws, p.pid, expression)
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
    evidence: list[Evidence] = []
    trouble: list[str] = []
    deaf = 0
    for p in found:
        told = probing_client.backtrace(ws, p.pid)
        if told.trouble:
            trouble.append(told.trouble)
            deaf += not told.listens
            continue
        places += _places(ws, p, told)
        evidence += [*_modules(ws, p), *_memory(ws, p)]
    if not places and not evidence:
        return not_applicable(trouble[0]) if deaf == len(found) else failed("; ".join(trouble[:3]))
    evidence = [*analysed(places), *evidence]
    text = "\n".join([g.text for g in groups(places)][:40] + [e.text for e in evidence if e.key.startswith("live.")])
    slow = next((f", slowest module {e.value}" for e in evidence if e.key == "live.slow_module"), "")
    missing = f"; {trouble[0]}" if trouble else ""
    return finding(f"{len(found) - len(trouble)} process(es) answered{slow}{missing}", evidence, text)


def _places(ws: Workspace, p: Process, told: probing_client.Answer) -> Iterator[Place]:
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


def _modules(ws: Workspace, p: Process) -> Iterator[Evidence]:
    answer = probing_client.query(ws, p.pid, MODULES)
    rows = [(r, s) for r in answer.rows if (s := number(r.get("seconds", ""))) is not None]
    for n, (row, seconds) in enumerate(rows[:SHOWN]):
        text = f"{row['module']} ({row['stage']}): {row['n']} calls, {seconds:.6g} s in all"
        if n == 0:
            yield ws.answered(answer.done, "live.slow_module", row["module"], text=text, rank=p.rank)
        yield ws.answered(answer.done, "live.module_seconds", round(seconds, 6), text=text, rank=p.rank)


def _memory(ws: Workspace, p: Process) -> Iterator[Evidence]:
    answer = probing_client.query(ws, p.pid, MEMORY)
    rows = [[number(r.get(c, "")) for c in ("step", "allocated", "peak", "cached")] for r in answer.rows]
    known = sorted([r for r in rows if None not in r], key=lambda r: r[0] or 0)
    if not known:
        return
    step, allocated, peak, _ = known[-1]
    text = f"step {step:.0f}: {allocated:.0f} bytes allocated, peak {peak:.0f}"
    yield ws.answered(answer.done, "live.step", int(step or 0), text=text, rank=p.rank)
    if peak:
        yield ws.answered(answer.done, "live.memory_allocated", allocated, text=text, rank=p.rank)
        yield ws.answered(answer.done, "live.memory_peak", peak, text=text, rank=p.rank)
        first, last = known[0], known[-1]
        if len(known) >= 5 and last[0] != first[0]:
            growth = ((last[1] or 0) - (first[1] or 0)) / ((last[0] or 0) - (first[0] or 0))
            told = f"{growth:.0f} bytes a step from step {first[0]:.0f} to {last[0]:.0f}"
            yield ws.answered(answer.done, "live.memory_growth_per_step", growth, text=told, rank=p.rank)


def _rows(ws: Workspace, found: list[Process], sql: str) -> ToolResult:
    evidence, lines, trouble, deaf = [], [], [], 0
    for p in found:
        answer = probing_client.query(ws, p.pid, sql)
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
