"""Memory snapshots and the allocator's own tables: what is held, by which code, what keeps growing."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import ParseError
from ..reading import memory_summary, oom
from ..reading.memory_snapshot import Device, Snapshot, candidates, snapshot
from ..reading.memory_snapshot_trace import NATIVE, Failed
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

GIB = 1 << 30
FILES = 16  # snapshots read; a job writes one a rank
SHOWN = 6  # frames told of one list


@tool(
    emits=(
        "memory.oom", "memory.asked_bytes", "memory.free_bytes", "memory.phase", "memory.frame",
        "memory.reserved_bytes", "memory.allocated_bytes", "memory.reserved_unallocated_bytes",
        "memory.snapshot_reserved_bytes", "memory.snapshot_allocated_bytes", "memory.largest_free_bytes",
        "memory.inactive_split_bytes", "memory.fragmentation", "memory.fragmented", "memory.live_frame",
        "memory.live_frame_bytes", "memory.growth_frame", "memory.growth_by_frame", "memory.growth_per_cycle_bytes",
        "memory.steady", "memory.stats_allocated_bytes", "memory.stats_peak_bytes", "memory.stats_reserved_bytes",
        "memory.alloc_retries", "memory.ooms_counted",
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
    evidence, rows, unread = [], [], []
    for file in files[:FILES]:
        try:
            picture = snapshot(ws, file)
        except ParseError as e:
            unread.append(f"{file.name}: {e}")
            continue
        for device in picture.devices:
            evidence += _device(ws, picture, device)
            rows += _rows(picture, device)
    printed = list(memory_summary.statistics(ws))
    evidence += [ws.cite(s.file, s.line, f"memory.{s.key}", s.value) for s in printed]
    rows += [f"{s.file.name}:{s.line.number} {s.key} = {s.value}" for s in printed]
    if len(files) > FILES:
        rows.append(f"{len(files) - FILES} of {len(files)} snapshots were not read")
    for why in unread:
        ws.tell(*why.split(": ", 1))
        rows.append(f"not read: {why}")
    if not evidence:
        return failed(f"could not read {unread[0]}") if unread else not_applicable("no memory snapshot or statistics")
    told = _summary(evidence, len(files), len(printed))
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
        for key, value in (
            ("snapshot_reserved_bytes", device.reserved), ("snapshot_allocated_bytes", device.allocated),
            ("largest_free_bytes", device.largest_free), ("inactive_split_bytes", device.stuck),
            ("fragmentation", round(device.fragmentation, 3)),
        ):  # fmt: skip
            yield ws.binary(file, member, f"memory.{key}", value, state)
        for place, size in device.frames.most_common(SHOWN):
            if place != NATIVE and size > device.allocated // 50:
                words = f"{place}: {_gib(size)} live in the snapshot"
                yield ws.binary(file, member, "memory.live_frame", place, words)
                yield ws.binary(file, member, "memory.live_frame_bytes", size, words)
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
    yield ws.binary(file, member, "memory.oom", "cuda", words)
    yield ws.binary(file, member, "memory.asked_bytes", lost.asked, words)
    yield ws.binary(file, member, "memory.free_bytes", lost.free, words)
    if device.segments:
        yield ws.binary(file, member, "memory.reserved_bytes", device.reserved, words)
        yield ws.binary(file, member, "memory.allocated_bytes", device.allocated, words)
        yield ws.binary(file, member, "memory.reserved_unallocated_bytes", unallocated, words)
        if unallocated > 2 * lost.asked and device.largest_free < lost.asked and unallocated > device.reserved // 10:
            yield ws.binary(file, member, "memory.fragmented", True, words)
    frames = lost.frames[::-1]
    for frame, phase in oom.telling(frames):
        yield ws.binary(file, member, "memory.frame", frame.text[:300], frame.text[:300])
        if phase in oom.phases(frames):
            yield ws.binary(file, member, "memory.phase", phase, frame.text[:300])


def _growth(ws: Workspace, picture: Snapshot, device: Device) -> Iterator[Evidence]:
    trace, member = device.trace, f"device {device.index}"
    assert trace is not None
    each = round(trace.per_cycle)
    words = f"{_gib(trace.troughs[-1] - trace.troughs[1])} more stay after {len(trace.troughs) - 2} steps"
    yield ws.binary(picture.file, member, "memory.growth_per_cycle_bytes", each, words)
    for place, size in trace.grown.most_common(SHOWN):
        if place != NATIVE and size > (trace.troughs[-1] - trace.troughs[1]) // 10:
            said = f"{place}: {_gib(size)} more live at the last trough than at the second"
            yield ws.binary(picture.file, member, "memory.growth_by_frame", size, said)
            yield ws.binary(picture.file, member, "memory.growth_frame", place, said)


def _rows(picture: Snapshot, device: Device) -> Iterator[str]:
    name = f"{picture.file.name} device {device.index}"
    if device.segments:
        yield (
            f"{name}: {device.segments} segments, {device.blocks} blocks, reserved {_gib(device.reserved)}, allocated "
            f"{_gib(device.allocated)} (requested {_gib(device.requested)}), awaiting {_gib(device.awaiting)}, largest "
            f"free {_gib(device.largest_free)}, fragmentation {device.fragmentation:.0%}"
        )
        yield from (f"  {_gib(size):>10}  live: {place}" for place, size in device.frames.most_common(10))
    if trace := device.trace:
        yield f"{name}: {trace.entries} events, {trace.allocations} allocations, peak within them {_gib(trace.peak)}"
        yield from (f"  {_gib(size):>10}  at the peak: {place}" for place, size in trace.at_peak.most_common(10))
        if trace.troughs:
            shown = ", ".join(_gib(t) for t in trace.troughs[:12])
            yield f"  between steps: {shown}{' ...' if len(trace.troughs) > 12 else ''}"
        if trace.leaks:
            yield from (f"  {_gib(size):>10}  grew: {place}" for place, size in trace.grown.most_common(5))


def _summary(evidence: list[Evidence], files: int, printed: int) -> str:
    by_key = {e.key: e for e in reversed(evidence)}
    if grown := by_key.get("memory.growth_frame"):
        return f"memory grows at {grown.value}"
    if "memory.fragmented" in by_key:
        return "free memory is in pieces smaller than the request"
    if asked := by_key.get("memory.asked_bytes"):
        return f"a request of {_gib(float(str(asked.value)))} failed"
    if live := by_key.get("memory.live_frame"):
        return f"{files} snapshot(s); most live memory comes from {live.value}"
    return f"{files} snapshot(s), {printed} printed statistic(s)"


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB // 10 else f"{size / (1 << 20):.1f} MiB"
