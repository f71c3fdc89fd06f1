"""Tracebacks as units, also where many ranks are interleaved; chains know which exception came first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ..run.clocks import Stamp, from_epoch, stamp_of
from ..run.files import Line, RunFile
from ..run.lines import Stripped, is_bar, segments, strip
from ..scan.anchors import cascade_kind, is_harmless, is_progress, is_telling

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# A failure as a unit: its frames, its exception, the telling lines of its message, and what it was raised from.


Kind = Literal["python", "exception", "native"]


@dataclass(frozen=True, slots=True)
class Read:
    """A line as the parsers see it."""

    line: Line
    stripped: Stripped
    stamp: Stamp | None

    @property
    def body(self) -> str:
        return self.stripped.body


@dataclass(slots=True)
class Frame:
    """One frame. `line` is the line of the file that shows its code, or names it where no code is printed."""

    path: str
    function: str
    number: int
    line: Line
    code: str = ""

    @property
    def text(self) -> str:
        return f"{self.path}:{self.function}: {self.code}".rstrip(": ")


@dataclass(slots=True)
class Failure:
    """One failure as a unit. `frames` run from the outermost to the innermost; `cause` was raised before it."""

    file: RunFile
    kind: Kind
    line: Line
    type: str = ""
    message: str = ""
    rank: int | None = None
    host: str | None = None
    source: str | None = None
    stamp: Stamp | None = None
    frames: list[Frame] = field(default_factory=list)
    details: list[tuple[Line, str]] = field(default_factory=list)
    cause: Failure | None = None
    cascade: str | None = None
    attempt: int | None = None
    repeated: int = 1
    start: Line | None = None

    @property
    def origin(self) -> Failure:
        """The first failure of its chain."""
        at, steps = self, 0
        while at.cause is not None and steps < 50:
            at, steps = at.cause, steps + 1
        return at

    @property
    def text(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def name(self) -> str:
        """The type as printed, without its module."""
        return self.type.rpartition(".")[2]


def reads(lines: Iterable[Line], labels: bool = False) -> Iterator[Read]:
    """Lines stripped, each with the time it inherits; of an overwritten line, the parts that are no bars."""
    last: Stamp | None = None
    for line in lines:
        for offset, part in segments(line.data[:65536]):
            text = part.decode(errors="replace")
            last = stamp_of(text) or last
            shown = (
                line
                if len(part) == len(line.data) or len(line.data) <= 4096
                else Line(line.number, line.offset + offset, part, cut=True)
            )
            yield Read(shown, strip(text, labels), last)


# ----------
# One traceback while it is read, line by line: Python, Ray, notebooks, faulthandler and native stacks.

FRAMES = 200  # frames kept of one traceback: the outermost and innermost of deeper ones
DETAILS = 12

START = re.compile(r"^(?P<before>.*?)(?P<word>Traceback|Stack) \(most recent call last\):?\s*$")
FILE_LINE = re.compile(
    r'^(?P<indent>[ \t|+]*)File "(?P<path>[^"]{1,500})", line (?P<number>\d+)(?:,? in (?P<function>.+))?$'
)
_EXCEPTION = re.compile(
    r"^[ \t|]*(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:\((?P<inner>[\w.]+)\))?(?::(?: (?P<message>.*)|$)|$)"
)
_ENDING = r"(?:Error|Exception|Interrupt|Exit|Fault|Failure|Died|Timeout|Expired|InvalidUsage|StopIteration)"
ALONE = re.compile(
    r"^(?:Uncaught (?:exception )?|Unhandled exception: |Caught exception: |Exception: |ERROR: |error: |E +)?"
    r"(?P<type>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}"
    + _ENDING
    + r")(?:\((?P<inner>[\w.]{1,80})\))?: (?P<message>\S.*)$"
)
INSIDE = re.compile(
    r"(?:^|[\s:\"'(])(?P<type>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}"
    + _ENDING
    + r")(?:\((?P<inner>[\w.]{1,80})\))?: (?P<message>\S.*)$"
)
_LINKED = re.compile(r"^[ \t|]*(?:During handling of the above exception|The above exception was the direct cause)")
_MARKS = re.compile(r"^[ \t|]*[\^~\- ]+$")
_IPY_FRAME = re.compile(
    r"^(?:File )?(?P<path>(?:/|~|[A-Za-z]:\\|\.)[^\s:]{1,400}|<[\w\-]+>|(?:Cell|Input) In ?\[\d+\])"
    r"(?::(?P<number>\d+))?,?"
    r"(?: line \d+)?(?: in (?P<function>[\w<>.]+|<cell line: \d+>))?(?:\(.*)?:?$"
)
_ARROW = re.compile(r"^-+> ?(?P<number>\d+)(?P<code>.*)$")
_NUMBERED = re.compile(r"^\s*\d+(?:\s.*)?$")
NATIVE = re.compile(
    r"(?i)!+ ?segfault encountered|fatal python error: |\*\*\* (?:sig\w+|aborted)|caught signal (?:4|6|7|8|11)\b"
    r"|stop reason = (?!step|breakpoint)"
    r"|\bsegmentation fault\b|aborted \(core dumped\)|bus error \(|illegal instruction|^aborted!?$"
    r"|double free or|free\(\): "
    r"|malloc\(\): |corrupted size vs|stack smashing|terminate called|process received signal|program received signal"
    r"|^check failed: "
)
_WHAT = re.compile(r"^\s*what\(\): +(?P<message>.*)$")
_NATIVE_FRAME = re.compile(
    r"^\s*\*? ?(?:frame )?#(?P<depth>\d+):? +(?:0x[0-9a-f]+ )?(?:in )?(?P<function>.+)$"
    r"|^\[ ?(?P<depth2>\d+)\] (?P<function2>.+)$"
)
_NOISE = re.compile(r"^\s*(?:frame #\d|Exception raised from |C\+\+ CapturedTraceback|#\d+ )")
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x")


class Unit:
    """A traceback being read."""

    def __init__(self, read: Read, failure: Failure, notebook: bool = False, inward: bool = True) -> None:
        self.failure = failure
        self.notebook = notebook
        self.inward = inward  # frames come outermost first
        self.after = False  # the exception line was seen
        self.header = read.stripped.header
        self.ranked = read.stripped.rank is not None
        self.indent = -1
        self.blanks = self.foreign = self.seen = 0
        self.linked = False
        self.threads = 0

    def takes(self, read: Read) -> bool:
        """Whether a line belongs to this unit; if so it is taken in."""
        body = read.body.rstrip()
        if not body.strip(" |"):
            self.blanks += 1
            return self.blanks <= (2 if self.after else 3)
        if self.failure.kind == "native":
            return self._native(read, body)
        return self._message(read, body) if self.after else self._frame(read, body)

    def _frame(self, read: Read, body: str) -> bool:
        self.blanks = 0
        if m := FILE_LINE.match(body):
            self.indent = len(m["indent"])
            self._push(Frame(m["path"], m["function"] or "<module>", int(m["number"]), read.line))
            return True
        if m := _ARROW.match(body):
            self.notebook = True
            self._code(read.line, m["code"].strip(), int(m["number"]))
            return True
        if self.notebook and (m := _IPY_FRAME.match(body)):
            self._push(Frame(m["path"], (m["function"] or "<module>").strip(), int(m["number"] or 0), read.line))
            return True
        if self.notebook and (_NUMBERED.match(body) or body.startswith("   ")):
            return True
        if body.startswith(("---", "===")) and self.notebook:
            return True
        return self._code_or_exception(read, body)

    def _code_or_exception(self, read: Read, body: str) -> bool:
        depth = len(body) - len(body.lstrip(" \t|+"))
        deeper = depth > max(self.indent, 0) if self.indent >= 0 else depth > 0
        if _MARKS.match(body) or "[Previous line repeated" in body:
            return True
        if deeper and self.failure.frames:
            frame = self.failure.frames[-1]
            if not frame.code and frame.line.number < read.line.number:
                self._code(read.line, body.strip(" |"), frame.number)
            return True
        m = _EXCEPTION.match(body)
        if m and not (read.stripped.header and not self.header) and not is_bar(body.encode()):
            self.raised(read, m)
            return True
        return False

    def raised(self, read: Read, m: re.Match[str]) -> None:
        """The exception line was reached; `m` holds its type and message."""
        f = self.failure
        f.type, f.message = m["type"] + (f"({m['inner']})" if m["inner"] else ""), (m["message"] or "").strip()
        f.line = read.line
        f.stamp = stamp_of(read.line.text) or f.stamp or read.stamp
        self.after, self.blanks = True, 0

    def _message(self, read: Read, body: str) -> bool:
        if _LINKED.match(body):
            self.linked = True
            self.blanks = 0
            return True
        if self.linked or START.match(body) or FILE_LINE.match(body):
            return False
        s = read.stripped
        fresh = s.header and not self.header
        if fresh or is_bar(body.encode()) or (not self.ranked and (ALONE.match(body) or is_progress(body))):
            return False
        if body.startswith(("$ ", "===", "---", "***", "+ ", ">>> ")) or self.seen >= 30:
            return False
        self.seen += 1
        if (
            len(self.failure.details) < DETAILS
            and is_telling(body)
            and not is_harmless(body)
            and not _NOISE.match(body)
        ):
            self.failure.details.append((read.line, body.strip()))
        if not self.failure.message:
            self.failure.message = body.strip()
        return True

    def _native(self, read: Read, body: str) -> bool:
        f = self.failure
        self.blanks = 0
        if m := _WHAT.match(body):
            f.message, f.line = m["message"], read.line
            return True
        if _THREAD.match(body):
            self.threads += 1
            return self.threads <= 1
        if m := FILE_LINE.match(body):
            self._push(Frame(m["path"], m["function"] or "", int(m["number"]), read.line, (m["function"] or "")))
            return True
        if m := _NATIVE_FRAME.match(body):
            name = (m["function"] or m["function2"]).strip()
            self._push(Frame(_library(name), name[:160], 0, read.line))
            return True
        return body.startswith("* thread") or body.strip().startswith(("frame", "[", "Exception raised from"))

    def _push(self, frame: Frame) -> None:
        frames = self.failure.frames
        if len(frames) >= FRAMES and self.inward:
            del frames[FRAMES // 2]
        if len(frames) < FRAMES:
            frames.append(frame)

    def _code(self, line: Line, code: str, number: int) -> None:
        if not self.failure.frames:
            self._push(Frame("<notebook>", "<module>", number, line))
        frame = self.failure.frames[-1]
        frame.code, frame.line = code[:400], line
        frame.number = frame.number or number


def _library(name: str) -> str:
    m = re.search(r"([\w.+\-]+\.(?:so|dylib|dll)[\w.]*)", name)
    return m[1] if m else "<native>"


# ----------


class Parser:
    """Feeds the lines of one file and hands out its failures. Lines of different ranks may be interleaved."""

    def __init__(self, file: RunFile) -> None:
        self._file = file
        self._open: dict[tuple[int | None, str | None], Unit] = {}
        self._last_rank: tuple[int, int] | None = None  # (line, rank) of the last ranked line of an error
        self.failures: list[Failure] = []

    def feed(self, read: Read) -> bool:
        """Take a line; whether it was part of a failure."""
        s = read.stripped
        key = (s.rank, s.source)
        unit = self._open.get(key)
        if unit is not None:
            if unit.takes(read):
                return True
            if not unit.after and unit.failure.frames and unit.foreign < 20 and self._is_foreign(read):
                unit.foreign += 1
                return False
            self._close(key)
        if s.rank is not None and s.level in ("error", "fatal"):
            self._last_rank = (read.line.number, s.rank)
        return self._begin(read, key, unit)

    def finish(self) -> list[Failure]:
        """All failures, in the order in which they began."""
        for key in list(self._open):
            self._close(key)
        self.failures.sort(key=lambda f: (f.start or f.line).number)
        return self.failures

    @staticmethod
    def _is_foreign(read: Read) -> bool:
        return is_bar(read.line.data) or (read.stripped.header and not START.match(read.body))

    def _begin(self, read: Read, key: tuple[int | None, str | None], before: Unit | None) -> bool:
        body = read.body.rstrip()
        linked = before.failure if before is not None and before.after else None
        if m := START.match(body):
            kind = m["before"].strip()
            inner = kind.endswith("Original") or (linked is not None and linked.name.endswith("ExceptionGroup"))
            chained = linked if before is not None and (before.linked or inner) else None
            unit = self._new(read, key, "python")
            unit.notebook = bool(re.search(r"\w {4,}$", m["before"]))
            self._link(unit, chained, inner)
            return True
        if before is not None and before.after and (m := FILE_LINE.match(body)):
            unit = self._new(read, key, "python")
            self._link(unit, linked, inner=True)
            return unit.takes(read)
        if (m := NATIVE.search(body)) and not is_harmless(body):
            unit = self._new(read, key, "native")
            unit.inward = False
            unit.failure.type, unit.failure.message = m[0].strip(" !*:="), body.strip()[:400]
            return True
        return self._alone(read, key, body)

    def _alone(self, read: Read, key: tuple[int | None, str | None], body: str) -> bool:
        if not body or body[0] in " \t{\"'#" or is_harmless(body):
            return False
        m = ALONE.match(body)
        if m is None and read.stripped.level in ("error", "fatal"):
            m = INSIDE.search(body[:4000])
        if m is None:
            return False
        unit = self._new(read, key, "exception")
        unit.raised(read, m)
        return True

    def _new(self, read: Read, key: tuple[int | None, str | None], kind: Kind) -> Unit:
        s, f = read.stripped, self._file
        rank = key[0] if key[0] is not None else f.rank
        if rank is None and s.source is None and self._last_rank and read.line.number == self._last_rank[0] + 1:
            rank = self._last_rank[1]  # the unlabelled rest of a message that a labelled line began
        failure = Failure(
            f,
            kind,
            read.line,
            rank=rank,
            host=s.host or f.host,
            source=s.source,
            stamp=read.stamp,
            attempt=f.attempt,
            repeated=s.repeated,
            start=read.line,
        )
        self._open[key] = unit = Unit(read, failure)
        return unit

    @staticmethod
    def _link(unit: Unit, other: Failure | None, inner: bool) -> None:
        """Chain two units: an inner one (Ray, DataLoader workers) is the origin of the one printed before it."""
        if other is None:
            return
        if inner:
            other.origin.cause = unit.failure if other.origin is not unit.failure else None
        else:
            unit.failure.cause = other

    def _close(self, key: tuple[int | None, str | None]) -> None:
        unit = self._open.pop(key)
        f = unit.failure
        if not unit.inward:
            f.frames.reverse()
        if f.type or f.frames:
            f.cascade = cascade_kind(f.text) or next(
                (k for _, d in f.details if (k := cascade_kind(d)) == "peer_lost"), None
            )
            self.failures.append(f)


# ----------
# What torchrun says of a failure: its summary block in the console, and the error.json of a rank.

_BLOCK = re.compile(r"^\s*(?P<key>time|host|rank|exitcode|error_file|traceback)\s*: (?P<value>.*)$")


def read_block(block: dict[str, Read], read: Read, file: RunFile, units: list[Failure]) -> None:
    """The launcher's summary block names rank, host, time and exit code of what it saw die first."""
    if "Root Cause (first observed failure)" in read.body:
        block.clear()
        block["open"] = read
        return
    if "open" not in block:
        return
    m = _BLOCK.match(read.body)
    if m is None:
        if read.body.startswith("=====") or read.line.number > block["open"].line.number + 20:
            block.clear()
        return
    block[m["key"]] = read
    if m["key"] == "traceback":
        units.append(_from_block(block, file))
        block.clear()


