"""Recorded stacks: py-spy, faulthandler, gdb, lldb, signal handlers with a backtrace, py-spy's JSON.

Every dump becomes threads of frames, innermost first, each with the line it stands on. Frames of C++
exceptions that PyTorch prints under an error (`frame #0: c10::Error...`) are no dump and are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from .capture_tables import patterns
from .files import Line

PY_SPY = re.compile(
    r"^\s*(?P<function>[\w.<>\[\]~$]{1,120}(?: \(inlined\))?) \((?P<file>[^()\s][^()]{0,300}?):(?P<line>\d{1,7})\)\s*$"
)
FAULTHANDLER = re.compile(r'^\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,7}),? in (?P<function>.{1,200})$')
GDB = re.compile(
    r"^\s*#(?P<depth>\d{1,4})\s+(?:0x[0-9a-fA-F]+ in )?(?P<function>[^\s(][^(]{0,300}?)\s*\(.{0,2000}?\)?"
    r"(?: (?:from|at) (?P<library>\S{1,300}))?$"
)
LLDB = re.compile(
    r"^\s*\*?\s*frame #(?P<depth>\d{1,4}): 0x[0-9a-fA-F]+ "
    r"(?P<library>[^`\s]{1,200})`(?P<function>.{1,300}?)(?: \+ \d+)?(?: at .*)?$"
)
SIGNAL = re.compile(
    r"^\s*(?:@|\d{1,3})\s+0x[0-9a-fA-F]+ {1,4}(?:\(unknown\)|(?P<function>\S.{0,300}?))"
    r"(?:\s+\(?(?P<library>\S+\.so[\w.]*|\?\?\?:0)\)?)?$"
)
UNKNOWN_FILE = re.compile(r'^\s*File "<unknown>", line 0, in (?P<function>.{1,300})$')
HEADER = re.compile(
    r"^(?:Thread 0x|Current thread 0x|Thread \d+ |Process \d+:|\* thread #\d|  thread #\d|Thread \d+ \()|"
    r"most recent call first|Segfault encountered|"
    r"\$ ?(?:sudo )?(?:py-spy|gdb|lldb|pystack|cat /proc/\d+/stack)|^\((?:gdb|lldb)\)"
)
COMMAND = re.compile(r"\$ ?(?:sudo )?(?:py-spy|gdb|lldb|pystack)|py-spy dump|\((?:gdb|lldb)\) (?:bt|thread|where)")
RANK = re.compile(r"\brank[ _=:]?(\d{1,6})\b", re.IGNORECASE)
CHILDREN = re.compile(r"(\d+) (?:child|worker|sub)[- ]?(?:processes|procs|workers)?.{0,40}"
                      r"(?:all the same|identical|same stack)|"
                      r"(?:all|each of the) (?:\d+ )?workers", re.IGNORECASE)  # fmt: skip
TORCH_EXCEPTION = re.compile(r"^\s*frame #\d+: .{1,400}\(0x[0-9a-f]+ in ")


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One frame: function, file or library, line number there, and the line of the dump it stands on."""

    function: str
    place: str
    number: int
    native: bool
    line: Line

    @property
    def text(self) -> str:
        where = f"{self.place}:{self.number}" if self.number else self.place
        return f"{self.function} ({where})" if where else self.function


@dataclass(slots=True)
class Stack:
    """A thread's frames, innermost first, under its header line."""

    header: Line | None = None
    frames: list[StackFrame] = field(default_factory=list)
    rank: int | None = None
    copies: int = 1  # the dump says that so many processes stand alike


def stacks(lines: Iterable[Line], limit: int = 400) -> list[Stack]:
    """All stacks of a text dump, at most `limit`; consecutive frame lines form one."""
    found: list[Stack] = []
    header: Line | None = None
    rank, copies = None, 1
    current: Stack | None = None
    for line in lines:
        text = line.text.rstrip()
        frame = _frame(text, line, current, header is not None)
        if frame is None:
            if HEADER.search(text) and not TORCH_EXCEPTION.match(text):
                header = line
                rank, copies = _of_header(text, rank, copies)
                current = None
            elif text.strip() and current is not None:
                current = None
            continue
        if current is None or (_depth(text) == 0 and current.frames):
            if len(found) >= limit:
                break
            current = Stack(header, rank=rank, copies=copies)
            found.append(current)
        current.frames.append(frame)
    return [s for s in found if len(s.frames) >= 2 or s.header]


def _of_header(text: str, rank: int | None, copies: int) -> tuple[int | None, int]:
    if COMMAND.search(text):
        m = RANK.search(text)
        children = CHILDREN.search(text)
        return (int(m[1]) if m else None), (int(children[1] or 2) if children else 1)
    return rank, copies


def _depth(text: str) -> int | None:
    m = GDB.match(text) or LLDB.match(text)
    return int(m["depth"]) if m else None


def _frame(text: str, line: Line, current: Stack | None, headed: bool) -> StackFrame | None:
    if not text or TORCH_EXCEPTION.match(text):
        return None
    if m := UNKNOWN_FILE.match(text):
        return StackFrame(m["function"].strip(), "", 0, True, line)
    if m := PY_SPY.match(text):
        native = not m["file"].endswith((".py", ".pyx", ">")) and ".py" not in m["file"]
        return StackFrame(m["function"], m["file"], int(m["line"]), native, line)
    if m := LLDB.match(text):
        return StackFrame(m["function"].strip(), m["library"], 0, True, line)
    if m := GDB.match(text):
        return StackFrame(m["function"].strip(), (m["library"] or "").rpartition("/")[2], 0, True, line)
    if (headed or current) and (m := FAULTHANDLER.match(text)):
        return StackFrame(m["function"].strip(), m["file"], int(m["line"]), False, line)
    if (headed or current) and (m := SIGNAL.match(text)) and m["function"]:
        return StackFrame(m["function"].strip(), (m["library"] or "").strip("?:0"), 0, True, line)
    return None


def json_stacks(text: str) -> list[Stack]:
    """`py-spy dump --json`: a list of threads; empty when it is another JSON. Frames stand on line 1."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(data, list):
        return []
    line = Line(1, 0, text[:4096].split("\n", 1)[0].encode())
    found = []
    for thread in data[:400]:
        if not isinstance(thread, dict) or not isinstance(thread.get("frames"), list):
            return []
        frames = [
            StackFrame(
                str(f.get("name")),
                str(f.get("filename")),
                int(f.get("line") or 0),
                not str(f.get("filename")).endswith(".py"),
                line,
            )
            for f in thread["frames"][:200]
            if isinstance(f, dict)
        ]
        found.append(Stack(line, frames))
    return found


WORKER = re.compile(r"_worker_loop|utils/data/_utils|worker\.py.{0,12}fetch|_utils/fetch", re.IGNORECASE)
STDLIB = re.compile(
    r"^(?:selectors|threading|queue|socket|ssl|subprocess|asyncio|concurrent|multiprocessing|multiprocess|popen_\w+|connection|"
    r"contextlib|functools|runpy|importlib|weakref|_?bootstrap)\b|/lib/python3\.\d+/(?!site-packages|dist-packages)|<frozen"
)
IDLE = re.compile(
    r"\b(?:_worker|worker_main|_bootstrap_inner|_recv_msg|_pin_memory_loop|tqdm/_monitor|_run_internal|selectors)\b"
)


def where(stack: Stack) -> tuple[str, StackFrame] | None:
    """What the thread is in, and the frame that tells it."""
    for frame in stack.frames:
        for name, pattern in patterns("stacks"):
            if pattern.search(frame.text):
                return name, frame
    return None


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
