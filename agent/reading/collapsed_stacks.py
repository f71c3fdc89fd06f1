"""Recorded samples of stacks in collapsed form (`py-spy record -f raw`): frames joined by `;`, then a count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .files import Line
from .stack_dumps import PY_SPY, Stack, StackFrame
from .stack_places import is_idle, user_frame, where

ROW = re.compile(r"^(?P<frames>[^;\n]{1,400}(?:;[^;\n]{0,400}){1,400}) (?P<count>\d{1,9})$")
HEAD = re.compile(rb"\A[^;\n]{1,300}\([^;\n]{1,300}:\d+\)(?:;[^;\n]{1,300}){1,300} \d+\r?\n")


@dataclass(frozen=True, slots=True)
class Sampled:
    """A stack that was seen `count` times: where it stands, the user's own frame in it, and its line."""

    where: str
    own: str
    count: int
    line: Line


def is_collapsed(head: bytes) -> bool:
    """Whether a file starts with such a stack."""
    return HEAD.match(head) is not None


def samples(lines: Iterable[Line]) -> Iterator[Sampled]:
    """Every stack that was doing something."""
    for line in lines:
        row = ROW.match(line.text.rstrip())
        if row is None:
            continue
        frames = [f for part in row["frames"].split(";") if (f := _frame(part, line))]
        stack = Stack(line, frames[::-1])
        if not frames or is_idle(stack):
            continue
        own = user_frame(stack)
        yield Sampled(where(stack)[0], own.text if own else "", int(row["count"]), line)


def _frame(text: str, line: Line) -> StackFrame | None:
    m = PY_SPY.match(text)
    if m is None:
        return None
    return StackFrame(m["function"], m["file"], int(m["line"]), not m["file"].endswith((".py", ">")), line)
