"""Where the time of a step goes: traces and tables of profilers, and samples of running processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Annotated

from pydantic import Field

from ...core.types import Evidence, Risk, ToolResult, Value
from ...reading.machine.job_processes import processes
from ...reading.profiles import profile_tables
from ...reading.profiles.recorder_rows import RAMP, Event, Recording, recording
from ...reading.profiles.trace_events import Trace, is_export, trace_of, trace_of_database
from ...reading.profiles.trace_shares import Shares, shares, slow_rank
from ...reading.run.files import RunFile
from ...reading.run.roles import is_dump
from ...reading.run.workspace import Workspace
from ...reading.scan.anchors import anchored, excerpt
from ...reading.stacks import live_dumps
from ...reading.stacks.live_dumps import targets
from ...reading.stacks.stack_groups import Sampled, is_collapsed, samples
from ..tool import clean, failed, finding, not_applicable, tool

TRACES = 8  # the largest ones
UNASKED = 256 << 20  # bytes of a trace that is read without being named
SAMPLES = (".raw", ".txt", ".folded", ".collapsed", ".log", ".out")
TOLD = ("optimizer", "compute")  # parts of a table that only inform
SLOW = {"data": 0.25, "checkpoint": 0.2, "compile": 0.2, "communication_exposed": 0.25, "gpu_idle": 0.3, "sync": 0.3}
Read = tuple[RunFile, Trace, Shares]
EMITS = (
    "profile.bound", "profile.data_fraction", "profile.checkpoint_fraction", "profile.compile_fraction",
    "profile.python_fraction", "profile.communication_fraction", "profile.communication_exposed_fraction",
    "profile.gpu_busy_fraction", "profile.gpu_idle_fraction", "profile.syncs_per_step", "profile.items_per_step",
    "profile.kernel_mean_us", "profile.item_site", "profile.nccl_kernel_share", "profile.sync_call_share",
    "profile.slow_rank",
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
    collapsed = [] if file else list(_collapsed(ws))
    tables = [] if file else [*_tables(ws), *(e for c in collapsed if (e := _data_share(ws, c)))]
    if not read and not tables and not collapsed:
        if large:
            return failed(f"{large[0].name} has {large[0].size >> 20} MiB: ask for it with --file {large[0].name}")
        if packed := [f.name for f in ws.files if f.name.endswith((".nsys-rep", ".qdrep"))]:
            return failed(f"{packed[0]} is in Nsight's own format: nsys export --type sqlite {packed[0]}")
        if traces:
            return failed(f"{traces[0].name}: no events could be read from it")
        return not_applicable("no profiler's trace or table among the run's files")
    seen = [e for f, t, s in read for e in _of_trace(ws, f, t, s)] + tables
    seen += _slow_rank(ws, read)
    evidence = training_profile.declared(seen)
    rows = [f"{e.file}:{e.line} {e.key} = {e.value}" for e in tables]
    text = "\n".join([*(_table(f, t, s) for f, t, s in read), *rows, *(c.text for c in collapsed)])
    slow = [e for e in seen if _is_slow(e)]
    partly = [f.name for f, t, _ in read if not t.complete] + [f.name for f in (*large, *unread)]
    note = f"; not read to the end: {', '.join(partly[:4])}" if partly else ""
    if not slow and not partly:
        return clean(_summary(read, seen), evidence, text)
    return finding(_summary(read, seen) + note, evidence, text)


@tool(
    emits=("profile.data_fraction", "profile.bound"),
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
    sampled = live_dumps.sampled(ws, found, seconds, rate)
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
    def cite(key: str, value: object, text: str) -> Evidence:
        rank = trace.rank if trace.rank is not None else file.rank
        return ws.binary(file, "traceEvents", f"profile.{key}", value, text=text, rank=rank)

    over = f"{s.steps} steps" if s.steps else f"{s.seconds:.3g} s without marked steps"
    yield cite("bound", s.bound, f"what holds the step up most over {over}: {s.bound}")
    for part, share in s.fraction.items():
        yield cite(f"{part}_fraction", round(share, 4), f"{part.replace('_', ' ')}: {share:.1%} of {over}")
    for name, count in s.per_step.items():
        yield cite(f"{name}_per_step", round(count, 2), f"{name} a step, the optimizer's own left out: {count:.1f}")
    if s.kernel_mean_us is not None:
        yield cite("kernel_mean_us", round(s.kernel_mean_us, 2), f"mean length of a kernel: {s.kernel_mean_us:.1f} us")
    if s.site and s.per_step.get("items", 0) >= 1:
        yield cite("item_site", s.site, f"values are read from the device in {s.site}")


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
            if f"profile.{part}" in EMITS or told.part in TOLD:
                yield ws.cite(file, told.line, f"profile.{part}", round(told.fraction, 4))


@dataclass(frozen=True, slots=True)
class Collapsed:
    """Samples that were recorded: shares of the places, and the functions of the user's code seen most often."""

    file: RunFile
    places: list[tuple[str, int, Sampled]]
    own: list[str]

    @property
    def total(self) -> int:
        return sum(count for _, count, _ in self.places) or 1

    @property
    def text(self) -> str:
        rows = [f"{self.file.name}:"]
        rows += [f"  {count / self.total:6.1%} {name}" for name, count, _ in self.places[:8]]
        return "\n".join([*rows, *(f"  often in {name}" for name in self.own)])


