"""One log file as a whole: its lines, its ranks, how it begins and how it ends."""

from __future__ import annotations

from dataclasses import dataclass

from .anchors import is_progress
from .clocks import Stamp, stamp_of
from .files import LINE_LIMIT, Line, RunFile, open_regular
from .harvest import Harvest
from .inflate import packing_of
from .lines import segments, strip

_STEP_BACK, _STEPS_BACK = 1 << 20, 64  # bytes of one step back for the start of a line, and how many


@dataclass(slots=True)
class FileSummary:
    """What the pass knows of one file as a whole.

    `ranks` maps each rank that labels lines to where it spoke; `events` counts lines that look like trouble,
    `anchors` places some of them as `(offset, line)`.
    """

    file: RunFile
    harvest: Harvest
    labels: bool = False
    first_line: Line | None = None
    last_line: Line | None = None
    last_progress: Line | None = None
    first_stamp: Stamp | None = None
    last_stamp: Stamp | None = None
    restarts: list[tuple[Line, int]] | None = None  # where attempts begin, once asked for

    @property
    def lines(self) -> int:
        return self.harvest.lines + (1 if self.harvest.unterminated else 0)

    @property
    def anchors(self) -> list[tuple[int, int]]:
        return [*self.harvest.anchors, *self.harvest.late_anchors]


def summarize(summary: FileSummary) -> None:
    """First and last lines and times, and the last line of progress, from the ends of the file."""
    h = summary.harvest
    head = h.head.split(b"\n")
    offset = 0
    for number, data in enumerate(head, 1):
        if data.strip():
            summary.first_line = summary.first_line or Line(number, offset, data)
            summary.first_stamp = summary.first_stamp or stamp_of(data[:400].decode(errors="replace"))
            if summary.first_stamp:
                break
        offset += len(data) + 1
    end = len(h.tail)
    number = h.tail_line + h.tail.count(b"\n") + 1
    while end >= 0 and not (summary.last_line and summary.last_progress and summary.last_stamp):
        start = h.tail.rfind(b"\n", 0, end) + 1
        data, offset = h.tail[start:end], h.tail_offset + start
        if start == 0 and h.tail_offset:  # what is kept of the file's end begins amid a line
            offset, data = _whole(summary.file, offset, data)
        if data.strip():
            _note_late(summary, Line(number, offset, data, len(data) >= LINE_LIMIT))
        number -= 1
        end = start - 1


def _whole(file: RunFile, offset: int, data: bytes) -> tuple[int, bytes]:
    """Where a long line really begins, and its start; nothing for a packed file, or where the search is too long."""
    with open_regular(file.path) as raw:
        if packing_of(raw.read(16) or b""):
            return offset, b""
        for _ in range(_STEPS_BACK):
            before = max(0, offset - _STEP_BACK)
            raw.seek(before)
            at = (raw.read(offset - before) or b"").rfind(b"\n")
            offset = before + at + 1
            if at >= 0 or before == 0:
                raw.seek(offset)
                return offset, (raw.read(LINE_LIMIT) or b"").split(b"\n", 1)[0]
    return offset, b""


def _note_late(summary: FileSummary, line: Line) -> None:
    summary.last_line = summary.last_line or line
    shown = segments(line.data[-8192:])[-1][1]
    text = shown.decode(errors="replace")
    summary.last_stamp = summary.last_stamp or stamp_of(text)
    if summary.last_progress is None and is_progress(strip(text, summary.labels).body):
        summary.last_progress = line
