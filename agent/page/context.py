"""What stands around the cited lines in their files, read again at their places and compared with what is cited."""

from __future__ import annotations

from collections.abc import Iterable
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
class Window:
    """Text around a cited line. `lead` counts the newlines before that line; `whole`: it begins with a whole line."""

    evidence: str
    file: str
    line: int
    text: str
    lead: int
    whole: bool

    def rows(self) -> dict[int, str]:
        """The lines to show by their numbers, the cited one among them."""
        lines = self.text.split("\n")
        first = max(0 if self.whole else 1, self.lead - LINES)
        if self.lead >= len(lines):
            return {}
        shown = lines[min(first, self.lead) : self.lead + LINES + 1]
        found = {self.line - self.lead + min(first, self.lead) + i: text.rstrip("\r") for i, text in enumerate(shown)}
        if shown and len(lines) <= self.lead + LINES + 1 and not lines[-1]:
            found.popitem()  # what follows the last newline is no line
        return found


def windows(workspace: Workspace, evidence: Iterable[CitedEvidence]) -> list[Window]:
    """A window for each line that still stands where it was cited. Large packed files are passed over."""
    files = {f.name: f for f in workspace.files}
    contents: dict[str, bytes | None] = {}
    found = []
    for e in evidence:
        if e.kind != "line" or e.line is None or e.offset is None or e.file not in files:
            continue
        if e.file not in contents:
            contents[e.file] = _unpacked(files[e.file])
        start, data = _around(files[e.file], contents[e.file], e.offset)
        if window := _window(e, start, data):
            found.append(window)
    return found


def _window(e: CitedEvidence, start: int, data: bytes) -> Window | None:
    """The window, if the line is there: after a newline, and saying what is cited."""
    at = (e.offset or 0) - start
    if at > len(data) or (at > 0 and data[at - 1 : at] != b"\n") or (at == 0 and start):
        return None
    line = data[at:].split(b"\n", 1)[0][:LINE_CAP].decode(errors="replace").rstrip("\r")
    if not line.startswith(e.text.rstrip("\r\ufffd")) or not (line or not e.text):
        return None
    lead = data.count(b"\n", 0, at)
    return Window(e.id, e.file or "", e.line or 1, data.decode(errors="replace"), lead, start == 0)


def _around(file: RunFile, content: bytes | None, offset: int) -> tuple[int, bytes]:
    """Where the text around an offset begins, and that text. Empty where the file cannot be read."""
    start = max(0, offset - BEFORE)
    end = offset + LINE_CAP + AFTER
    if content is not None:
        return start, content[start:end]
    try:
        with open_regular(file.path) as stream:
            stream.seek(start)
            return start, stream.read(end - start) or b""
    except (ParseError, OSError):
        return start, b""


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
