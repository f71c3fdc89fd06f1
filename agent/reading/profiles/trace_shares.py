"""Where the time of a traced step went: unions of spans within the steps, as fractions of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .trace_events import Spans, Trace

if TYPE_CHECKING:
    import numpy as np

LISTED = 12
APART = 0.25  # of the step: ranks that differ so much in waiting wait for the one that waits least


@dataclass(slots=True)
class Shares:
    """Fractions of the traced time (0 to 1), counts a step, and the largest operators. None: cannot be told."""

    steps: int
    step_seconds: float | None
    seconds: float  # traced time that the fractions refer to
    fraction: dict[str, float] = field(default_factory=dict)
    per_step: dict[str, float] = field(default_factory=dict)
    kernel_mean_us: float | None = None
    ops: list[tuple[str, int, float]] = field(default_factory=list)  # name, calls, share of operator time of its own
    kernels: list[tuple[str, int, float]] = field(default_factory=list)  # name, calls, share of kernel time
    site: str = ""  # function of the user's code that most often reads a value from the device

    @property
    def has_gpu(self) -> bool:
        return "gpu_busy" in self.fraction

    @property
    def bound(self) -> str:
        """The part that holds up the step most: data, checkpoint, communication, sync, host, gpu or cpu."""
        f = self.fraction
        name, share = max(((n, f.get(n, 0.0)) for n in ("data", "checkpoint", "compile")), key=lambda kv: kv[1])
        if share >= 0.25:  # such waiting also explains a GPU that idles
            return name
        exposed = f.get("communication_exposed", 0.0)
        if exposed >= max(0.25, f.get("gpu_idle", 0.0)):
            return "communication"
        if not self.has_gpu:
            return "cpu"
        if f.get("gpu_idle", 0.0) < 0.3:
            return "gpu"
        return "sync" if self.per_step.get("syncs", 0) >= 5 or self.per_step.get("items", 0) >= 3 else "host"


def shares(trace: Trace) -> Shares | None:
    """The shares of a trace; None where it holds no span."""
    import numpy as np

    windows = _windows(trace)
    if windows is None:
        return None
    begin, end = windows
    total = float((end - begin).sum())
    count = len(begin) if trace.of("step").start else 0
    found = Shares(count, float(np.median(end - begin)) / 1e6 if count else None, total / 1e6)
    for part in ("data", "optimizer", "checkpoint", "compile", "sync"):
        if trace.of(part).start:
            found.fraction[part] = _covered([trace.of(part)], windows) / total
    _device(trace, found, windows, total)
    _host(trace, found, windows, total)
    found.ops = _own_time(trace)
    return found


def slow_rank(read: list[tuple[int, Shares]]) -> tuple[int, float, float] | None:
    """The rank the others wait for, its share of communication and the largest one; None where all wait alike.

    Who arrives last at a collective waits least in it.
    """
    waits = {rank: s.fraction["communication"] for rank, s in read if "communication" in s.fraction}
    if len(waits) < 2:
        return None
    least, most = min(waits, key=lambda r: waits[r]), max(waits.values())
    rest = [v for r, v in waits.items() if r != least]
    if min(rest) - waits[least] < APART:
        return None
    return least, waits[least], most


def _windows(trace: Trace) -> tuple[np.ndarray, np.ndarray] | None:
    """The steps of which every kind of span was kept; without marked steps the time from first to last span."""
    import numpy as np

    until = min((max(s.start) for s in trace.spans.values() if s.lost), default=np.inf)
    steps = trace.of("step")
    if steps.start:
        start, length = np.array(steps.start), np.array(steps.length)
        order = np.argsort(start, kind="stable")
        start, end = start[order], (start + length)[order]
        end[:-1] = np.minimum(end[:-1], start[1:])
        whole = end <= until
        return (start[whole], end[whole]) if whole.any() else None
    spans = [s for s in trace.spans.values() if s.start]
    if not spans:
        return None
    first = min(min(s.start) for s in spans)
    last = min(until, max(float((np.array(s.start) + np.array(s.length)).max()) for s in spans))
    return (np.array([first]), np.array([last])) if last > first else None


def _device(trace: Trace, found: Shares, windows: tuple, total: float) -> None:
    kernel, copies, nccl = trace.of("kernel"), trace.of("memcpy"), trace.of("nccl")
    if not (kernel.start or nccl.start):
        spans = trace.of("collective")
        if spans.start:
            found.fraction["communication"] = found.fraction["communication_exposed"] = (
                _covered([spans], windows) / total
            )
        return
    whole = (windows[0][:1], windows[1][-1:])
    span = float(whole[1][0] - whole[0][0])
    compute = _covered([kernel, copies], whole)
    busy = _covered([kernel, copies, nccl], whole)
    found.fraction |= {"gpu_busy": busy / span, "gpu_idle": max(0.0, 1 - busy / span), "gpu_compute": compute / span}
    if nccl.start:
        found.fraction["communication"] = _covered([nccl], whole) / span
        found.fraction["communication_exposed"] = (busy - compute) / span
    if copies.start:
        found.fraction["memcpy"] = _covered([copies], whole) / span
    if kernel.start:
        found.kernel_mean_us = sum(kernel.length) / len(kernel.length)
    spent = sum(kernel.length) + sum(nccl.length) or 1.0
    named = [(n, int(c), t / spent) for (k, n), (c, t) in trace.totals.items() if k in ("kernel", "nccl")]
    found.kernels = sorted(named, key=lambda x: -x[2])[:LISTED]


def _host(trace: Trace, found: Shares, windows: tuple, total: float) -> None:
    """Time between operators on the main thread, and how often it waits for or reads from the device."""
    import numpy as np

    main = _main_thread(trace)
    kinds = ("op", "runtime", "launch", "sync", "data", "optimizer", "checkpoint", "item")
    spans = [s for kind in kinds if (s := trace.of(kind)).start]
    if spans and main is not None:
        # the main thread waits for a collective outside of any operator, while a thread of the backend carries it out
        found.fraction["python"] = max(0.0, 1 - _covered(spans, windows, main, [trace.of("collective")]) / total)
    steps = max(found.steps, 1)
    for kind, name in (("sync", "syncs"), ("launch", "launches")):
        if trace.of(kind).start:
            found.per_step[name] = float(_within(np.array(trace.of(kind).start), windows).sum()) / steps
    items = trace.of("item")
    if items.start:
        at = np.array(items.start)
        outside = ~_inside(at, trace.of("optimizer")) & ~_inside(at, trace.of("data")) & _within(at, windows)
        found.per_step["items"] = float(outside.sum()) / steps
        found.site = _site(trace, at[outside][:400])


def _main_thread(trace: Trace) -> int | None:
    for kind in ("step", "optimizer", "op"):
        threads = trace.of(kind).thread
        if threads:
            return Counter(threads).most_common(1)[0][0]
    return None


def _site(trace: Trace, at: np.ndarray) -> str:
    """The innermost function of the user's own code that encloses most of these moments."""
    import numpy as np

    code = trace.of("code")
    if not code.start or not len(at):
        return ""
    start, end, name = np.array(code.start), np.array(code.start) + np.array(code.length), np.array(code.name)
    found: dict[str, int] = {}
    for moment in at:
        around = np.flatnonzero((start <= moment) & (end >= moment))
        if len(around):
            innermost = trace.names[name[around[np.argmax(start[around])]]]
            found[innermost] = found.get(innermost, 0) + 1
    return max(found, key=lambda n: found[n]) if found else ""


