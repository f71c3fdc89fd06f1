"""Output of commands as lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .files import Line


def output_lines(text: str) -> Iterator[Line]:
    """Lines of what a command printed, numbered from 1; offsets count bytes of the decoded text."""
    offset = 0
    for number, line in enumerate(text.split("\n"), 1):
        data = line.encode(errors="replace")
        yield Line(number, offset, data)
        offset += len(data) + 1


def fact_of(line: Line) -> dict[str, Any]:
    """The JSON object that one of our own probes printed on a line; empty for anything else."""
    try:
        fact = json.loads(line.data)
    except ValueError:
        return {}
    return fact if isinstance(fact, dict) else {}
