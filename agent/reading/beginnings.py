"""The first lines of the logs: what a training is told and counts stands there, before its steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from .files import Line, RunFile

if TYPE_CHECKING:
    from ..workspace import Workspace

LINES = 20_000  # of a log


def beginnings(ws: Workspace) -> Iterator[tuple[RunFile, Line]]:
    """The first lines of each log of the run at hand, with their file; a log of a good run is passed over."""
    for file in ws.by_role("log"):
        if not file.good:
            for line in islice(ws.lines(file), LINES):
                yield file, line
