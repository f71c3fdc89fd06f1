"""Evidence at one point of a curve: the line it was read from, or the record of a binary file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..types import Evidence, Value
from .curves import is_binary, line_at
from .series import Series

if TYPE_CHECKING:
    from ..workspace import Workspace


def point_evidence(ws: Workspace, s: Series, index: int, key: str, value: Value) -> Evidence:
    """Evidence at one point of a series, with its step where the log names steps."""
    step = int(s.steps[index]) if s.stepped else None
    if is_binary(s.file):
        return Evidence(
            key=key, value=value, kind="binary", file=s.file.name, member=s.raw, offset=int(s.offsets[index]),
            text=f"{s.raw} step {s.steps[index]:g}: {s.values[index]:.7g}", rank=s.rank, attempt=s.attempt,
            variant=s.variant, step=step, run=s.file.run,
        )  # fmt: skip
    return ws.cite(s.file, line_at(s, index), key, value, rank=s.rank, attempt=s.attempt, variant=s.variant, step=step)
