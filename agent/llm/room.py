"""How much is sent: bytes of the first request, of each result, of the whole dialogue, by the model's window."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

FIRST_BYTES = 31_500  # of the first request as it is encoded, tools and all; 32 kB is promised
BYTES_PER_TOKEN = 3.0  # of logs and JSON; prose has more
SMALL = 24_000  # tokens below which a model gets the small layout
UNKNOWN = 32_768  # tokens, where nobody says


@dataclass(frozen=True, slots=True)
class Room:
    """What fits.

    Attributes:
        first: bytes of the first request.
        result: characters of one tool's answer; `section`: of one playbook passage.
        checks: tools offered beside the general ones.
        dialogue: bytes of a request from which older results are shortened, and to which (`shortened`).
    """

    window: int
    first: int
    result: int
    section: int
    checks: int
    dialogue: int
    shortened: int

    @property
    def small(self) -> bool:
        """Whether the model reads so little that nothing may be shown twice."""
        return self.window < SMALL


def room(window: int) -> Room:
    """The layout for a context window in tokens; 0 where it is unknown."""
    window = window or UNKNOWN
    whole = int(window * BYTES_PER_TOKEN)
    if window < SMALL:
        first = max(9_000, min(18_000, int(whole * 0.4)))
        return Room(window, first, 2_400, 600, 3, int(whole * 0.7), int(whole * 0.5))
    most = min(whole, 600_000)
    return Room(window, FIRST_BYTES, 8_000, 1_500, 6, int(most * 0.75), int(most * 0.5))


def encoded(text: str) -> int:
    """Bytes of a text within a request."""
    return len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) - 2


def fitting(lines: Iterable[str], most: int) -> tuple[list[str], int]:
    """As many of the first lines as fit into so many bytes, and how many do not."""
    kept: list[str] = []
    left = 0
    for line in lines:
        size = encoded(line) + 2
        if left or size > most:
            left += 1
            continue
        kept.append(line)
        most -= size
    return kept, left


def cut(text: str, most: int, read_on: str) -> str:
    """A text at most so long, cut at a line, with exact counts of what is not shown and how to read it."""
    if len(text) <= most:
        return text
    head = text[:most]
    if "\n" in head:
        head = head[: head.rindex("\n")]
    lines, shown = text.count("\n") + 1, head.count("\n") + 1
    told = f"[cut: {shown} of {lines} lines and {len(head)} of {len(text)} characters are shown; {read_on}]"
    return f"{head}\n{told}"
