"""What tells the curves of one plot apart, in few words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from ..reading.series import Series

LENGTH = 15  # characters of a label beside its curve


def labels(lines: list[Series]) -> list[str]:
    """A label for each curve: of variant, attempt, rank, file and spelling what differs among them."""
    parts: list[list[str]] = [["healthy run"] if s.file.good else [] for s in lines]
    for of in _TOLD_APART:
        told = [of(s) for s in lines]
        if len(set(told)) > 1:
            for part, text in zip(parts, told, strict=True):
                part += [text] if text else []
        if len({tuple(p) for p in parts}) == len(lines):
            break
    return [", ".join(p) or PurePosixPath(s.file.name).name for p, s in zip(parts, lines, strict=True)]


def short(label: str) -> str:
    """A label as it fits beside its curve."""
    return label if len(label) <= LENGTH else f"{label[: LENGTH - 5]}..{label[-3:]}"


_TOLD_APART: tuple[Callable[[Series], str], ...] = (
    lambda s: s.variant or s.file.variant or "",
    lambda s: f"attempt {s.attempt}" if s.attempt is not None else "",
    lambda s: f"rank {s.rank}" if s.rank is not None else "",
    lambda s: "" if s.file.good else s.file.run,
    lambda s: PurePosixPath(s.file.name).name,
    lambda s: s.file.name,
    lambda s: s.raw,
)
