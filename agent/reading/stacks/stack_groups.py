"""Stacks of many ranks held against each other: who stands with whom, who is the odd one out, who is stuck.

One analysis for recorded dumps and for processes dumped now: a `Place` knows how to cite its own source.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from ...core.types import Evidence
from ..run.files import Line
from ..run.lines import spans
from ..scan.anchors import patterns
from .stack_dumps import PY_SPY, Stack, StackFrame

# ----------
# Where a stack stands: in a collective, the data loader, a lock, input or output, a library, user code.
#
# Frames that a forked worker inherited from its parent (below `_worker_loop`) say nothing about the worker itself and
# are left out of the judgement.


LOOP = re.compile(r"\b_worker_loop\b")
WORKER = re.compile(r"_worker_loop|utils/data/_utils|worker\.py.{0,12}fetch|_utils/fetch", re.IGNORECASE)
ITERATOR = re.compile(r"DataLoaderIter\b|\b__next__ \(.{0,200}dataloader\.py|\b_next_data \(")
STDLIB = re.compile(
    r"^(?:selectors|threading|queue|socket|ssl|subprocess|asyncio|concurrent|multiprocessing|multiprocess|popen_\w+|connection|"
    r"contextlib|functools|runpy|importlib|weakref|_?bootstrap)\b|/lib/python3\.\d+/(?!site-packages|dist-packages)|<frozen"
)
IDLE = re.compile(
    r"\b(?:_worker|worker_main|_bootstrap_inner|_recv_msg|_pin_memory_loop|tqdm/_monitor|_run_internal|selectors)\b"
)


def own(stack: Stack) -> list[StackFrame]:
    """The frames that are the thread's own work, innermost first."""
    at = next((i for i, f in enumerate(stack.frames) if LOOP.search(f.function)), None)
    return stack.frames if at is None else stack.frames[: at + 1]


def is_worker(stack: Stack) -> bool:
    """Whether the stack is a data loader's worker process (and not a main thread that loads by itself)."""
    frames = own(stack)
    return any(WORKER.search(f.text) for f in frames) and not any(ITERATOR.search(f.text) for f in frames)


def is_idle(stack: Stack) -> bool:
    """Whether the thread only waits for something to do: a pool's thread, a worker without an order."""
    frames = own(stack)
    outside = [f for f in frames if not STDLIB.search(f.place)]
    if outside and LOOP.search(outside[0].function):
        return len(frames) > 1
    return all(STDLIB.search(f.place) or IDLE.search(f.text) for f in frames)


def where(stack: Stack) -> tuple[str, StackFrame]:
    """What the thread is in, and the frame that tells it.

    One of the names in `knowledge/captures.yaml`, else idle, worker, native, library or user.
    """
    frames = own(stack)
    innermost = next((f for f in frames if not STDLIB.search(f.place)), frames[0])
    if is_idle(stack):
        return "idle", innermost
    for frame in frames:
        for name, pattern in patterns("stacks"):
            if pattern.search(frame.text):
                return name, frame
    if is_worker(stack):
        return "worker", innermost
    if frames[0].native:
        return "native", innermost
    return "library" if library_of(innermost) else "user", innermost


def user_frame(stack: Stack) -> StackFrame | None:
    """The innermost frame of the user's own code."""
    return next((f for f in own(stack) if not f.native and not STDLIB.search(f.place) and library_of(f) is None), None)


def library_of(frame: StackFrame) -> str | None:
    """The package or shared library a frame belongs to; None for the standard library and user code."""
    if m := re.search(r"(?:site|dist)-packages/([A-Za-z0-9_]+)", frame.place):
        return m[1]
    if m := re.search(r"(?:^|/)(lib[A-Za-z0-9_+-]+?)(?:[.-]\d[\w.]*)?\.(?:so|dylib)", frame.place):
        return m[1]
    if re.search(r"\.dylib|\.so\b", frame.place):
        return frame.place.split(".")[0]
    if STDLIB.search(frame.place) or frame.native:
        return None
    head = frame.place.split("/")[0] if "/" in frame.place and not frame.place.startswith("/") else ""
    return head if re.fullmatch(r"[A-Za-z_]\w{1,40}", head) else None


