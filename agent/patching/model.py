"""What a change is made of: what was asked, what was done, and what has to be done by hand."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class _Remove(Enum):
    TOKEN = 0

    def __repr__(self) -> str:
        return "REMOVE"


REMOVE: Final = _Remove.TOKEN


@dataclass(frozen=True, slots=True)
class Edit:
    """One value that was changed, put in or taken out. `old` and `new` are what stands in the file ("" for nothing)."""

    name: str
    key: str
    line: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Snippet:
    """What could not be written safely: the text to put in by hand ("" where none is known), and why."""

    name: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Changed:
    """A text after its changes. `text` is the old one where nothing was to be done."""

    text: str
    edits: tuple[Edit, ...] = ()
    snippets: tuple[Snippet, ...] = ()


@dataclass(frozen=True, slots=True)
class Splice:
    """Characters of a text that are replaced. `key` is the leaf they belong to."""

    start: int
    end: int
    text: str
    key: str = ""


class Unplaced(Exception):
    """A change that cannot be written safely; the reason is one line. It becomes a snippet."""


def spliced(text: str, splices: list[Splice]) -> str:
    """The text with its splices made; they must not overlap."""
    for s in sorted(splices, key=lambda s: (s.start, s.end), reverse=True):
        text = text[: s.start] + s.text + text[s.end :]
    return text


def same(a: Any, b: Any) -> bool:
    """Whether two canonical values are one: `1` and `1.0` are, `1` and `true` are not."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b))
    if isinstance(a, list) and isinstance(b, list):
        return [str(x) for x in a] == [str(x) for x in b]
    return type(a) is type(b) and a == b
