"""Stacks as tools print them: py-spy (text and JSON), faulthandler, gdb, lldb, pystack, probing, signal handlers.

Every dump becomes threads of frames, innermost first, each with the line it stands on. Frames of C++
exceptions that PyTorch prints under an error (`frame #0: c10::Error...`, `#4 c10::... from Logging.cpp:0`) are no
dump and are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..run.files import Line
from ..scan.anchors import rank_of

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
    r"most recent call first|Traceback for thread \d+|Segfault encountered|"
    r"\$ ?(?:sudo )?(?:py-spy|gdb|lldb|pystack|cat /proc/\d+/stack)|^\((?:gdb|lldb)\)"
)
COMMAND = re.compile(r"\$ ?(?:sudo )?(?:py-spy|gdb|lldb|pystack)|py-spy dump|\((?:gdb|lldb)\) (?:bt|thread|where)")
RANK = re.compile(r"\brank[ _=:]?(\d{1,6})\b", re.IGNORECASE)
CHILDREN = re.compile(r"(\d+) (?:child|worker|sub)[- ]?(?:processes|procs|workers)?.{0,40}"
                      r"(?:all the same|identical|same stack)|"
                      r"(?:all|each of the) (?:\d+ )?workers", re.IGNORECASE)  # fmt: skip
TORCH_EXCEPTION = re.compile(
    r"^\s*frame #\d+: .{1,400}\(0x[0-9a-f]+ in |^\s*#\d+ \S.{0,2000} from (?:\?\?|\S+\.(?:cpp|cc|cxx|cu|h|hpp)):\d+$"
)
PREFIX = re.compile(r"^(?:\[(?:rank|default|Rank )\d{1,6}\]: ?|\d{1,5}: )")
PROCESS = re.compile(r"^Process (?P<pid>\d{1,9}): ")
PARENT = re.compile(r"^Parent Process (?P<pid>\d{1,9}): ")
THREAD = re.compile(r'^Thread (?P<id>(?:0x)?[0-9a-fA-F]+) \((?P<state>[^)]{1,40})\)(?:: "(?P<name>[^"]{0,200})")?')
GDB_PYTHON = re.compile(
    r"^\s*#\d+ Frame 0x[0-9a-f]+, for file (?P<file>[^,]{1,400}), line (?P<line>\d{1,7}), in (?P<function>\S{1,200})"
)
PYSTACK_HEAD = re.compile(r"^Traceback for thread (?P<pid>\d+) .*most recent call last")
PYSTACK = re.compile(
    r'^\s*\((?P<kind>Python|C)\) File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,7}), in (?P<function>.{1,200})$'
)
PROBING = re.compile(r"^\[Python\] file: (?P<file>\S.{0,400}?):(?P<line>\d{1,7}) func: (?P<function>\S.{0,200})$")
PROBING_NATIVE = re.compile(r"^\[C/C\+\+\] 0x[0-9a-f]+, file: (?P<file>[^\n]{0,400}):(?P<line>\d{1,7})$")
INTERPRETER = re.compile(
    r"^(?:_RN|_?Py[A-Z_]|_?py[a-z]*_|run_(?:eval|mod)|cfunction_|method_vectorcall|__libc_start|_start$)|probing"
)


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One frame: function, file or library, line number there, and the line of the dump it stands on."""

    function: str
    place: str
    number: int
    native: bool
    line: Line
    indent: int = -1  # of a format that prints the source line under its frames

    @property
    def text(self) -> str:
        where = f"{self.place}:{self.number}" if self.number else self.place
        return f"{self.function} ({where})" if where else self.function


@dataclass(slots=True)
class Stack:
    """A thread's frames, innermost first, under its header line; what the dump says of its process and state."""

    header: Line | None = None
    frames: list[StackFrame] = field(default_factory=list)
    rank: int | None = None
    copies: int = 1  # the dump says that so many processes stand alike
    pid: int | None = None
    parent: int | None = None
    thread: str = ""
    state: str = ""


@dataclass(slots=True)
class _Heading:
    """What the headings above a stack have said so far."""

    line: Line | None = None
    rank: int | None = None
    copies: int = 1
    pid: int | None = None
    parent: int | None = None
    thread: str = ""
    state: str = ""
    reversed: bool = False

    def take(self, text: str, line: Line) -> bool:
        """Read a heading; False where the line is none."""
        if m := PARENT.match(text):
            self.parent = int(m["pid"])
        elif HEADER.search(text) and not TORCH_EXCEPTION.match(text):
            self.line, self.thread, self.state, self.reversed = line, "", "", False
            if COMMAND.search(text):
                m, children = RANK.search(text), CHILDREN.search(text)
                self.rank = int(m[1]) if m else None
                self.copies = int(children[1] or 2) if children else 1
                self.pid = self.parent = None
            if m := PROCESS.match(text):
                self.pid, self.parent = int(m["pid"]), None
            if m := THREAD.match(text):
                main = m["id"] == str(self.pid)  # the kernel numbers the first thread as the process
                self.thread, self.state = m["name"] or ("MainThread" if main else ""), m["state"]
            if m := PYSTACK_HEAD.match(text):
                self.reversed = True
        else:
            return False
        return True

    def stack(self) -> Stack:
        return Stack(self.line, [], self.rank, self.copies, self.pid, self.parent, self.thread, self.state)


