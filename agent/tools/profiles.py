"""Where the time of a step goes: traces and tables of profilers, and samples of running processes."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Annotated

from pydantic import Field

from ..reading import profile_tables, stack_samples
from ..reading.anchor_lines import anchored
from ..reading.anchor_windows import excerpt
from ..reading.collapsed_stacks import Sampled, is_collapsed, samples
from ..reading.files import RunFile
from ..reading.flight.form import is_dump
from ..reading.live_dumps import targets
from ..reading.nsys_database import is_export, trace_of_database
from ..reading.processes import processes
from ..reading.trace_events import Trace, trace_of
from ..reading.trace_shares import Shares, shares, slow_rank
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, Risk, ToolResult
from ..workspace import Workspace

TRACES = 8  # the largest ones
UNASKED = 256 << 20  # bytes of a trace that is read without being named
SAMPLES = (".raw", ".txt", ".folded", ".collapsed", ".log", ".out")
SLOW = {"data": 0.25, "checkpoint": 0.2, "compile": 0.2, "communication_exposed": 0.25, "gpu_idle": 0.3, "sync": 0.3}
Read = tuple[RunFile, Trace, Shares]
EMITS = (
    "profile.bound", "profile.step_time", "profile.data_fraction", "profile.optimizer_fraction",
    "profile.checkpoint_fraction", "profile.compile_fraction", "profile.sync_fraction", "profile.python_fraction",
    "profile.communication_fraction", "profile.communication_exposed_fraction", "profile.gpu_busy_fraction",
    "profile.gpu_idle_fraction", "profile.gpu_compute_fraction", "profile.memcpy_fraction",
    "profile.syncs_per_step", "profile.items_per_step", "profile.launches_per_step", "profile.kernel_mean_us",
    "profile.pageable_bytes", "profile.item_site", "profile.top_op", "profile.top_kernel",
    "profile.compute_fraction", "profile.nccl_kernel_share", "profile.sync_call_share",
    "profile.slow_rank", "profile.sampled_fraction", "profile.sampled_frame",
)  # fmt: skip


@tool(emits=EMITS, recall=True)
def training_profile(
    ws: Workspace,
    file: Annotated[str, Field(description="one trace to read; empty reads the largest ones")] = "",
) -> ToolResult:
    """Say where the time of a training step goes, from recorded profiles.

    Use when training is slow. Reads traces of torch.profiler (*.pt.trace.json, packed too), tables of
    key_averages, Lightning's profiler, Nsight Systems (SQLite export, nsys stats), the timers of DeepSpeed and
    Megatron, and samples of py-spy (record -f raw): shares of data loading, host waits, communication (hidden and
    exposed), optimizer, checkpoints and Python, how long the GPU idles, how often a step reads values from the
    device and from which function, which rank the others wait for, and the largest operators.
    """
    traces = [f for f in ws.files if _is_trace(ws, f) and not f.good and (not file or f.name == file)]
    large = [f for f in traces if f.size > UNASKED and not file]
    traces = sorted((f for f in traces if f not in large), key=lambda f: -f.size)
    traces, unread = traces[:TRACES], traces[TRACES:]
    read = _telling([(f, t, s) for f in traces if (t := _trace(ws, f)) and (s := shares(t))])
    tables = [] if file else [*_tables(ws), *_collapsed(ws)]
    if not read and not tables:
        if large:
            return failed(f"{large[0].name} has {large[0].size >> 20} MiB: ask for it with --file {large[0].name}")
        if packed := [f.name for f in ws.files if f.name.endswith((".nsys-rep", ".qdrep"))]:
            return failed(f"{packed[0]} is in Nsight's own format: nsys export --type sqlite {packed[0]}")
        if traces:
            return failed(f"{traces[0].name}: no events could be read from it")
        return not_applicable("no profiler's trace or table among the run's files")
    evidence = [e for f, t, s in read for e in _of_trace(ws, f, t, s)] + tables
    evidence += _slow_rank(ws, read)
    text = "\n".join(_table(f, t, s) for f, t, s in read)
    slow = [e for e in evidence if _is_slow(e)]
    partly = [f.name for f, t, _ in read if not t.complete] + [f.name for f in (*large, *unread)]
    note = f"; not read to the end: {', '.join(partly[:4])}" if partly else ""
    if not slow and not partly:
        return clean(_summary(read, evidence), evidence, text)
    return finding(_summary(read, evidence) + note, evidence, text)


@tool(
    emits=("profile.sampled_fraction", "profile.sampled_frame", "profile.data_fraction", "profile.bound"),
    risk=Risk.PROBE,
    live=True,
)
def sample_stacks(
    ws: Workspace,
    seconds: Annotated[float, Field(description="how long to sample", gt=0, le=120)] = 5.0,
    rate: Annotated[int, Field(description="samples a second of each process", ge=1, le=50)] = 10,
) -> ToolResult:
    """Sample the stacks of running processes for some seconds: a profile without a profiler.

    Use when a live job is slow and nothing was recorded: the share of samples in data loading, collectives,
    host waits, checkpointing, locks, and the functions of the user's code seen most often. The processes are
    read without being stopped.
    """
    if not ws.live:
        return not_applicable("not asked to look at this machine's processes (name them with --pid)")
    seen = processes(ws)
    found = targets(ws, seen) if seen else []
    if not found:
        return not_applicable("no rank of a job runs here: name its processes with --pid")
    sampled = stack_samples.sampled(ws, found, seconds, rate)
    if not sampled.total:
        return failed("; ".join(sampled.trouble[:3]) or "no stack could be read")
    evidence = list(_of_samples(ws, sampled))
    lines = [f"{share:6.1%} {where}" for where, share in sampled.wheres()]
    lines += [f"{share:6.1%} {frame}" for frame, share, _ in sampled.frames()]
    first = ", ".join(f"{share:.0%} {where}" for where, share in sampled.wheres()[:4])
    summary = f"{sampled.total} samples of {len(found)} process(es) in {seconds:g} s: {first}"
    return finding(summary, evidence, "\n".join([*lines, *sampled.trouble[:4]]))


def _telling(read: list[Read]) -> list[Read]:
    """Without the remainders that a profiler writes when the loop ends in the middle of a cycle."""
    most = max((s.steps for _, _, s in read), default=0)
    longest = max((s.seconds for _, _, s in read), default=0.0)
    return [r for r in read if (r[2].steps >= 2 or most < 3) and r[2].seconds >= 0.02 * longest]


def _is_trace(ws: Workspace, file: RunFile) -> bool:
    """Traces and exports; the dumps of flight recorders share their role."""
    if file.path.suffix == ".sqlite":
        return is_export(file.path)
    return file.role == "trace" and ".json" in file.path.name.lower() and not is_dump(ws.head(file))


def _trace(ws: Workspace, file: RunFile) -> Trace | None:
    if file.path.suffix == ".sqlite":
        return ws.memo(("trace", file.name), lambda: trace_of_database(file.path))
    return ws.memo(("trace", file.name), lambda: trace_of(ws.blocks(file)))


def _of_trace(ws: Workspace, file: RunFile, trace: Trace, s: Shares) -> Iterator[Evidence]:
    def cite(key: str, value: object, text: str, member: str = "traceEvents") -> Evidence:
        rank = trace.rank if trace.rank is not None else file.rank
        return ws.binary(file, member, f"profile.{key}", value, text=text, rank=rank)

    over = f"{s.steps} steps" if s.steps else f"{s.seconds:.3g} s without marked steps"
    yield cite("bound", s.bound, f"what holds the step up most over {over}: {s.bound}")
    if s.step_seconds is not None:
        yield cite("step_time", round(s.step_seconds, 6), f"median of {s.steps} steps: {s.step_seconds:.4g} s")
    for part, share in s.fraction.items():
        yield cite(f"{part}_fraction", round(share, 4), f"{part.replace('_', ' ')}: {share:.1%} of {over}")
    for name, count in s.per_step.items():
        yield cite(f"{name}_per_step", round(count, 2), f"{name} a step, the optimizer's own left out: {count:.1f}")
    if s.kernel_mean_us is not None:
        yield cite("kernel_mean_us", round(s.kernel_mean_us, 2), f"mean length of a kernel: {s.kernel_mean_us:.1f} us")
    if trace.pageable:
        yield cite("pageable_bytes", trace.pageable, f"{trace.pageable} bytes copied from memory that is not pinned")
    if s.site and s.per_step.get("items", 0) >= 1:
        yield cite("item_site", s.site, f"values are read from the device in {s.site}")
    for key, rows in (("top_op", s.ops), ("top_kernel", s.kernels)):
        for name, calls, share in rows[:3]:
            yield cite(key, name, f"{name}: {calls} calls, {share:.1%} of the time of all of them", member=name[:80])


def _slow_rank(ws: Workspace, read: list[Read]) -> Iterator[Evidence]:
    ranks = {r: (f, s) for f, t, s in read if (r := t.rank if t.rank is not None else f.rank) is not None}
    found = slow_rank([(r, s) for r, (_, s) in ranks.items()])
    if found:
        rank, least, most = found
        text = (
            f"rank {rank} spends {least:.0%} of its time in collectives, the others up to {most:.0%}: they wait for it"
        )
        yield ws.binary(ranks[rank][0], "traceEvents", "profile.slow_rank", rank, text=text, rank=rank)


def _tables(ws: Workspace) -> Iterator[Evidence]:
    keys = {
        "collective": "communication_fraction",
        "nccl_kernels": "nccl_kernel_share",
        "sync_calls": "sync_call_share",
    }
    for file in anchored(ws).files("profile"):
        best: dict[str, profile_tables.Told] = {}
        for told in profile_tables.told(excerpt(ws, file, "profile")):
            part = keys.get(told.part, f"{told.part}_fraction")
            if part not in best or told.source in ("deepspeed", "megatron") or told.fraction > best[part].fraction:
                best[part] = told
        for part, told in best.items():
            if f"profile.{part}" in EMITS:
                yield ws.cite(file, told.line, f"profile.{part}", round(told.fraction, 4))


def _collapsed(ws: Workspace) -> Iterator[Evidence]:
    """Samples that were recorded: shares of the places, and the functions of the user's code seen most often."""
    for file in ws.by_role("log", "capture", "other"):
        if file.path.suffix not in SAMPLES or not is_collapsed(ws.head(file)):
            continue
        places: dict[str, tuple[int, Sampled]] = {}
        own: dict[str, tuple[int, Sampled]] = {}
        for s in samples(ws.lines(file)):
            for table, name in ((places, s.where), (own, s.own)):
                count, best = table.get(name, (0, s))
                table[name] = (count + s.count, best if best.count >= s.count else s)
        total = sum(count for count, _ in places.values()) or 1
        for name, (count, s) in sorted(places.items(), key=lambda kv: -kv[1][0])[:8]:
            yield ws.cite(file, s.line, "profile.sampled_fraction", round(count / total, 4))
            if name == "dataloader":
                yield ws.cite(file, s.line, "profile.data_fraction", round(count / total, 4))
        for name, (_, s) in sorted(own.items(), key=lambda kv: -kv[1][0])[:4]:
            if name:
                yield ws.cite(file, s.line, "profile.sampled_frame", name)


