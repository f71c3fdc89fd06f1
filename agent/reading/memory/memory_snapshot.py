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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core import deadline
from ...core.errors import ParseError
from ..run.files import Line, RunFile
from ..run.plain_pickle import plain
from ..scan.anchors import anchored, around
from .oom import LIBRARY, Frame, size_in_bytes

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# The history in a memory snapshot: how much was live, who held it, which requests failed, what never comes back.
#
# Growth is judged between steps. Memory in training rises and falls with each step; the low points between two rises
# (troughs) hold what survives a step. Troughs that rise each time are a leak, and the code whose live bytes grew from
# an early trough to the last is where it is made.


SWING = 0.1  # of the whole range: how far memory must fall and rise again to count as a trough
FEWEST = 4  # troughs below which nothing is said about growth
NATIVE = "code without Python frames"


@dataclass(slots=True)
class Failed:
    """A request that failed: bytes asked for, bytes the driver still had, bytes live in the trace, the frames."""

    asked: int
    free: int
    live: int
    frames: list[Frame] = field(default_factory=list)


@dataclass(slots=True)
class Trace:
    """Bytes over the recorded events. `live` counts what was allocated within the record and not freed yet.

    troughs: live bytes at the low points between rises, in order; grown: bytes by place that came to stay between
    the second trough and the last.
    """

    entries: int = 0
    allocations: int = 0
    peak: int = 0
    live: int = 0
    at_peak: Counter[str] = field(default_factory=Counter)
    ooms: list[Failed] = field(default_factory=list)
    troughs: list[int] = field(default_factory=list)
    grown: Counter[str] = field(default_factory=Counter)

    @property
    def leaks(self) -> bool:
        """Troughs rise, nearly each time, by more than a percent of the peak in all."""
        rises = [b - a for a, b in zip(self.troughs[1:], self.troughs[2:], strict=False)]
        if len(self.troughs) < FEWEST:
            return False
        growth = self.troughs[-1] - self.troughs[1]
        return growth > max(1 << 20, self.peak // 100) and sum(r > 0 for r in rises) >= 0.8 * len(rises)

    @property
    def per_cycle(self) -> float:
        """Bytes that stay after each rise and fall."""
        return (self.troughs[-1] - self.troughs[1]) / max(1, len(self.troughs) - 2)


def frames_of(raw: Sequence[Any]) -> list[Frame]:
    """Frames as the snapshot lists them, innermost first; native ones left out."""
    found = []
    for frame in raw:
        name = str(frame.get("filename", ""))
        if (name and ".py" in name) or "<" in name or "ipykernel" in name:
            found.append(Frame(0, name, str(frame.get("name", "")), f"line {frame.get('line', 0)}"))
    return found


def place_of(raw: Sequence[Any]) -> str:
    """The innermost line of the user's own code, else the innermost Python line: `train.py:30 in step`."""
    frames = frames_of(raw)
    if not frames:
        return NATIVE
    frame = next((f for f in frames if not LIBRARY.search(f.path)), frames[0])
    return f"{'/'.join(frame.path.split('/')[-2:])}:{frame.code.removeprefix('line ')} in {frame.function}"[:200]


def trace_of(entries: list[Any]) -> Trace:
    """Walk through a device's events in order.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: an entry has not the fields of one.
    """
    trace = Trace(entries=len(entries))
    curve, owners = _walk(trace, entries)
    low = _troughs(curve)
    trace.troughs = [curve[i] for i in low]
    if len(low) >= FEWEST:
        early, late = _held(entries, owners, {low[1], low[-1]})
        trace.grown = Counter({k: n - early.get(k, 0) for k, n in late.items() if n > early.get(k, 0)})
    return trace


def _walk(trace: Trace, entries: list[Any]) -> tuple[list[int], list[str]]:
    """Live bytes after each event, and the place of each allocation."""
    sizes: dict[int, tuple[int, str]] = {}
    by_place: Counter[str] = Counter()
    places: dict[tuple[int, ...], str] = {}  # by identity of the frames, which events share
    curve, owners = [0] * len(entries), [""] * len(entries)
    for i, entry in enumerate(entries):
        if i % 4096 == 0:
            deadline.check()
        action = entry["action"]
        if action == "alloc":
            raw = entry.get("frames") or []
            key = tuple(map(id, raw))
            place = places.get(key) or places.setdefault(key, place_of(raw))
            size = int(entry["size"])
            sizes[entry["addr"]] = (size, place)
            owners[i] = place
            trace.allocations += 1
            trace.live += size
            by_place[place] += size
            if trace.live > trace.peak:
                trace.peak = trace.live
        elif action == "free_completed" and (known := sizes.pop(entry["addr"], None)):
            trace.live -= known[0]
            by_place[known[1]] -= known[0]
        elif action == "oom":
            free = int(entry.get("device_free", entry.get("addr", 0)))
            trace.ooms.append(Failed(int(entry["size"]), free, trace.live, frames_of(entry.get("frames") or [])))
            trace.at_peak = Counter({k: n for k, n in by_place.items() if n > 0})
        curve[i] = trace.live
    if not trace.at_peak:
        peak = max(range(len(curve)), key=curve.__getitem__, default=-1)
        trace.at_peak = Counter(_held(entries, owners, {peak})[0]) if peak >= 0 else Counter()
    return curve, owners


def _held(entries: list[Any], owners: list[str], at: set[int]) -> list[dict[str, int]]:
    """Live bytes by place after each of these events, in order."""
    sizes: dict[int, tuple[int, str]] = {}
    now: Counter[str] = Counter()
    found = []
    for i, entry in enumerate(entries):
        if owners[i]:
            sizes[entry["addr"]] = (int(entry["size"]), owners[i])
            now[owners[i]] += int(entry["size"])
        elif entry["action"] == "free_completed" and (known := sizes.pop(entry["addr"], None)):
            now[known[1]] -= known[0]
        if i in at:
            found.append({k: n for k, n in now.items() if n > 0})
    return found


def _troughs(curve: list[int]) -> list[int]:
    """Positions of low points: memory fell there by a share of the range and rose by as much afterwards."""
    if not curve:
        return []
    swing = max(1, int((max(curve) - min(curve)) * SWING))
    found: list[int] = []
    high, low, falling = 0, 0, False
    for i, value in enumerate(curve):
        if falling:
            if value < curve[low]:
                low = i
            elif value - curve[low] >= swing:
                found.append(low)
                high, falling = i, False
        elif value > curve[high]:
            high = i
        elif curve[high] - value >= swing:
            low, falling = i, True
    return found


# ----------

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


# ----------
# Allocator statistics that a run printed: `torch.cuda.memory_summary()` tables and `torch.cuda.memory_stats()`.

HEAD = re.compile(r"PyTorch CUDA memory summary, device ID (\d{1,3})")
COUNTS = re.compile(r"CUDA OOMs: (\d{1,9})\s*\|\s*cudaMalloc retries: (\d{1,9})")
CELL = r"\|\s*(\d{1,9})\s?(B|KiB|MiB|GiB|TiB|PiB)\s*"
ROW = re.compile(rf"\|\s*(Allocated memory|GPU reserved memory|Non-releasable memory)\s*{CELL}{CELL}")
STAT = re.compile(
    r"['\"]?\b(allocated_bytes\.all\.current|allocated_bytes\.all\.peak|reserved_bytes\.all\.current|"
    r"inactive_split_bytes\.all\.current|num_alloc_retries|num_ooms)['\"]?\s*[:=,]\s*(\d{1,18})\b"
)
NAMES = {
    "allocated_bytes.all.current": "stats_allocated_bytes", "allocated_bytes.all.peak": "stats_peak_bytes",
    "reserved_bytes.all.current": "stats_reserved_bytes", "num_alloc_retries": "alloc_retries",
    "inactive_split_bytes.all.current": "inactive_split_bytes", "num_ooms": "ooms_counted",
}  # fmt: skip
TABLES = 24  # tables read: the first half and the last


@dataclass(frozen=True, slots=True)
class Statistic:
    """One number with the line that prints it; bytes, or a count."""

    key: str
    value: int
    file: RunFile
    line: Line


def statistics(ws: Workspace) -> Iterator[Statistic]:
    """The last printed statistics of each file and device, in file order."""
    hits = [h for h in anchored(ws).of("oom") if HEAD.search(h.text) or STAT.search(h.text)]
    if len(hits) > TABLES:
        hits = [*hits[: TABLES // 2], *hits[-TABLES // 2 :]]
    last: dict[tuple[str, str, str], Statistic] = {}
    for hit in hits:
        device, lines = "", [hit.line]
        if m := HEAD.search(hit.text):
            device, lines = m[1], _table(around(ws, hit, 512, 6 << 10), hit.line)
        for line in lines:
            for key, value in _numbers(line.text):
                last[hit.file.name, device, key] = Statistic(key, value, hit.file, line)
    yield from last.values()


def _table(lines: list[Line], head: Line) -> list[Line]:
    """The lines of one table: those after its head until the next one or the first that is no row."""
    found = []
    for line in lines:
        if line.number <= head.number:
            continue
        if "|" not in line.text or HEAD.search(line.text):
            break
        found.append(line)
    return found


def _numbers(text: str) -> Iterator[tuple[str, int]]:
    if m := COUNTS.search(text):
        yield "ooms_counted", int(m[1])
        yield "alloc_retries", int(m[2])
    elif m := ROW.search(text):
        now, peak = size_in_bytes(m[2], m[3]), size_in_bytes(m[4], m[5])
        if m[1] == "Allocated memory":
            yield "stats_allocated_bytes", now
            yield "stats_peak_bytes", peak
        elif m[1] == "GPU reserved memory":
            yield "stats_reserved_bytes", now
        else:
            yield "inactive_split_bytes", now
    for m in STAT.finditer(text):
        yield NAMES[m[1]], int(m[2])