def _from_block(block: dict[str, Read], file: RunFile) -> Failure:
    def value(key: str) -> str:
        m = _BLOCK.match(block[key].body) if key in block else None
        return m["value"].strip() if m else ""

    read = block.get("exitcode") or block["traceback"]
    rank = re.match(r"\d+", value("rank"))
    code = re.match(r"-?\d+", value("exitcode"))
    signal = re.search(r"Signal \d+ \((SIG\w+)\)", value("traceback"))
    number = int(code[0]) if code else 0
    return Failure(
        file,
        "exception",
        read.line,
        "exit",
        f"exit code {number}" + (f" ({signal[1]})" if signal else ""),
        rank=int(rank[0]) if rank else None,
        host=value("host") or None,
        stamp=block["time"].stamp if "time" in block else read.stamp,
        cascade="launcher",
        start=block["open"].line,
    )


def error_json(ws: Workspace, file: RunFile) -> list[Failure]:
    """torchelastic's error.json: message, call stack and time of one rank's exception."""
    line = next(ws.lines(file), None)
    try:
        data = json.loads(ws.text(file, 1 << 20))
        message = data["message"]
        text = message if isinstance(message, str) else message["message"]
        extra = {} if isinstance(message, str) else message.get("extraInfo", {})
        stamp = from_epoch(float(extra["timestamp"])) if "timestamp" in extra else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    if line is None:
        return []
    kind, _, rest = str(text).partition(": ")
    failure = Failure(file, "exception", line, kind, rest, file.rank, file.host, stamp=stamp, attempt=file.attempt)
    stack = str(extra.get("py_callstack", ""))
    for m in re.finditer(r'File "([^"]+)", line (\d+), in (\S+)\n\s+(.*)', stack):
        failure.frames.append(Frame(m[1], m[3], int(m[2]), line, m[4]))
    return [failure]
