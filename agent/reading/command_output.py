"""Output of commands as lines."""

from __future__ import annotations

from collections.abc import Iterator

from .files import Line


def output_lines(text: str) -> Iterator[Line]:
    """Lines of what a command printed, numbered from 1; offsets count bytes of the decoded text."""
    offset = 0
    for number, line in enumerate(text.split("\n"), 1):
        data = line.encode(errors="replace")
        yield Line(number, offset, data)
        offset += len(data) + 1
