"""PyTorch's memory snapshots (`torch.cuda.memory._dump_snapshot`): what is held, by which code, and what keeps growing.

    for file in candidates(workspace): picture = snapshot(workspace, file)
    picture.devices[0].reserved, .allocated, .largest_free, .frames      the allocator's state when it was written
    picture.devices[0].trace.ooms, .troughs, .grown                      the recorded history, where it was recorded

A snapshot is a pickle of plain values; it is read with an unpickler that knows no class. Totals follow torch's own
`torch.cuda._memory_viz.segsum`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import deadline
from ..errors import ParseError
from .files import RunFile
from .flight.plain import plain
from .memory_snapshot_trace import Trace, place_of, trace_of

if TYPE_CHECKING:
    from ..workspace import Workspace

LIMIT = (
    32 << 20
)  # bytes of a snapshot that are read, about 300,000 events; as objects they take up to nine times as much
SUFFIXES = (".pickle", ".pkl", ".snapshot", ".pt", ".bin", ".dump")
FIRST_KEY = re.compile(
    rb"(?:\x80.(?:\x95.{8})?)?(?:\}(?:\x94|q.)?\(?|\(dp?\d*\n)(?:\x8c\x08|X\x08\0\0\0|V|S')segments", re.DOTALL
)
PACKED = (".gz", ".zst", ".xz", ".bz2")


@dataclass(slots=True)
class Device:
    """One device's allocator. Sizes in bytes; `frames` are live bytes by the code that allocated them.

    reserved: taken from the driver; allocated: in use by tensors (`requested` before rounding); awaiting: freed and
    waiting for another stream; stuck: free, but in a segment that also holds tensors, so that it cannot be returned.
    """

    index: int
    reserved: int = 0
    allocated: int = 0
    requested: int = 0
    awaiting: int = 0
    largest_free: int = 0
    stuck: int = 0
    segments: int = 0
    blocks: int = 0
    frames: Counter[str] = field(default_factory=Counter)
    trace: Trace | None = None

    @property
    def free(self) -> int:
        """Reserved and used by nothing."""
        return self.reserved - self.allocated - self.awaiting

    @property
    def fragmentation(self) -> float:
        """Share of the free bytes that lies outside the largest free block."""
        return 1 - self.largest_free / self.free if self.free else 0.0


@dataclass(slots=True)
class Snapshot:
    """A file's devices that held anything."""

    file: RunFile
    devices: list[Device] = field(default_factory=list)


def candidates(ws: Workspace) -> list[RunFile]:
    """Files that begin like a snapshot: a pickle whose first key is `segments`."""
    return ws.memo("memory_snapshots", lambda: [f for f in ws.files if not f.good and _begins(ws, f)])


def _begins(ws: Workspace, file: RunFile) -> bool:
    name = file.name.lower()
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    if not name.endswith(SUFFIXES) or file.size < 16:
        return False
    return bool(FIRST_KEY.match(ws.head(file)))


def snapshot(ws: Workspace, file: RunFile) -> Snapshot:
    """Read one snapshot.

    Raises:
        ParseError: too large, damaged, not a snapshot, or holding more than plain values (nothing was executed).
    """
    return ws.memo(("memory_snapshot", file.name), lambda: _read(ws, file))


def _read(ws: Workspace, file: RunFile) -> Snapshot:
    data = ws.read(file, LIMIT + 1)
    if len(data) > LIMIT:
        raise ParseError(
            f"larger than {LIMIT >> 20} MiB: record fewer entries (max_entries) or open it in torch's viewer"
        )
    return of_mapping(plain(data), file)


def of_mapping(held: Any, file: RunFile) -> Snapshot:
    """The snapshot that an unpickled mapping holds.

    Raises:
        ParseError: it has not the fields of a snapshot.
    """
    if not isinstance(held, dict) or not isinstance(held.get("segments"), list):
        raise ParseError("not a memory snapshot: no list of segments")
    devices: dict[int, Device] = {}
    try:
        for segment in held["segments"]:
            deadline.check()
            _segment(
                devices.setdefault(_whole(segment.get("device", 0)), Device(_whole(segment.get("device", 0)))), segment
            )
        for index, entries in enumerate(held.get("device_traces") or []):
            if entries:
                device = devices.setdefault(index, Device(index))
                device.trace = trace_of(entries)
    except (AttributeError, TypeError, KeyError, ValueError) as e:
        raise ParseError(f"not the fields of a snapshot: {type(e).__name__}: {str(e)[:80]}") from None
    return Snapshot(file, [d for _, d in sorted(devices.items())])


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 60:
        raise ValueError(f"{value!r} is no size")
    return value


def _segment(device: Device, segment: dict[str, Any]) -> None:
    device.segments += 1
    device.reserved += _whole(segment["total_size"])
    active, free = 0, []
    for block in segment["blocks"]:
        size, state = _whole(block["size"]), block["state"]
        device.blocks += 1
        if state == "active_allocated":
            active += 1
            device.allocated += size
            requested = min(_whole(block.get("requested_size", size)), size)
            device.requested += requested
            device.frames[place_of(block.get("frames") or _history(block))] += requested
        elif state.startswith("active"):
            active += 1
            device.awaiting += size
        else:
            free.append(size)
    device.largest_free = max(device.largest_free, max(free, default=0))
    if active:
        device.stuck += sum(free)


def _history(block: dict[str, Any]) -> list[Any]:
    """Frames where torch before 2.1 keeps them."""
    history = block.get("history") or [{}]
    return history[0].get("frames") or []
