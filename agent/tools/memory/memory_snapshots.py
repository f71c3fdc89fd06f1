"""Memory snapshots and the allocator's own tables: what is held, by which code, what keeps growing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.errors import ParseError
from ...core.types import Evidence, ToolResult
from ...reading.memory import oom
from ...reading.memory.memory_snapshot import NATIVE, Device, Failed, Snapshot, candidates, snapshot, statistics
from ...reading.run.workspace import Workspace
from ..tool import clean, failed, finding, not_applicable, tool

GIB = 1 << 30
FILES = 16  # snapshots read; a job writes one a rank
SHOWN = 6  # frames told of one list


@tool(
    emits=(
        "memory.oom", "memory.asked_bytes", "memory.free_bytes", "memory.phase", "memory.frame",
        "memory.allocated_bytes", "memory.reserved_unallocated_bytes", "memory.fragmentation", "memory.fragmented",
        "memory.growth_by_frame", "memory.steady", "memory.alloc_retries",
    ),
    recall=True,
)  # fmt: skip
def memory_snapshot(ws: Workspace) -> ToolResult:
    """Read memory snapshots and printed allocator statistics: who holds memory, and what keeps growing.

    Use when memory ran out or grows and the run kept a snapshot (torch.cuda.memory._dump_snapshot, also packed) or
    printed torch.cuda.memory_summary() or memory_stats(). Gives reserved and allocated bytes, the largest free block
    and fragmentation, live bytes by line of code, requests that failed, and the lines whose memory survives each step.
    """
    files = candidates(ws)
    evidence: list[Evidence] = []
    pictures: list[Snapshot] = []
    rows, unread = [], []
    for file in files[:FILES]:
        try:
            picture = snapshot(ws, file)
        except ParseError as e:
            unread.append(f"{file.name}: {e}")
            continue
        pictures.append(picture)
        for device in picture.devices:
            evidence += _device(ws, picture, device)
            rows += _rows(picture, device)
    printed = list(statistics(ws))
    evidence += [ws.cite(s.file, s.line, f"memory.{s.key}", s.value) for s in printed if s.key == "alloc_retries"]
    rows += [f"{s.file.name}:{s.line.number} {s.key} = {s.value}" for s in printed]
    if len(files) > FILES:
        rows.append(f"{len(files) - FILES} of {len(files)} snapshots were not read")
    for why in unread:
        ws.tell(*why.split(": ", 1))
        rows.append(f"not read: {why}")
    if not (evidence or printed or any(d.segments or (d.trace and d.trace.leaks) for p in pictures for d in p.devices)):
        return failed(f"could not read {unread[0]}") if unread else not_applicable("no memory snapshot or statistics")
    told = _summary(evidence, pictures, f"{len(files)} snapshot(s)", len(printed))
    worth = any(e.key in ("memory.oom", "memory.growth_by_frame", "memory.fragmented") for e in evidence)
    if worth or unread or not files or len(files) > FILES:
        return finding(told, evidence, "\n".join(rows))
    return clean(told, evidence, "\n".join(rows))


def _device(ws: Workspace, picture: Snapshot, device: Device) -> Iterator[Evidence]:
    file, member = picture.file, f"device {device.index}"
    state = (
        f"device {device.index}: reserved {_gib(device.reserved)}, allocated {_gib(device.allocated)}, largest free "
        f"block {_gib(device.largest_free)}, stuck beside tensors {_gib(device.stuck)}"
    )
    if device.segments:
        yield ws.binary(file, member, "memory.fragmentation", round(device.fragmentation, 3), state)
    trace = device.trace
    if trace is None:
        return
    for number, lost in enumerate(trace.ooms[:4]):
        yield from _failed(ws, picture, device, lost, f"{member}, failed request {number + 1}")
    if trace.leaks:
        yield from _growth(ws, picture, device)
    elif len(trace.troughs) >= 4:
        words = f"{len(trace.troughs)} steps recorded, what stays between them does not grow"
        yield ws.binary(file, member, "memory.steady", True, words)


def _failed(ws: Workspace, picture: Snapshot, device: Device, lost: Failed, member: str) -> Iterator[Evidence]:
    file = picture.file
    unallocated = max(0, device.free)
    words = (
        f"asked for {_gib(lost.asked)} with {_gib(lost.free)} free on the device; reserved {_gib(device.reserved)}, "
        f"allocated {_gib(device.allocated)}, largest free block {_gib(device.largest_free)}"
    )
    told: list[tuple[str, Any]] = [("oom", "cuda"), ("asked_bytes", lost.asked), ("free_bytes", lost.free)]
    if device.segments:
        told += [("allocated_bytes", device.allocated), ("reserved_unallocated_bytes", unallocated)]
        if unallocated > 2 * lost.asked and device.largest_free < lost.asked and unallocated > device.reserved // 10:
            told.append(("fragmented", True))
    yield from (ws.binary(file, member, f"memory.{key}", value, words) for key, value in told)
    frames = lost.frames[::-1]
    for frame, phase in oom.telling(frames):
        yield ws.binary(file, member, "memory.frame", frame.text[:300], frame.text[:300])
        if phase in oom.phases(frames):
            yield ws.binary(file, member, "memory.phase", phase, frame.text[:300])


def _growth(ws: Workspace, picture: Snapshot, device: Device) -> Iterator[Evidence]:
    for place, size in _grown(device):
        said = f"{place}: {_gib(size)} more live at the last trough than at the second"
        yield ws.binary(picture.file, f"device {device.index}", "memory.growth_by_frame", size, said)


def _grown(device: Device) -> list[tuple[str, int]]:
    """Lines of code whose memory makes up a tenth of what stays after each step."""
    trace = device.trace
    if trace is None or not trace.leaks:
        return []
    grown = trace.grown.most_common(SHOWN)
    return [(p, size) for p, size in grown if p != NATIVE and size > (trace.troughs[-1] - trace.troughs[1]) // 10]


def _rows(picture: Snapshot, device: Device) -> Iterator[str]:
    name = f"{picture.file.name} device {device.index}"
    if device.segments:
        yield (
            f"{name}: {device.segments} segments, {device.blocks} blocks, reserved {_gib(device.reserved)}, allocated "
            f"{_gib(device.allocated)} (requested {_gib(device.requested)}), awaiting {_gib(device.awaiting)}, largest "
            f"free {_gib(device.largest_free)}, stuck beside tensors {_gib(device.stuck)}, "
            f"fragmentation {device.fragmentation:.0%}"
        )
        yield from (f"  {_gib(size):>10}  live: {place}" for place, size in device.frames.most_common(10))
    if trace := device.trace:
        yield f"{name}: {trace.entries} events, {trace.allocations} allocations, peak within them {_gib(trace.peak)}"
        yield from (f"  {_gib(size):>10}  at the peak: {place}" for place, size in trace.at_peak.most_common(10))
        if trace.troughs:
            shown = ", ".join(_gib(t) for t in trace.troughs[:12])
            yield f"  between steps: {shown}{' ...' if len(trace.troughs) > 12 else ''}"
        if trace.leaks:
            yield f"  {_gib(trace.per_cycle):>10}  more stay after each step"
            yield from (f"  {_gib(size):>10}  grew: {place}" for place, size in trace.grown.most_common(5))


def _summary(evidence: list[Evidence], pictures: list[Snapshot], files: str, printed: int) -> str:
    by_key = {e.key: e for e in reversed(evidence)}
    devices = [d for p in pictures for d in p.devices]
    if grown := next((place for d in devices for place, _ in _grown(d)), ""):
        return f"memory grows at {grown}"
    if "memory.fragmented" in by_key:
        return "free memory is in pieces smaller than the request"
    if asked := by_key.get("memory.asked_bytes"):
        return f"a request of {_gib(float(str(asked.value)))} failed"
    if live := next((place for d in devices for place in _live(d)), ""):
        return f"{files}; most live memory comes from {live}"
    return f"{files}, {printed} printed statistic(s)"


def _live(device: Device) -> list[str]:
    """Lines of code that hold more than a fiftieth of what is allocated, the largest first."""
    held = device.frames.most_common(SHOWN) if device.segments else []
    return [place for place, size in held if place != NATIVE and size > device.allocated // 50]


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB // 10 else f"{size / (1 << 20):.1f} MiB"
