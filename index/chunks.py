"""Text cut into chunks at its headings, each with its path of headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

WORDS = 160  # a chunk's length; the embedding model reads 256 word pieces

_ATX = re.compile(r"^ {0,3}(#{1,6})\s+(\S.*?)\s*#*\s*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_SETEXT = re.compile(r"^ {0,3}(=+|-+)\s*$")
_BARE = re.compile(r"^[A-Z0-9][^.;:|<>{}=`#]{2,58}[^\s.,;:|<>{}=`]$")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage that is found and shown.

    Attributes:
        document: playbook slug (`memory/fragmentation`) or the name of a user document.
        headings: from the outermost to the innermost, without the document's name.
        extra: words that find the passage but are not shown (cause, signature examples).
    """

    document: str
    headings: list[str]
    text: str
    kind: str = "document"
    cause: str | None = None
    extra: str = field(default="", repr=False)

    @property
    def embedded(self) -> str:
        """What the embedding model reads: headings first, then the passage."""
        return "\n".join(part for part in (" > ".join(self.headings), self.text) if part)


def split(text: str) -> Iterator[tuple[list[str], str]]:
    """Passages of a text with their path of headings, in order; empty ones are left out.

    Markdown headings count outside code fences only. A text with fewer than two of them is read as plain
    text, where a short line standing alone is a heading.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    marks = _markdown_headings(lines)
    if len(marks) < 2:
        marks = marks | _bare_headings(lines)
    path: list[tuple[int, str]] = []
    passage: list[str] = []
    for number, line in enumerate(lines):
        if number not in marks:
            passage.append(line)
            continue
        yield from _passages([title for _, title in path], passage)
        level, title, taken = marks[number]
        passage = []
        if taken:  # the underline of a two-line heading belongs to it
            lines[number + 1] = ""
        path = [*((above, name) for above, name in path if above < level), (level, title)]
    yield from _passages([title for _, title in path], passage)


def _markdown_headings(lines: list[str]) -> dict[int, tuple[int, str, bool]]:
    """Line number -> (level, title, whether the next line underlines it)."""
    fenced = _fenced(lines)
    found: dict[int, tuple[int, str, bool]] = {}
    for number, line in enumerate(lines):
        if number in fenced:
            continue
        before = lines[number - 1].strip() if number else ""
        # one `#` may be a comment of a shell command that nobody fenced; it needs a blank line before it
        if (m := _ATX.match(line)) and (len(m[1]) > 1 or not before or number - 1 in found or number - 1 in fenced):
            found[number] = (len(m[1]), m[2], False)
        elif (
            number + 1 < len(lines)
            and not before
            and 0 < len(line.strip()) <= 80
            and (under := _SETEXT.match(lines[number + 1]))
            and len(under[1]) >= 3
        ):
            found[number] = (1 if under[1][0] == "=" else 2, line.strip(), True)
    return found


def _bare_headings(lines: list[str]) -> dict[int, tuple[int, str, bool]]:
    fenced = _fenced(lines)
    padded = ["", *lines, ""]
    return {
        number: (2, line.strip(), False)
        for number, line in enumerate(lines)
        if number not in fenced and _BARE.match(line.strip()) and not padded[number].strip()
        and not padded[number + 2].strip()
    }  # fmt: skip


def _fenced(lines: list[str]) -> set[int]:
    """Numbers of the lines inside code fences. A fence that never closes is no fence."""
    inside: set[int] = set()
    opened: tuple[int, str] | None = None
    for number, line in enumerate(lines):
        if not (m := _FENCE.match(line)):
            continue
        if opened is None:
            opened = (number, m[1])
        elif m[1][0] == opened[1][0] and len(m[1]) >= len(opened[1]):
            inside.update(range(opened[0], number + 1))
            opened = None
    return inside


def _passages(headings: list[str], lines: list[str]) -> Iterator[tuple[list[str], str]]:
    """One section as passages of about `WORDS` words, cut at blank lines, or anywhere in a long block."""
    taken: list[str] = []
    count = 0
    for block in _blocks(lines):
        size = sum(len(line.split()) for line in block)
        if taken and count + size > WORDS:
            yield headings, "\n".join(taken).strip()
            taken, count = [], 0
        taken += [*block, ""]
        count += size
    if "".join(taken).strip():
        yield headings, "\n".join(taken).strip()


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    block: list[str] = []
    count = 0
    for line in lines:
        if (not line.strip() or count > WORDS) and block:
            yield block
            block, count = [], 0
        words = line.split()
        if len(words) > WORDS:  # a paragraph written as one line
            yield from ([" ".join(words[i : i + WORDS])] for i in range(0, len(words), WORDS))
        elif words:
            block.append(line)
            count += len(words)
    if block:
        yield block