def stacks(lines: Iterable[Line], limit: int = 4000) -> list[Stack]:
    """All stacks of a text dump, at most `limit`; consecutive frame lines form one."""
    found: list[Stack] = []
    heading = _Heading()
    current: Stack | None = None
    native: re.Match[str] | None = None  # probing names a native frame on the line after its address
    for line in lines:
        prefix = PREFIX.match(line.text)
        text = line.text[prefix.end() if prefix else 0 :].rstrip()
        if m := PROBING_NATIVE.match(text):
            native, heading.line = m, heading.line or line
            continue
        if native and text.startswith("\t"):
            frame, native = _native(text.strip(), native, line), None
            if frame is None:
                continue
        else:
            frame = _frame(text, line, current, heading.line is not None)
        if frame is None:
            if heading.take(text, line) or (text.strip() and current is not None and not _beside(text, current)):
                current = None
            continue
        if current is None or (_depth(text) == 0 and current.frames):
            if len(found) >= limit:
                break
            current = heading.stack()
            if prefix and current.rank is None:
                current.rank = rank_of(line.data)
            found.append(current)
        if heading.reversed:
            current.frames.insert(0, frame)
        else:
            current.frames.append(frame)
    return [s for s in found if len(s.frames) >= 2 or s.header]


def _beside(text: str, current: Stack) -> bool:
    """Lines that stand between the frames of a stack: a source line, probing's native names and blank locals."""
    if text.startswith("\t"):
        return True
    last = current.frames[-1]
    return not last.native and last.indent >= 0 and len(text) - len(text.lstrip()) > last.indent


def _native(name: str, at: re.Match[str], line: Line) -> StackFrame | None:
    """A native frame of probing; None for those of the interpreter and of probing itself."""
    if INTERPRETER.search(name) or "/Python-3." in at["file"]:
        return None
    return StackFrame(name[:300], at["file"].rpartition("/")[2], int(at["line"]), True, line)


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
    if m := GDB_PYTHON.match(text) or PROBING.match(text):
        return StackFrame(m["function"].strip(), m["file"], int(m["line"]), False, line)
    if m := GDB.match(text):
        return StackFrame(m["function"].strip(), (m["library"] or "").rpartition("/")[2], 0, True, line)
    if m := PYSTACK.match(text):
        return StackFrame(
            m["function"].strip(), m["file"], int(m["line"]), m["kind"] == "C", line, len(text) - len(text.lstrip())
        )
    if (headed or current) and (m := FAULTHANDLER.match(text)):
        return StackFrame(m["function"].strip(), m["file"], int(m["line"]), False, line, len(text) - len(text.lstrip()))
    if (headed or current) and (m := SIGNAL.match(text)) and m["function"]:
        return StackFrame(m["function"].strip(), (m["library"] or "").strip("?:0"), 0, True, line)
    return None


def json_stacks(text: str) -> list[Stack]:
    """`py-spy dump --json`: lists of threads, one a process; empty when it is another JSON.

    Frames stand on the lines of their names, or on line 1 where those cannot be told.
    """
    threads = list(_threads(text))
    count = sum(len(t["frames"]) for t in threads)
    names = list(_named_lines(text))
    first = Line(1, 0, text[:4096].split("\n", 1)[0].encode())
    lines = iter(names if len(names) == count else [first] * count)
    found = []
    for thread in threads:
        frames = [_json_frame(f, line) for f, line in zip(thread["frames"], lines, strict=False)]
        process = thread.get("process_info") if isinstance(thread.get("process_info"), dict) else {}
        found.append(
            Stack(
                frames[0].line if frames else first, frames[:200], None, 1, _int(thread.get("pid")),
                _int((process or {}).get("parent_pid")), str(thread.get("thread_name") or ""),
                "active" if thread.get("active") else "idle",
            )
        )  # fmt: skip
    return found


def _int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _threads(text: str, limit: int = 4000) -> Iterator[dict]:
    decoder, at = json.JSONDecoder(), 0
    while at < len(text) and limit > 0:
        try:
            data, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        for thread in data[:limit] if isinstance(data, list) else ():
            frames = thread.get("frames") if isinstance(thread, dict) else None
            if not isinstance(frames, list) or not all(isinstance(f, dict) for f in frames):
                return
            limit -= 1
            yield thread
        while at < len(text) and text[at] in " \r\n\t":
            at += 1


def _json_frame(f: dict, line: Line) -> StackFrame:
    number = f.get("line") if isinstance(f.get("line"), int) else 0
    place = str(f.get("filename"))
    return StackFrame(str(f.get("name")), place, number or 0, not place.endswith((".py", ".pyx", ">")), line)


def _named_lines(text: str) -> Iterator[Line]:
    """The lines that hold a frame's name, one each in a dump that was not squeezed together."""
    offset = 0
    for number, row in enumerate(text.split("\n"), 1):
        data = row.encode()
        if row.lstrip().startswith('"name": '):
            yield Line(number, offset, data)
        offset += len(data) + 1
