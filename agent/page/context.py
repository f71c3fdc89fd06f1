"""What stands around the cited lines in their files, read again at their places and compared with what is cited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..errors import ParseError
from ..nearby import AFTER, BEFORE
from ..reading.files import RunFile, blocks, open_regular
from ..reading.inflate import packing_of, utf16
from ..report import CitedEvidence
from ..types import LINE_CAP
from ..workspace import Workspace

LINES = 4  # shown before a cited line, and after it
_PACKED = 1 << 20  # bytes of a packed file up to which it is unpacked again
_UNPACKED = 8 << 20  # and of what it holds


@dataclass(slots=True)
class Span:
    """A stretch of a file that holds the surroundings of one or more cited lines; `start` is its offset."""

    start: int
    data: bytes
    text: str = ""

    def __post_init__(self) -> None:
        self.text = self.data.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Window:
    """A cited line in its span, whose text may change but never how many lines it has; `lead` counts those before."""

    evidence: str
    line: int
    span: Span
    lead: int

    def rows(self) -> dict[int, str]:
        """The lines to show by their numbers, the cited one among them."""
        lines = self.span.text.split("\n")
        if not lines[-1]:
            lines.pop()  # what follows the last newline is no line
        first = max(1 if self.span.start else 0, self.lead - LINES)  # a line that began before the span is none
        shown = lines[first : self.lead + LINES + 1]
        return {self.line - self.lead + first + i: text.rstrip("\r") for i, text in enumerate(shown)}


def windows(workspace: Workspace, evidence: Iterable[CitedEvidence]) -> list[Window]:
    """A window for each line that still stands where it was cited. Large packed files are passed over."""
    files = {f.name: f for f in workspace.files}
    by_file: dict[str, list[CitedEvidence]] = {}
    for e in evidence:
        if e.kind == "line" and e.line is not None and e.offset is not None and e.file in files:
            by_file.setdefault(e.file, []).append(e)
    return [w for name, found in by_file.items() for w in _windows(files[name], found)]


def _windows(file: RunFile, evidence: list[CitedEvidence]) -> Iterator[Window]:
    """Windows of one file; lines near each other share a span, so that it is looked through once."""
    content = _unpacked(file)
    groups: list[tuple[int, int, list[CitedEvidence]]] = []
    for e in sorted(evidence, key=lambda e: e.offset or 0):
        low, high = max(0, (e.offset or 0) - BEFORE), (e.offset or 0) + LINE_CAP + AFTER
        if groups and low <= groups[-1][1]:
            groups[-1] = (groups[-1][0], high, [*groups[-1][2], e])
        else:
            groups.append((low, high, [e]))
    for low, high, group in groups:
        span = Span(low, content[low:high] if content is not None else _read(file, low, high))
        yield from (w for e in group if (w := _window(e, span)))


def _window(e: CitedEvidence, span: Span) -> Window | None:
    """The window, if the line is there: after a newline, and saying what is cited."""
    at, data = (e.offset or 0) - span.start, span.data
    if at >= len(data) or (at > 0 and data[at - 1 : at] != b"\n") or (at == 0 and span.start):
        return None
    end = data.find(b"\n", at, at + LINE_CAP)
    line = data[at : end if end >= 0 else at + LINE_CAP].decode(errors="replace").rstrip("\r")
    if not line.startswith(e.text.rstrip("\r\ufffd")) or (line and not e.text.strip("\r")):
        return None
    return Window(e.id, e.line or 1, span, data.count(b"\n", 0, at))


def _read(file: RunFile, start: int, end: int) -> bytes:
    """Bytes of a plain file; none where it cannot be read."""
    try:
        with open_regular(file.path) as stream:
            stream.seek(start)
            return stream.read(end - start) or b""
    except (ParseError, OSError):
        return b""


def _unpacked(file: RunFile) -> bytes | None:
    """The content of a small packed file, nothing of a large one; None for a plain one, which is read in place."""
    try:
        with open_regular(file.path) as stream:
            head = stream.read(2048) or b""
        if not packing_of(head) and not utf16(head):
            return None
        data = bytearray()
        if file.size <= _PACKED:
            for block in blocks(file.path):
                data += block
                if len(data) >= _UNPACKED:
                    break
        return bytes(data[:_UNPACKED])
    except (ParseError, OSError):
        return b""
