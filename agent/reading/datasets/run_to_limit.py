"""Samples that a run wrote down with their lengths: do nearly all of them end where the limit is?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..files import Line, RunFile
from ..settings import read_settings

if TYPE_CHECKING:
    from ...workspace import Workspace

FEWEST = 4  # samples
SHARE = 0.8  # of them that have the full length
LINES = 20_000
_LENGTH = re.compile(
    r"""[(\[]\s*(\d{1,6})\s+(?:new |generated |output )?tokens?\s*[)\]]|\bgenerated\s+(\d{1,6})\s+(?:new )?tokens?\b"""
    r"""|["'](?:n_tokens|num_tokens|(?:output|completion|generated|new|response)_(?:tokens|length|len))["']\s*:\s*(\d{1,6})\b"""
)


def at_limit(ws: Workspace, file: RunFile) -> tuple[Line, float] | None:
    """The first sample of full length and the share of such, where nearly all samples of a file ran to the limit."""
    asked = {s.value for s in read_settings(ws).asked("max_new_tokens") if not s.file.good}
    limit = asked.pop() if len(asked) == 1 else None
    if not isinstance(limit, int) or limit < 2:
        return None
    first, full, count = None, 0, 0
    for number, line in enumerate(ws.lines(file)):
        if number >= LINES:
            break
        for m in _LENGTH.finditer(line.text[:20_000]):
            length = int(next(g for g in m.groups() if g))
            if length > limit:
                return None  # lengths of something else
            count += 1
            full += length == limit
            first = first or (line if length == limit else None)
    return (first, round(full / count, 3)) if first and count >= FEWEST and full >= SHARE * count else None
