"""A failure as a unit: its frames, its exception, the telling lines of its message, and what it was raised from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from .clocks import Stamp, stamp_of
from .files import Line, RunFile
from .lines import Stripped, segments, strip

Kind = Literal["python", "exception", "native"]


@dataclass(frozen=True, slots=True)
class Read:
    """A line as the parsers see it."""

    line: Line
    stripped: Stripped
    stamp: Stamp | None

    @property
    def body(self) -> str:
        return self.stripped.body


@dataclass(slots=True)
class Frame:
    """One frame. `line` is the line of the file that shows its code, or names it where no code is printed."""

    path: str
    function: str
    number: int
    line: Line
    code: str = ""

    @property
    def text(self) -> str:
        return f"{self.path}:{self.function}: {self.code}".rstrip(": ")


@dataclass(slots=True)
class Failure:
    """One failure as a unit. `frames` run from the outermost to the innermost; `cause` was raised before it."""

    file: RunFile
    kind: Kind
    line: Line
    type: str = ""
    message: str = ""
    rank: int | None = None
    host: str | None = None
    source: str | None = None
    stamp: Stamp | None = None
    frames: list[Frame] = field(default_factory=list)
    details: list[tuple[Line, str]] = field(default_factory=list)
    cause: Failure | None = None
    cascade: str | None = None
    attempt: int | None = None
    repeated: int = 1
    start: Line | None = None

    @property
    def origin(self) -> Failure:
        """The first failure of its chain."""
        at, steps = self, 0
        while at.cause is not None and steps < 50:
            at, steps = at.cause, steps + 1
        return at

    @property
    def text(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def name(self) -> str:
        """The type as printed, without its module."""
        return self.type.rpartition(".")[2]


def reads(lines: Iterable[Line], labels: bool = False) -> Iterator[Read]:
    """Lines stripped, each with the time it inherits; of an overwritten line, the parts that are no bars."""
    last: Stamp | None = None
    for line in lines:
        for offset, part in segments(line.data[:65536]):
            text = part.decode(errors="replace")
            last = stamp_of(text) or last
            shown = (
                line
                if len(part) == len(line.data) or len(line.data) <= 4096
                else Line(line.number, line.offset + offset, part, cut=True)
            )
            yield Read(shown, strip(text, labels), last)
