"""Out of memory: what ran out, how much was asked for, in which phase, on which ranks, after how many steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...core.types import Evidence, ToolResult
from ...reading.logs.load_reports import outlying
from ...reading.machine.slurm_accounts import job_memory
from ...reading.memory import oom
from ...reading.run.files import Line
from ...reading.run.workspace import Workspace
from ...reading.scan.anchors import Anchored, Hit, anchored, around, rank_of
from ...reading.scan.harvest import stated
from ..tool import clean, finding, tool

TRACES = 24  # failures whose surroundings are read; thousands of ranks print the same one
SMALL_REQUEST = 512 << 20
HOST_PERCENT = re.compile(r"CPU Virtual Memory:\s+used = ([\d.]+) GB, percent = ([\d.]+)\s?%", re.IGNORECASE)
NODE_USED = re.compile(r"\(IP: \S+?,.{0,400}? was [\d.]+ ?GB / [\d.]+ ?GB \((0\.\d+|1\.0\d*)\)")
STILL_HELD = re.compile(r"sleep.{0,60}freed.{0,40}, ([\d.]+) GiB memory is still in use", re.IGNORECASE)
GPU_ALLOCATED = re.compile(r"\bMA ([\d.]+) GB\b.*?Max_MA ([\d.]+) GB")
KILLED = re.compile(
    r"(?:return code|exit ?code|exit status)\s{0,3}[:=]?\s{0,3}-9\b|(?:exit )?code:?\s{0,8}137\b|exit status 137\b|"
    r"Signals\.SIGKILL|\bSIGKILL\b|\bsignal[: ]{1,2}9\b|signal: Killed|"
    r"^\s*(?:\S{1,80}: line \d+:\s+)?(?:\[\d+\][+-]?\s+)?(?:\d{2,9}\s+)?(?-i:Killed)(?:\s*$|\s{2,})|\bzsh: killed\b",
    re.IGNORECASE,
)
NOT_A_DEATH = re.compile(
    r"\b(?:if|when|sending|send|forward|will|may|unless)\b.{0,60}(?:SIGKILL|signal 9)|force\w* .{0,40}SIGKILL",
    re.IGNORECASE,
)
UNBALANCED = re.compile(r"memory capacity is unbalanced|occupied by other processes", re.IGNORECASE)
CGROUP = re.compile(
    r"memory cgroup out of memory|CONSTRAINT_MEMCG|OOMKilled|oom_kill event|exceeded memory limit", re.IGNORECASE
)
ANNOUNCED = {
    "checkpoint_save": re.compile(
        r"\b(?:sav|writ)(?:ing|e)\b.{0,40}\b(?:checkpoint|ckpt|model|weights|state)", re.IGNORECASE
    ),
    "eval": re.compile(r"\b(?:running (?:evaluation|validation|prediction)|evaluating|validating)\b", re.IGNORECASE),
}
PINNED = re.compile(r"cudaHost(?:Alloc|Register)|pinned memory|pin_memory", re.IGNORECASE)
NUMBERS = ("asked", "free", "allocated", "reserved_unallocated", "private_pools")  # of those in a message


@dataclass(slots=True)
class Failure:
    """One out-of-memory line with what stands before it."""

    hit: Hit
    what: oom.OutOfMemory
    frames: list[oom.Frame] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    step: tuple[Line, int] | None = None
    first_step: int | None = None
    from_start: bool = False
    ranks_near: set[int] = field(default_factory=set)


@tool(
    emits=(
        "memory.oom", "memory.asked_bytes", "memory.free_bytes", "memory.allocated_bytes",
        "memory.reserved_unallocated_bytes", "memory.other_process_bytes", "memory.other_process",
        "memory.small_request_nearly_full", "memory.phase", "memory.frame", "memory.at_first_step",
        "memory.after_many_steps", "memory.one_rank_only", "memory.host_percent", "memory.host_low_gpu",
        "memory.killed", "memory.shm", "memory.cgroup", "memory.engine_still_holds_bytes", "memory.pinned",
        "memory.private_pools_bytes", "memory.job_limit_bytes", "memory.inside_model", "memory.long_batch",
        "memory.longest_passed",
    ),
    recall=True,
)  # fmt: skip
def oom_report(ws: Workspace) -> ToolResult:
    """Say what ran out of memory, where and when.

    Use when a run was killed, printed an out-of-memory error on device or host, or a data worker died of a
    bus error. Gives the numbers of the message in bytes, the phase told by the failing frames (model load,
    logits, backward, optimizer step, evaluation, checkpoint, ...), the step reached and the ranks concerned.
    """
    found = anchored(ws)
    failures = [Failure(hit, what) for hit in found.of("oom") if (what := oom.parse(hit.text))]
    evidence = [*_host(ws, found, bool(failures))]
    if not failures and not any(e.key == "memory.killed" for e in evidence):
        return clean("no out-of-memory message", evidence)
    for failure in failures[:TRACES]:
        _look_around(ws, failure)
    for failure in failures:
        evidence += _message(ws, failure)
    evidence += _over_ranks(ws, failures)
    return finding(_summary(failures, evidence), _distinct(evidence), _told(failures))


def _look_around(ws: Workspace, failure: Failure) -> None:
    lines = around(ws, failure.hit)
    at = next((i for i, x in enumerate(lines) if x.number == failure.hit.line.number), None)
    if at is None:
        return
    rank = failure.hit.rank
    ranks = [rank_of(x.data) for x in lines]
    texts = [x.text for x in lines]
    failure.lines = lines
    failure.ranks_near = {r for r in ranks if r is not None}
    failure.frames = oom.frames_above(texts, at, [r == rank_of(failure.hit.line.data) or r is None for r in ranks])
    failure.from_start = bool(lines) and lines[0].offset == 0
    for i in range(at - 1, -1, -1):
        if oom.FRAME.search(texts[i]) or (step := oom.step_of(texts[i])) is None:
            continue
        if failure.step is None:
            failure.step = (lines[i], step)
        failure.first_step = step
    if failure.step is None and rank is not None and failure.hit.file.rank is not None:
        failure.from_start = False  # another rank's file may hold the progress


def _message(ws: Workspace, failure: Failure) -> Iterator[Evidence]:
    hit, b = failure.hit, failure.what.bytes
    where = {"step": failure.step[1] if failure.step else None}
    told: list[tuple[str, Any]] = [("oom", oom.kind_of(failure.what, failure.frames))]
    told += [(f"{name}_bytes", b[name]) for name in NUMBERS if name in b]
    if "other_process" in b:
        pids = ", ".join(map(str, failure.what.other_pids))
        who = f"pid {pids}" if pids else "not named: neither free nor held by this process"
        told += [("other_process_bytes", b["other_process"]), ("other_process", who)]
    if b.get("asked", SMALL_REQUEST) < SMALL_REQUEST and b.get("free", 1) < 0.04 * b.get("capacity", 0):
        told.append(("small_request_nearly_full", True))
    if failure.what.kind == "shm":
        told.append(("shm", True))
    if PINNED.search(hit.text) or any(PINNED.search(f.text) for f in failure.frames):
        told.append(("pinned", True))
    if CGROUP.search(hit.text):
        told.append(("cgroup", hit.text.strip()[:200]))
    yield from (hit.cite(ws, f"memory.{key}", value, **where) for key, value in told)
    where["rank"] = hit.rank
    yield from _frames(ws, failure, where)
    yield from _when(ws, failure, where)


def _frames(ws: Workspace, failure: Failure, where: dict) -> Iterator[Evidence]:
    told = oom.telling(failure.frames)
    for frame, _ in told:
        yield ws.cite(failure.hit.file, failure.lines[frame.index], "memory.frame", frame.text[:300], **where)
    user = next((f for f in reversed(failure.frames) if not f.library), None)
    if user and user not in [f for f, _ in told]:
        yield ws.cite(failure.hit.file, failure.lines[user.index], "memory.frame", user.text[:300], **where)
    if user and user.function == "forward" and not oom.OF_THE_OUTPUT & {phase for _, phase in told}:
        yield ws.cite(failure.hit.file, failure.lines[user.index], "memory.inside_model", user.text[:300], **where)
    by_phase = {phase: frame for frame, phase in reversed(told)}
    found = oom.phases(failure.frames) or _phase_of_message(failure.hit.text)
    for phase in found:
        line = failure.lines[by_phase[phase].index] if phase in by_phase else failure.hit.line
        yield ws.cite(failure.hit.file, line, "memory.phase", phase, **where)
    if not found and not failure.frames and (before := _phase_before(failure)):
        yield ws.cite(failure.hit.file, before[1], "memory.phase", before[0], **where)


def _phase_before(failure: Failure) -> tuple[str, Line] | None:
    """What the program said that it was about to do, just before it failed without a traceback."""
    at = next((i for i, x in enumerate(failure.lines) if x.number == failure.hit.line.number), 0)
    for line in reversed(failure.lines[max(0, at - 3) : at]):
        for phase, said in ANNOUNCED.items():
            if said.search(line.text):
                return phase, line
    return None


def _phase_of_message(text: str) -> list[str]:
    if re.search(r"cache blocks|KV cache|on startup is less|mem-fraction", text):
        return ["kv_cache"]
    if re.search(r"failed to clone\(\) tensor", text, re.IGNORECASE):
        return ["checkpoint_save"]  # FSDP gathers the state dict and warns instead of failing
    if re.search(r"CUresult error|cu_mem_create|torch_memory_saver|cumem_allocator", text):
        return ["wake_up"]  # the allocator of engines that sleep
    return ["nccl_init"] if re.search(r"nccl|NCCL|/nccl-", text) else []


def _when(ws: Workspace, failure: Failure, where: dict) -> Iterator[Evidence]:
    training = (oom.STEP_PHASES | {"optimizer_step"}) & set(oom.phases(failure.frames))
    hit = failure.hit
    at = next((i for i, x in enumerate(failure.lines) if x.number == hit.line.number), 0)
    if training and (long := outlying(failure.lines, at)):
        yield ws.cite(hit.file, long[0], "memory.long_batch", long[1], rank=hit.rank)
        yield ws.cite(hit.file, long[0], "memory.longest_passed", long[2], rank=hit.rank)
    if failure.step:
        line, step = failure.step
        if step >= 5 and step - (failure.first_step or 0) >= 0:
            yield ws.cite(hit.file, line, "memory.after_many_steps", True, rank=hit.rank, step=step)
    if training and (failure.step[1] <= 1 if failure.step else failure.from_start):
        yield ws.cite(hit.file, hit.line, "memory.at_first_step", True, **where)


def _host(ws: Workspace, found: Anchored, died: bool) -> Iterator[Evidence]:
    """Host memory as DeepSpeed prints it, deaths by SIGKILL, and the GPU nearly empty at such a death."""
    percents, allocated = [], []
    for hit in found.of("oom"):
        if m := HOST_PERCENT.search(hit.text):
            percents.append((hit, float(m[2])))
        if m := NODE_USED.search(hit.text):
            percents.append((hit, round(100 * float(m[1]), 1)))
        if m := GPU_ALLOCATED.search(hit.text):
            allocated.append((hit, float(m[1])))
        if died and (m := STILL_HELD.search(hit.text)):
            value = oom.size_in_bytes(m[1], "GiB")
            yield hit.cite(ws, "memory.engine_still_holds_bytes", value)
        if UNBALANCED.search(hit.text):
            yield hit.cite(ws, "memory.other_process", "other processes occupy GPU memory")
    deaths = list(_deaths(found))
    for hit in deaths[:16]:
        yield hit.cite(ws, "memory.killed", "SIGKILL")
    if deaths and (limit := job_memory(ws)):
        yield ws.cite(limit.setting.file, limit.setting.line, "memory.job_limit_bytes", limit.bytes)
    if not percents:
        return
    last, value = percents[-1]
    yield last.cite(ws, "memory.host_percent", value)
    if deaths and value >= 85 and not died:
        yield deaths[0].cite(ws, "memory.oom", "host")
    if allocated and value >= 85:
        gpu, gigabytes = allocated[-1]
        if gigabytes < 4:
            yield gpu.cite(ws, "memory.host_low_gpu", gigabytes)


def _deaths(found: Anchored) -> Iterator[Hit]:
    seen: set[tuple[str, int]] = set()
    for hit in [*found.of("oom"), *found.of("killed")]:
        place = hit.file.name, hit.line.number
        if place not in seen and KILLED.search(stated(hit.text)) and not NOT_A_DEATH.search(hit.text):
            seen.add(place)
            yield hit


def _over_ranks(ws: Workspace, failures: list[Failure]) -> Iterator[Evidence]:
    device = [f for f in failures if f.what.kind in {"cuda", "hip"} and f.hit.rank is not None]
    ranks = sorted({f.hit.rank for f in device if f.hit.rank is not None})
    if not ranks:
        return
    near = set().union(*(f.ranks_near for f in failures))
    first = device[0].hit
    if len(ranks) == 1 and near - set(ranks):
        yield first.cite(ws, "memory.one_rank_only", True)


def _distinct(evidence: Iterable[Evidence]) -> list[Evidence]:
    """The same fact from a thousand ranks is shown for a few of them; order stays."""
    kept: dict[tuple, int] = {}
    result = []
    for e in evidence:
        same = (e.key, str(e.value))
        limit = 8 if e.key == "memory.oom" else 2
        if kept.get(same, 0) < limit and not any(
            x.key == e.key and (x.file, x.line, x.value) == (e.file, e.line, e.value) for x in result[-40:]
        ):
            kept[same] = kept.get(same, 0) + 1
            result.append(e)
    return result


def _summary(failures: list[Failure], evidence: list[Evidence]) -> str:
    if not failures:
        return "a process was killed by SIGKILL" + (
            " with host memory nearly full" if any(e.key == "memory.oom" for e in evidence) else ""
        )
    first = failures[0]
    phase = next((str(e.value) for e in evidence if e.key == "memory.phase"), "unknown phase")
    ranks = {f.hit.rank for f in failures} - {None}
    on = f" on {len(ranks)} rank(s)" if ranks else ""
    return f"{first.what.kind} memory ran out{on} in {phase}"


def _told(failures: list[Failure]) -> str:
    rows = []
    for f in failures[:20]:
        sizes = ", ".join(f"{k} {v / (1 << 30):.2f} GiB" for k, v in f.what.bytes.items())
        where = f"{f.hit.file.name}:{f.hit.line.number} rank {f.hit.rank}" + (f" step {f.step[1]}" if f.step else "")
        rows.append(f"{where} {f.what.kind}: {sizes or 'no numbers'}")
    if len(failures) > 20:
        rows.append(f"... {len(failures) - 20} more of {len(failures)}")
    return "\n".join(rows)