# ----------

Cite = Callable[[Line, str, object, int | None], Evidence]

EMITS = (
    "stack.where", "stack.frame", "stack.native_frame", "stack.library", "stack.workers_stuck", "stack.group",
    "stack.rank_odd_one_out", "stack.process_odd_one_out", "stack.odd_where", "stack.collectives_differ",
    "stack.forked_lock",
)  # fmt: skip
FRAMES_PER_STACK = 4
STACKS_SHOWN, GROUPS_SHOWN, ODD_SHOWN = 24, 8, 4
MACHINERY = re.compile(r"(?:^|/)(?:torch|deepspeed|accelerate|fairscale|horovod|apex|ray)/")  # how, not why
LOCKING = re.compile(r"\bwith\b.{0,80}(?:lock|mutex|semaphore|condition)\b|\.acquire\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """A stack, what it is in, the frame that tells it, and where it was read (`source`)."""

    stack: Stack
    where: str
    frame: StackFrame
    rank: int | None
    source: str
    cite: Cite

    @property
    def member(self) -> tuple[int | None, int | str]:
        """The rank it counts for; without one the process, or the file."""
        if self.rank is not None:
            return self.rank, ""
        return None, self.stack.parent if self.stack.parent and self.worker else self.stack.pid or self.source

    @property
    def worker(self) -> bool:
        """Whether it is a data loader's worker."""
        return is_worker(self.stack)

    @property
    def shape(self) -> tuple[str, ...]:
        """What is equal for stacks that stand alike: place and frames outside the standard library."""
        return (self.where, *(f.text for f in own(self.stack) if not STDLIB.search(f.place)))

    def emit(self, frame: StackFrame, key: str, value: object) -> Evidence:
        """Evidence that quotes a frame of this stack."""
        return self.cite(frame.line, key, value, self.rank)


@dataclass(frozen=True, slots=True)
class Group:
    """Stacks that stand alike, and the ranks (or processes) they belong to."""

    places: tuple[Place, ...]
    members: tuple[str, ...]

    @property
    def text(self) -> str:
        """`7 ranks (0-6): collective: all_reduce (...), called from train (train.py:88)`."""
        first = self.places[0]
        caller = user_frame(first.stack)
        by = f", called from {caller.text}" if caller and caller is not first.frame else ""
        what = "worker process" if first.worker else "rank" if first.rank is not None else "process"
        many = len(self.places) if first.worker else len(self.members)
        plural = "es" if many > 1 and what.endswith("s") else "s" if many > 1 else ""
        of = " of rank" if first.worker and first.rank is not None else ""
        return f"{many} {what}{plural}{of} ({_spans(self.members)}): {first.where}: {first.frame.text}{by}"


def place(stack: Stack, rank: int | None, source: str, cite: Cite) -> Place | None:
    """A stack with where it stands; None without frames."""
    if not stack.frames:
        return None
    told, frame = where(stack)
    return Place(stack, told, frame, stack.rank if stack.rank is not None else rank, source, cite)


def told(places: list[Place]) -> list[Place]:
    """The places that say something: all but the idle ones, unless there are no others."""
    return [p for p in places if p.where != "idle"] or places


def groups(places: Iterable[Place]) -> list[Group]:
    """Equal stacks merged over ranks and processes, the largest group first."""
    by_shape: dict[tuple, list[Place]] = {}
    for p in places:
        if p.where != "idle":
            by_shape.setdefault((p.worker, *p.shape), []).append(p)
    found = [Group(tuple(ps), _names(ps)) for ps in by_shape.values()]
    return sorted(found, key=lambda g: (-len(g.members), g.members))


def analysed(places: list[Place], *, still: bool = False) -> list[Evidence]:
    """Everything the stacks say, without repetitions.

    Args:
        still: the stacks were seen unchanged over a while, so that standing elsewhere is no accident.
    """
    shown = told(places)
    found = [e for p in shown[:STACKS_SHOWN] for e in _stack(p)]
    for group in groups(shown)[:GROUPS_SHOWN]:
        found.append(group.places[0].emit(group.places[0].frame, "stack.group", group.text))
    found += [*_workers(shown), *_forked_lock(shown), *_odd_one_out(shown, still), *_collectives(shown)]
    return list({(e.key, str(e.value), e.file, e.line, e.text): e for e in found}.values())


def at_lock(p: Place) -> Place:
    """The same place, known to wait for a lock."""
    return replace(p, where="lock")


def _stack(p: Place) -> Iterator[Evidence]:
    yield p.emit(p.frame, "stack.where", p.where)
    for frame in _telling(p):
        yield p.emit(frame, "stack.frame", frame.text)
        if frame.native and frame is p.stack.frames[0]:
            yield p.emit(frame, "stack.native_frame", frame.text)
    owner = next(((f, lib) for f in own(p.stack) if (lib := library_of(f))), None)
    if owner:
        yield p.emit(owner[0], "stack.library", owner[1])


def _telling(p: Place) -> list[StackFrame]:
    """The frame that tells the place, the innermost ones outside the standard library, in that order."""
    frames = own(p.stack)
    outside = [f for f in frames if not STDLIB.search(f.place)]
    return list(dict.fromkeys([p.frame, *(outside or frames)[:FRAMES_PER_STACK]]))[:FRAMES_PER_STACK]


def _innermost(p: Place) -> StackFrame:
    frames = own(p.stack)
    return next((f for f in frames if not STDLIB.search(f.place)), frames[0])


def _workers(places: list[Place]) -> Iterator[Evidence]:
    """Several processes in the same innermost call: told by the dump's heading, or by equal stacks."""
    for p in places:
        if p.stack.copies > 1:
            yield p.emit(_innermost(p), "stack.workers_stuck", _innermost(p).text)
            yield p.emit(_innermost(p), "stack.where", "worker")
    workers = [p for p in places if p.worker and p.where != "idle"]
    same = Counter(_innermost(p).text for p in workers)
    for p in workers:
        frame = _innermost(p)
        if same[frame.text] > 1:
            yield p.emit(frame, "stack.workers_stuck", frame.text)
            yield p.emit(frame, "stack.where", "worker")
            return


def _forked_lock(places: list[Place]) -> Iterator[Evidence]:
    """A worker that waits for a lock: nobody in its process can hold it but a thread that fork left behind."""
    for p in places:
        if p.worker and p.where == "lock":
            yield p.emit(_innermost(p), "stack.forked_lock", _innermost(p).text)
            return


def _mains(places: list[Place]) -> dict[tuple, list[Place]]:
    """For each rank (or process) its main thread's stack; all its stacks where threads are not named."""
    by_member: dict[tuple, list[Place]] = {}
    for p in places:
        if not p.worker and p.stack.copies == 1:
            by_member.setdefault(p.member, []).append(p)
    return {
        m: [p for p in found if p.stack.thread == "MainThread"] or found
        for m, found in sorted(by_member.items(), key=str)
    }


def _odd_one_out(places: list[Place], still: bool) -> Iterator[Evidence]:
    """With most ranks in a collective (or otherwise all alike), those that stand elsewhere."""
    mains = _mains(places)
    waiting = {m for m, found in mains.items() if any(p.where == "collective" for p in found)}
    if not waiting and len(mains) >= 3:
        shapes = Counter(found[0].shape for found in mains.values())
        shape, count = shapes.most_common(1)[0]
        if count == len(mains) - 1 and still:
            waiting = {m for m, found in mains.items() if found[0].shape == shape}
    others = [m for m in mains if m not in waiting]
    if not waiting or not others or len(others) > len(waiting):
        return
    for member in others[:ODD_SHOWN]:
        p = mains[member][0]
        rank, process = member
        key = "stack.rank_odd_one_out" if rank is not None else "stack.process_odd_one_out"
        yield p.emit(p.frame, key, rank if rank is not None else process)
        yield p.emit(p.frame, "stack.odd_where", p.where)


def _collectives(places: list[Place]) -> Iterator[Evidence]:
    """Every rank in a collective, but not in the same one: called by different lines of the user's code."""
    mains = _mains(places)
    calls: dict[str, list[Place]] = {}
    for found in mains.values():
        at = next((p for p in found if p.where == "collective"), None)
        caller = user_frame(at.stack) if at else None
        if at is None or caller is None:
            return
        calls.setdefault(f"{at.frame.function} at {caller.place}:{caller.number}", []).append(at)
    calls = calls if len(calls) > 1 else _parted([p for same in calls.values() for p in same])
    if len(calls) < 2:
        return
    text = "; ".join(f"{_spans(_names(ps))}: {call}" for call, ps in sorted(calls.items(), key=lambda c: -len(c[1])))
    fewest = min(calls.values(), key=len)
    yield fewest[0].emit(fewest[0].frame, "stack.collectives_differ", text[:600])
    if len(fewest) * 2 < len(mains):
        for p in fewest[:ODD_SHOWN]:
            if p.rank is not None:
                yield p.emit(p.frame, "stack.rank_odd_one_out", p.rank)


def _parted(waiting: list[Place]) -> dict[str, list[Place]]:
    """Ranks that one line of the user's code brought here, by the call in which their ways part within packages.

    What differs only inside the machinery that runs collectives is no other way: one rank gathers a layer earlier.
    """
    ways = [[f for f in reversed(own(p.stack)) if not STDLIB.search(f.place)] for p in waiting]
    depth = next((n for n, same in enumerate(zip(*ways, strict=False)) if len({f.text for f in same}) > 1), None)
    if depth is None or any(MACHINERY.search(way[depth].place) for way in ways):
        return {}
    parted: dict[str, list[Place]] = {}
    for p, way in zip(waiting, ways, strict=True):
        parted.setdefault(f"{p.frame.function} through {way[depth].text}", []).append(p)
    return parted


def _names(places: Iterable[Place]) -> tuple[str, ...]:
    members = {p.member for p in places}
    return tuple(
        str(rank if rank is not None else source)
        for rank, source in sorted(members, key=lambda m: (m[0] is None, m[0] or 0, str(m[1])))
    )


def _spans(names: tuple[str, ...]) -> str:
    """`0-6, 9` for ranks, the names themselves otherwise."""
    if not all(n.isdigit() for n in names):
        return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    runs = spans(map(int, names))
    return ", ".join(runs[:12]) + (" ..." if len(runs) > 12 else "")


# ----------
# Recorded samples of stacks in collapsed form (`py-spy record -f raw`): frames joined by `;`, then a count.

ROW = re.compile(r"^(?P<frames>[^;\n]{1,400}(?:;[^;\n]{0,400}){1,400}) (?P<count>\d{1,9})$")
HEAD = re.compile(rb"\A[^;\n]{1,300}\([^;\n]{1,300}:\d+\)(?:;[^;\n]{1,300}){1,300} \d+\r?\n")


@dataclass(frozen=True, slots=True)
class Sampled:
    """A stack that was seen `count` times: where it stands, the user's own frame in it, and its line."""

    where: str
    own: str
    count: int
    line: Line


def is_collapsed(head: bytes) -> bool:
    """Whether a file starts with such a stack."""
    return HEAD.match(head) is not None


def samples(lines: Iterable[Line]) -> Iterator[Sampled]:
    """Every stack that was doing something."""
    for line in lines:
        row = ROW.match(line.text.rstrip())
        if row is None:
            continue
        frames = [f for part in row["frames"].split(";") if (f := _frame(part, line))]
        stack = Stack(line, frames[::-1])
        if not frames or is_idle(stack):
            continue
        own = user_frame(stack)
        yield Sampled(where(stack)[0], own.text if own else "", int(row["count"]), line)


def _frame(text: str, line: Line) -> StackFrame | None:
    m = PY_SPY.match(text)
    if m is None:
        return None
    return StackFrame(m["function"], m["file"], int(m["line"]), not m["file"].endswith((".py", ">")), line)
