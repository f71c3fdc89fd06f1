"""Log templates: lines without their numbers, names and times, so that two runs can be told apart by what they say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..deadline import check
from .files import Line, RunFile
from .lines import is_bar, strip, without_escapes

if TYPE_CHECKING:
    from ..workspace import Workspace

TEMPLATES = 20_000  # of one run
FILE_BYTES = 24 << 20  # of one log that are looked at, from its start
RUN_BYTES = 96 << 20  # of all logs of one run
_LINE = 600  # bytes of a line that make its template
_VARIABLE = re.compile(
    r"""0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|(?:/[\w.@+\-]+){2,}/?|[-+]?\d[\d_.,:e+\-]*\w*|\b(?:nan|inf)\b"""
)
_SPACES = re.compile(r"\s+")


@dataclass(slots=True)
class Template:
    """A kind of line: how often it came, where first and last."""

    text: str
    file: RunFile
    first: Line
    last: Line
    count: int = 1


@dataclass(slots=True)
class Said:
    """Everything one run says. `whole` is false where a log was longer than is looked at, or kinds were too many."""

    templates: dict[str, Template]
    whole: bool = True


def template_of(line: bytes) -> str:
    """The kind of a line; empty for blank lines, progress bars and tables of numbers."""
    if is_bar(line):
        return ""
    body = strip(without_escapes(line[:_LINE]).decode(errors="replace")).body
    kind = _SPACES.sub(" ", _VARIABLE.sub("#", body)).strip()
    return kind if sum(c.isalpha() for c in kind) >= 6 else ""


def said(ws: Workspace, files: list[RunFile]) -> Said:
    """The kinds of lines in these logs, in the order in which they first came."""
    found, kinds, total = Said({}), {}, 0
    for file in files:
        for line in ws.lines(file):
            if line.offset > FILE_BYTES or total + line.offset > RUN_BYTES:
                found.whole = False
                break
            if not line.number & 1023:
                check()
            _take(found, kinds, file, line)
        total += min(file.size, FILE_BYTES)
    return found


def _take(found: Said, kinds: dict[bytes, str], file: RunFile, line: Line) -> None:
    wording = line.data[:_LINE].translate(None, b"0123456789")  # most lines of a log share theirs with an earlier one
    kind = kinds.get(wording)
    if kind is None:
        kind = template_of(line.data)
        if len(kinds) < 4 * TEMPLATES:
            kinds[wording] = kind
    if not kind:
        return
    held = found.templates.get(kind)
    if held is not None:
        held.count, held.last = held.count + 1, line
    elif len(found.templates) < TEMPLATES:
        found.templates[kind] = Template(kind, file, line, line)
    else:
        found.whole = False
