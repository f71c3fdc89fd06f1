"""How much is sent: bytes of the first request, of each result, of the whole dialogue, by the model's window."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .fence import OPEN, SHUT

FIRST_BYTES = 31_500  # of the first request as it is encoded, tools and all; 32 kB is promised
BYTES_PER_TOKEN = 3.0  # of logs and JSON; prose has more
SMALL = 24_000  # tokens below which a model gets the small layout
SCANT = 12_000  # tokens below which the tools are told in a few words, and no list of causes is sent with them
UNKNOWN = 32_768  # tokens, where nobody says


@dataclass(frozen=True, slots=True)
class Room:
    """What fits.

    Attributes:
        first: bytes of the first request.
        result: characters of one tool's answer; `section`: of one playbook passage.
        checks: tools offered beside the general ones.
        dialogue: bytes that no request exceeds, tools and all; what is longer is shortened to `shortened`.
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

    @property
    def scant(self) -> bool:
        """Whether even the schemas of the tools are too much."""
        return self.window < SCANT


def room(window: int) -> Room:
    """The layout for a context window in tokens; 0 where it is unknown."""
    window = window or UNKNOWN
    whole = int(window * BYTES_PER_TOKEN)
    if window < SMALL:
        first = max(9_000, min(18_000, int(whole * 0.4)))
        checks = 0 if window < SCANT else 3
        return Room(window, first, 2_400, 600, checks, max(first, int(whole * 0.7)), max(first, int(whole * 0.5)))
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


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a text: its lines, and where the next page begins (`line` from 1; 0 where nothing is left)."""

    text: str
    line: int
    offset: int


def page(lines: Sequence[str], start: int, offset: int, most: int) -> Page:
    """At most so many characters from a line on; a line that is longer than that goes on at an offset.

    Args:
        start: the first line, from 1.
        offset: characters of that line that were shown before.
    """
    shown: list[str] = []
    left = most
    for number in range(start, len(lines) + 1):
        line = lines[number - 1][offset:] if number == start else lines[number - 1]
        if len(line) > left and shown:
            return Page("\n".join(shown), number, 0)
        if len(line) > left:
            return Page(line[:left], number, offset + left)
        shown.append(line)
        left -= len(line) + 1
    return Page("\n".join(shown), 0, 0)


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


def shortened(text: str, most: int, read_on: str) -> str:
    """The beginning of a text in about so many bytes, with the count of what is left out; fences stay closed."""
    if encoded(text) <= most + 80:
        return text
    head = text[:most]
    while encoded(head) > most:
        head = head[: int(len(head) * min(0.95, most / encoded(head)))]
    if head.rfind("\n") > len(head) // 2:
        head = head[: head.rindex("\n")]
    if head.rfind(OPEN) > head.rfind(SHUT):  # within a mark
        head = head[: head.rindex(OPEN)]
    closing = f"\n{OPEN}/data{SHUT}" if head.count(f"{OPEN}data ") > head.count(f"{OPEN}/data") else ""
    told = "; ".join(filter(None, [f"[shortened: {len(head)} of {len(text)} characters are shown", read_on]))
    return f"{head}{closing}\n{told}]"
