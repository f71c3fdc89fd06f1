"""Stacks recorded in the run's files: where every thread stands, which rank stands elsewhere than the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ..reading import stack_dumps as sd
from ..reading.anchor_lines import anchored
from ..reading.anchor_windows import excerpt
from ..reading.files import RunFile
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

FRAMES_PER_STACK = 4
STACKS_SHOWN = 24


@dataclass(frozen=True, slots=True)
class Place:
    """A stack in its file, with what it is in."""

    file: RunFile
    stack: sd.Stack
    where: str
    frame: sd.StackFrame

    @property
    def rank(self) -> int | None:
        return self.stack.rank if self.stack.rank is not None else self.file.rank


@tool(
    emits=(
        "stack.where", "stack.frame", "stack.native_frame", "stack.library", "stack.workers_stuck",
        "stack.rank_odd_one_out",
    ),
    recall=True,
)  # fmt: skip
def stacks(ws: Workspace) -> ToolResult:
    """Read recorded stack dumps (py-spy, faulthandler, gdb, lldb, crash handlers).

    Use for hangs and native crashes: says what every dumped thread stands in (a collective, the data loader,
    a lock, input or output, a checkpoint, compilation), which library the innermost frames belong to, whether
    all workers stand in the same call, and which rank stands elsewhere than the others.
    """
    found = anchored(ws)
    files = found.files("stack")
    read = {f.name: (f, _read(ws, f)) for f in files}
    places = [p for f, dumped in read.values() for s in dumped if (p := _place(f, s))]
    if not places:
        return not_applicable("no stack dump among the run's files")
    told = [p for p in places if p.where != "idle"] or places
    evidence = [e for p in told[:STACKS_SHOWN] for e in _stack(ws, p)]
    evidence += [*_workers(ws, told), *_odd_one_out(ws, told)]
    evidence = list({(e.key, str(e.value), e.file, e.line): e for e in evidence}.values())
    text = "\n".join(f"{p.file.name} rank {p.rank} in {p.where}: {p.frame.text}" for p in told[:60])
    if not evidence:
        return clean(f"{len(places)} stacks, none in a telling place", evidence, text)
    return finding(_summary(told), evidence, text)


def _read(ws: Workspace, file: RunFile) -> list[sd.Stack]:
    if file.path.suffix == ".json":
        return sd.json_stacks(ws.text(file, 8 << 20))
    return sd.stacks(excerpt(ws, file, "stack"))


def _place(file: RunFile, stack: sd.Stack) -> Place | None:
    if not stack.frames:
        return None
    told = sd.where(stack)
    native = stack.frames[0].native
    if told is None:
        # a native innermost frame, or the first frame outside the standard library, says where it stands
        frame = next((f for f in stack.frames if not sd.STDLIB.search(f.place)), stack.frames[0])
        return Place(file, stack, "native" if native else "library" if sd.library_of(frame) else "user", frame)
    idle = all(sd.STDLIB.search(f.place) or sd.IDLE.search(f.text) for f in stack.frames)
    return Place(file, stack, "idle" if idle else told[0], told[1])


def _stack(ws: Workspace, place: Place) -> Iterator[Evidence]:
    def cite(frame: sd.StackFrame, key: str, value: object) -> Evidence:
        return ws.cite(place.file, frame.line, key, value, rank=place.rank)

    yield cite(place.frame, "stack.where", place.where)
    for frame in _telling(place):
        yield cite(frame, "stack.frame", frame.text)
        if frame.native and frame is place.stack.frames[0]:
            yield cite(frame, "stack.native_frame", frame.text)
    owner = next(((f, lib) for f in place.stack.frames if (lib := sd.library_of(f))), None)
    if owner:
        yield cite(owner[0], "stack.library", owner[1])


def _telling(place: Place) -> list[sd.StackFrame]:
    """The frame that tells the place, the innermost ones outside the standard library, in that order."""
    outside = [f for f in place.stack.frames if not sd.STDLIB.search(f.place)]
    chosen = [place.frame, *(outside or place.stack.frames)[:FRAMES_PER_STACK]]
    return list(dict.fromkeys(chosen))[:FRAMES_PER_STACK]


def _workers(ws: Workspace, places: list[Place]) -> Iterator[Evidence]:
    """Several processes in the same innermost call: told by the dump's heading, or by equal stacks."""
    for p in places:
        innermost = next((f for f in p.stack.frames if not sd.STDLIB.search(f.place)), p.stack.frames[0])
        if p.stack.copies > 1:
            yield ws.cite(p.file, innermost.line, "stack.workers_stuck", innermost.text, rank=p.rank)
            yield ws.cite(p.file, innermost.line, "stack.where", "worker", rank=p.rank)
    workers = [p for p in places if any(sd.WORKER.search(f.text) for f in p.stack.frames)]
    same = Counter(p.stack.frames[0].text for p in workers)
    for p in workers:
        if same[p.stack.frames[0].text] > 1:
            yield ws.cite(p.file, p.stack.frames[0].line, "stack.workers_stuck", p.stack.frames[0].text, rank=p.rank)
            yield ws.cite(p.file, p.stack.frames[0].line, "stack.where", "worker", rank=p.rank)
            return


def _odd_one_out(ws: Workspace, places: list[Place]) -> Iterator[Evidence]:
    """With most ranks in a collective, the rank that stands elsewhere; one stack for a rank is enough."""
    by_rank: dict[int, list[Place]] = {}
    for p in places:
        if p.rank is not None:
            by_rank.setdefault(p.rank, []).append(p)
    waiting = {r for r, found in by_rank.items() if any(p.where == "collective" for p in found)}
    others = sorted(set(by_rank) - waiting)
    if len(waiting) >= 1 and others and len(others) <= len(waiting):
        for rank in others[:4]:
            p = by_rank[rank][0]
            yield ws.cite(p.file, p.frame.line, "stack.rank_odd_one_out", rank, rank=rank)


def _summary(places: list[Place]) -> str:
    count = Counter(p.where for p in places)
    return f"{len(places)} stack(s): " + ", ".join(f"{n} in {where}" for where, n in count.most_common(5))
