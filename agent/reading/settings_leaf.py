"""What every reader of settings yields: leaves of a file, each with the line it stands on."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field
from typing import Any

LEAVES = 4000  # settings kept of one file
DEPTH = 64  # nesting that is followed
# Anything but \n that some parser counts as a line break, and control characters that YAML refuses.
_ODD = re.compile("\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One key with its value.

    `line` counts newlines from 1. `style` says how it is written (yaml, json, toml, flag, override, variable,
    keyword, assignment, table, log). `scope` is the framework where the reader knows it (env, launcher, slurm,
    deepspeed). `group` numbers the command or row it belongs to. `column` and `width` are where the value
    stands in the line (characters, 0 when unknown; a JSON array may end, and the
    value of a continued flag stand, on a later line), for patches.
    """

    key: str
    value: Any
    line: int
    style: str
    scope: str = ""
    group: str = ""
    column: int = 0
    width: int = 0
    used: bool = False
    note: str = ""


@dataclass(slots=True)
class Sheet:
    """The leaves of one file, keys given twice, and what could not be read."""

    leaves: list[Leaf] = field(default_factory=list)
    duplicates: list[tuple[str, int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return len(self.leaves) >= LEAVES

    def add(self, leaf: Leaf) -> None:
        """Keep a leaf, up to the cap, which is told once."""
        if not self.full:
            self.leaves.append(leaf)
            if self.full:
                self.problems.append(f"more than {LEAVES} settings, the rest was not read")


def plain(text: str) -> str:
    """Text in which only `\\n` breaks lines, of the same length."""
    return _ODD.sub(" ", text)


class Lines:
    """From a character position to line (from 1) and column (from 0)."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def at(self, position: int) -> int:
        return bisect.bisect_right(self._starts, position)

    def column(self, position: int) -> int:
        return position - self._starts[self.at(position) - 1]

    def start(self, line: int) -> int:
        """Position of the first character of a line."""
        return self._starts[line - 1]

    def place(self, start: int, end: int, line: int) -> tuple[int, int]:
        """Column and width of a stretch, or (0, 0) when it does not stand within the line."""
        inside = self.at(start) == line == self.at(end)
        return (self.column(start), end - start) if inside and end > start else (0, 0)
