"""Where a stack stands: in a collective, the data loader, a lock, input or output, a library, user code.

Frames that a forked worker inherited from its parent (below `_worker_loop`) say nothing about the worker itself and
are left out of the judgement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .capture_tables import patterns
from .failure import Frame
from .stack_dumps import Stack, StackFrame

_TOLD_BY_PATH = frozenset({"collective", "checkpoint", "compile", "dataloader", "sync", "generate"})
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


def stood_at(frames: Sequence[Frame]) -> tuple[str, Frame] | None:
    """What a process was in when somebody ended it by hand, and the frame that tells it; None where no frame does.

    Args:
        frames: of the traceback that the interrupt left, from the outermost to the innermost.
    """
    for frame in reversed(frames):
        shown = f"{frame.function} ({frame.path}:{frame.number})"
        for name, pattern in patterns("stacks"):
            if name in _TOLD_BY_PATH and pattern.search(shown):
                return name, frame
    return None


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
