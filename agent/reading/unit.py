"""One traceback while it is read, line by line: Python, Ray, notebooks, faulthandler and native stacks."""

from __future__ import annotations

import re

from .anchors import is_harmless, is_progress, is_telling
from .clocks import stamp_of
from .failure import Failure, Frame, Read
from .files import Line
from .lines import is_bar

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
