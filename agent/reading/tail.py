"""The end of a file: its last line with text, numbered without keeping the file."""

from __future__ import annotations

from ..errors import ParseError
from .files import LINE_LIMIT, Line, RunFile, blocks


def last_line(file: RunFile) -> Line | None:
    """The last line that is not blank; None when there is none or the file cannot be read."""
    number, offset, rest = 1, 0, b""
    try:
        for block in blocks(file.path):
            data = rest + block
            # keep from the start of the last line with text that this block shows
            start = data.rfind(b"\n", 0, len(data.rstrip())) + 1
            number += data.count(b"\n", 0, start)
            offset += start
            rest = data[start:]
    except (OSError, EOFError, ParseError):
        if not rest:
            return None
    line = rest.split(b"\n", 1)[0]
    return Line(number, offset, line[:LINE_LIMIT], len(line) > LINE_LIMIT) if line.strip() else None