def _is_slow(e: Evidence) -> bool:
    name = e.key.removeprefix("profile.").removesuffix("_fraction")
    if isinstance(e.value, int | float) and e.key.endswith("_fraction"):
        return e.value >= SLOW.get(name, 2)
    if e.key == "profile.slow_rank":
        return True
    return e.key == "profile.items_per_step" and isinstance(e.value, int | float) and e.value >= 2


def _summary(read: list[Read], evidence: list[Evidence]) -> str:
    largest = sorted(
        {
            (e.key, e.value)
            for e in evidence
            if e.key.endswith("_fraction") and isinstance(e.value, float) and "sampled" not in e.key
        },
        key=lambda kv: -kv[1],
    )
    shown = ", ".join(
        f"{k.removeprefix('profile.').removesuffix('_fraction').replace('_', ' ')} {v:.0%}" for k, v in largest[:4]
    )
    if not read:
        return f"shares of the step: {shown}"
    took = [s.step_seconds for _, _, s in read if s.step_seconds]
    step = f", step {median(took):.3g} s" if took else ""
    bounds = sorted({s.bound for _, _, s in read})
    return f"{len(read)} trace(s){step}, held up by {' or '.join(bounds)}: {shown}"


def _table(file: RunFile, trace: Trace, s: Shares) -> str:
    rows = [f"{file.name}: {trace.events} events, {s.steps} steps over {s.seconds:.3g} s, held up by {s.bound}"]
    rows += [f"  {part:<24}{share:7.1%}" for part, share in sorted(s.fraction.items(), key=lambda kv: -kv[1])]
    rows += [f"  {name} a step: {count:.1f}" for name, count in s.per_step.items()]
    rows += [f"  op {name[:60]:<60}{calls:>9}{share:7.1%}" for name, calls, share in s.ops[:8]]
    rows += [f"  kernel {name[:60]:<56}{calls:>9}{share:7.1%}" for name, calls, share in s.kernels[:8]]
    return "\n".join(rows)


def _of_samples(ws: Workspace, sampled: stack_samples.Samples) -> Iterator[Evidence]:
    for where, share in sampled.wheres()[:8]:
        done, line = sampled.shown[where]
        yield ws.answered(done, "profile.sampled_fraction", round(share, 4), text=line, host=None)
    for frame, share, (done, line) in sampled.frames()[:6]:
        yield ws.answered(done, "profile.sampled_frame", frame, text=line)
        del share
    top, share = sampled.wheres()[0]
    if "dataloader" in dict(sampled.wheres()):
        done, line = sampled.shown["dataloader"]
        yield ws.answered(done, "profile.data_fraction", round(dict(sampled.wheres())["dataloader"], 4), text=line)
    bound = {"dataloader": "data", "collective": "communication", "checkpoint": "checkpoint", "sync": "sync"}.get(top)
    if bound and share >= 0.25:
        done, line = sampled.shown[top]
        yield ws.answered(done, "profile.bound", bound, text=line)