def _own_time(trace: Trace) -> list[tuple[str, int, float]]:
    """Operators by the time spent in themselves, without the operators they call."""
    import numpy as np

    ops = trace.of("op")
    if not ops.start:
        return []
    start, length = np.array(ops.start), np.array(ops.length)
    order = np.lexsort((-length, start, np.array(ops.thread)))
    own = length.copy()
    stack: list[tuple[int, float]] = []
    thread = None
    for i in order.tolist():
        if ops.thread[i] != thread:
            thread, stack = ops.thread[i], []
        while stack and stack[-1][1] <= ops.start[i]:
            stack.pop()
        if stack:
            own[stack[-1][0]] -= ops.length[i]
        stack.append((i, ops.start[i] + ops.length[i]))
    spent = np.bincount(np.array(ops.name), weights=np.maximum(own, 0), minlength=len(trace.names))
    calls = np.bincount(np.array(ops.name), minlength=len(trace.names))
    total = float(spent.sum()) or 1.0
    best = np.argsort(-spent)[:LISTED]
    return [(trace.names[i], int(calls[i]), float(spent[i]) / total) for i in best if spent[i] > 0]


def _covered(spans: list[Spans], windows: tuple, thread: int | None = None, anywhere: Sequence[Spans] = ()) -> float:
    """Microseconds of the windows that any of the spans covers, of one thread if named, `anywhere` of all threads."""
    import numpy as np

    starts, ends = [], []
    for s, own in [*((s, thread is not None) for s in spans), *((s, False) for s in anywhere)]:
        start = np.array(s.start)
        keep = np.array(s.thread) == thread if own else np.ones(len(start), bool)
        starts.append(start[keep])
        ends.append((start + np.array(s.length))[keep])
    start, end = np.concatenate(starts), np.concatenate(ends)
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], start[1:] > end[:-1]))
    begin = start[first]
    stop = end[np.concatenate((np.flatnonzero(first)[1:] - 1, [len(end) - 1]))]
    upto = np.concatenate(([0.0], np.cumsum(stop - begin)))

    def before(t: np.ndarray) -> np.ndarray:
        i = np.searchsorted(begin, t, side="right")
        over = np.where(i > 0, np.maximum(stop[np.maximum(i - 1, 0)] - t, 0), 0)
        return upto[i] - over

    return float((before(windows[1]) - before(windows[0])).sum())


def _inside(at: np.ndarray, spans: Spans) -> np.ndarray:
    """Which moments lie in any of the spans (which do not overlap each other)."""
    import numpy as np

    if not spans.start:
        return np.zeros(len(at), bool)
    start = np.array(spans.start)
    order = np.argsort(start, kind="stable")
    return _within(at, (start[order], (start + np.array(spans.length))[order]))


def _within(at: np.ndarray, windows: tuple) -> np.ndarray:
    import numpy as np

    i = np.searchsorted(windows[0], at, side="right") - 1
    return (i >= 0) & (at <= windows[1][np.maximum(i, 0)])