def _collapsed(ws: Workspace) -> Iterator[Collapsed]:
    for file in ws.by_role("log", "capture", "other"):
        if file.path.suffix not in SAMPLES or not is_collapsed(ws.head(file)):
            continue
        places: dict[str, tuple[int, Sampled]] = {}
        own: Counter[str] = Counter()
        for s in samples(ws.lines(file)):
            count, best = places.get(s.where, (0, s))
            places[s.where] = (count + s.count, best if best.count >= s.count else s)
            own[s.own] += s.count
        found = sorted(((name, count, s) for name, (count, s) in places.items()), key=lambda row: -row[1])
        if found:
            yield Collapsed(file, found, [name for name, _ in own.most_common(4) if name])


def _data_share(ws: Workspace, c: Collapsed) -> Evidence | None:
    loading = next(((count, s) for name, count, s in c.places if name == "dataloader"), None)
    return loading and ws.cite(c.file, loading[1].line, "profile.data_fraction", round(loading[0] / c.total, 4))


def _is_slow(e: Evidence) -> bool:
    name = e.key.removeprefix("profile.").removesuffix("_fraction")
    if isinstance(e.value, int | float) and e.key.endswith("_fraction"):
        return e.value >= SLOW.get(name, 2)
    if e.key == "profile.slow_rank":
        return True
    return e.key == "profile.items_per_step" and isinstance(e.value, int | float) and e.value >= 2


def _summary(read: list[Read], evidence: list[Evidence]) -> str:
    largest = sorted(
        {(e.key, e.value) for e in evidence if e.key.endswith("_fraction") and isinstance(e.value, float)},
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
    rows += [f"  {trace.pageable} bytes copied from memory that is not pinned"] if trace.pageable else []
    rows += [f"  op {name[:60]:<60}{calls:>9}{share:7.1%}" for name, calls, share in s.ops[:8]]
    rows += [f"  kernel {name[:60]:<56}{calls:>9}{share:7.1%}" for name, calls, share in s.kernels[:8]]
    return "\n".join(rows)


def _of_samples(ws: Workspace, sampled: live_dumps.Samples) -> Iterator[Evidence]:
    top, share = sampled.wheres()[0]
    if "dataloader" in dict(sampled.wheres()):
        done, line = sampled.shown["dataloader"]
        yield ws.answered(done, "profile.data_fraction", round(dict(sampled.wheres())["dataloader"], 4), text=line)
    bound = {"dataloader": "data", "collective": "communication", "checkpoint": "checkpoint", "sync": "sync"}.get(top)
    if bound and share >= 0.25:
        done, line = sampled.shown[top]
        yield ws.answered(done, "profile.bound", bound, text=line)


# ----------
# What the recorder kept: the step, layer and batch where a value stopped being finite, and what came before.

_SPIKES = 5  # shown
_STEPS_FOR_SHARE = 20  # below this the first steps, which build everything, would speak for all
_ENOUGH_BEFORE = 5  # steps known before, from which calm may be spoken of


@tool(
    emits=(
        "recorder.layer_alone", "recorder.operation", "recorder.batch_nonfinite", "recorder.norm_ratio",
        "recorder.norm_calm", "recorder.grew_before", "recorder.weights_ratio", "recorder.fp16_overflow",
        "recorder.weights_nonfinite", "recorder.skipped_steps", "recorder.data_wait_share",
    ),
    recall=True,
)  # fmt: skip
def recorder(ws: Workspace) -> ToolResult:
    """Read what traindoctor_recorder kept: the first step that was not finite, its layer and batch, spikes, waits.

    Use when the loss or a gradient became NaN or infinite, spiked, or steps wait for data, and the training was
    recorded (`doctor-recorder/` in the run). Says whether the batch itself held NaN or infinity, which module's output
    was the first that was not finite though what went in was, which operation and line that was, how gradients and
    weights had grown before, which steps a scaler skipped, and whether the logged loss leaves NaNs out.
    """
    found = recording(ws)
    if not found.events and not found.waits:
        return not_applicable("no files of the recorder (doctor-recorder/events_rank_0.jsonl) in the run")
    trouble = found.trouble
    seen = [*(_trouble(ws, trouble) if trouble is not None else ()), *_rest(ws, found), *_waits(ws, found)]
    evidence, text = recorder.declared(seen), "\n".join(f"{e.key}: {e.value}" for e in seen)
    if trouble is not None:
        return finding(_summary_recorder(trouble), evidence, text)
    if noted := sorted({e.key.partition(".")[2] for e in seen} & {"nan_filtered", "spike_step"}):
        told = f"the recorder saw no step that was not finite at its end; it noted: {', '.join(noted)}"
        return finding(told, evidence, text)
    return clean("the recorder saw every step finite", evidence, text)


def _trouble(ws: Workspace, e: Event) -> Iterator[Evidence]:
    """Everything about the first step that was not finite."""
    yield _told(ws, e, "first_nonfinite_step", e.step)
    yield _told(ws, e, "nonfinite_in", e.word("where") or "loss")
    inputs = e.words("batch_nonfinite")
    if inputs:
        yield _told(ws, e, "batch_nonfinite", ", ".join(map(str, inputs[:5])))
        if rows := e.words("batch_rows"):
            yield _told(ws, e, "batch_rows", ", ".join(map(str, rows[:10])))
    elif e.facts.get("batch_known") is True:
        yield _told(ws, e, "batch_finite", True)
    if ids := e.words("ids"):
        yield _told(ws, e, "batch_ids", _ids(e, ids))
    yield from _before(ws, e)
    yield from _layer(ws, e, bool(inputs))


def _ids(e: Event, ids: list) -> str:
    """The ids of the samples; those of the bad rows first where each row has one."""
    rows = [r for r in e.words("batch_rows") if isinstance(r, int) and 0 <= r < len(ids)]
    chosen = [ids[r] for r in rows] or ids
    more = f" and {len(chosen) - 16} more" if len(chosen) > 16 else ""
    return ", ".join(str(i)[:60] for i in chosen[:16]) + more


def _before(ws: Workspace, e: Event) -> Iterator[Evidence]:
    """What the steps before looked like."""
    for name in ("norm_before", "norm_ratio", "weights_ratio"):
        if (value := e.number(name)) is not None:
            yield _told(ws, e, name, value)
    if e.facts.get("parameters_nonfinite"):
        yield _told(ws, e, "weights_nonfinite", ", ".join(map(str, e.words("parameters")[:3])))
    if e.grew:
        ratios = {n: v for n in ("norm_ratio", "weights_ratio", "loss_ratio") if (v := e.number(n)) is not None}
        yield _told(ws, e, "grew_before", max(ratios.values()))
    elif (e.number("steps_before") or 0) >= _ENOUGH_BEFORE and (e.number("norm_ratio") or RAMP) < RAMP / 2:
        yield _told(ws, e, "norm_calm", True)


def _layer(ws: Workspace, e: Event, bad_input: bool) -> Iterator[Evidence]:
    """Where in the model it began. Alone: finite numbers went in, and nothing had grown before."""
    layer = e.word("layer")
    half = e.facts.get("fp16") is True
    if half and not bad_input:
        yield _told(ws, e, "fp16_overflow", layer or "unknown")
    if origin := e.word("backward_origin"):
        yield _told(ws, e, "backward_origin", origin)
    if not layer:
        return
    kind = e.word("layer_class")
    yield _told(ws, e, "layer", f"{layer} ({kind})" if kind else layer)
    for name, key in (("op", "operation"), ("place", "place")):
        if word := e.word(name):
            yield _told(ws, e, key, word)
    replayed = e.word("layer_by") == "replay" and e.facts.get("layer_input_finite") is True
    from_gradients = e.word("layer_by") == "gradients"
    sound = not bad_input and not half and not e.grew and not e.facts.get("parameters_nonfinite")
    if sound and (replayed or from_gradients):
        yield _told(ws, e, "layer_alone", layer)


def _rest(ws: Workspace, found: Recording) -> Iterator[Evidence]:
    """Filtered NaNs, skipped steps, spikes, lines that the recorder could not write."""
    for e in found.of("nan_filtered")[:1]:
        yield _told(ws, e, "nan_filtered", int(e.number("count") or 1))
    skipped = found.of("skipped")
    if skipped:
        most = max(skipped, key=lambda e: e.number("total") or 0)
        yield _told(ws, most, "skipped_steps", int(most.number("total") or len(skipped)))
    for e in found.of("spike")[:_SPIKES]:
        yield _told(ws, e, "spike_step", e.step)
    for e in found.of("end"):
        if lost := int(e.number("lost") or 0):
            yield _told(ws, e, "lost_lines", lost)


def _waits(ws: Workspace, found: Recording) -> Iterator[Evidence]:
    """The rank that waits longest for its data."""
    known = [w for w in found.waits if w.steps >= _STEPS_FOR_SHARE]
    if not known:
        return
    worst = max(known, key=lambda w: w.share)
    yield ws.cite(worst.file, worst.line, "recorder.data_wait_share", float(f"{worst.share:.3g}"))
    yield ws.cite(worst.file, worst.line, "recorder.steps", worst.steps)


def _told(ws: Workspace, e: Event, key: str, value: Value) -> Evidence:
    return ws.cite(e.file, e.line, f"recorder.{key}", value, step=e.step, rank=e.rank)


def _summary_recorder(e: Event) -> str:
    where = e.word("where") or "loss"
    said = f"step {e.step}, rank {e.rank}: the {where} is not finite"
    if e.words("batch_nonfinite"):
        return f"{said}; the batch itself holds NaN or infinity in {e.words('batch_nonfinite')[0]}"
    if e.grew:
        return f"{said}; weights, gradients or loss had grown before"
    return f"{said}; first in {e.word('layer')}" if e.word("layer") else said
