"""Whether stated confidences can be believed: the shares of right verdicts by confidence, and one figure over them.

A verdict counts as right where the cause is one of the expected ones. The expected calibration error (ECE) is the mean
distance between stated confidence and share of right verdicts over ten bins of equal width, weighted by their size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from .score import Score

BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Verdicts whose confidence is at least `low` and below `high` (the last bin holds 1.0 too)."""

    low: float
    high: float
    n: int
    confidence: float  # mean of what was stated
    right: float  # share


def bins(scores: Iterable[Score], count: int = BINS) -> list[Bin]:
    """The bins that hold any verdict, from the least confidence up; incidents without a report are left out."""
    held: dict[int, list[Score]] = {}
    for s in scores:
        if not s.error:
            held.setdefault(min(int(s.confidence * count), count - 1), []).append(s)
    return [
        Bin(
            i / count,
            (i + 1) / count,
            len(group),
            round(sum(s.confidence for s in group) / len(group), 4),
            round(sum(s.exact for s in group) / len(group), 4),
        )
        for i, group in sorted(held.items())
    ]


def ece(found: list[Bin]) -> float | None:
    """The expected calibration error; 0 is perfect. None without a verdict."""
    n = sum(b.n for b in found)
    return round(sum(b.n * abs(b.confidence - b.right) for b in found) / n, 4) if n else None


def brier(scores: Iterable[Score]) -> float | None:
    """Mean squared distance between stated confidence and being right; 0 is perfect, lower is better."""
    stated = [(s.confidence - s.exact) ** 2 for s in scores if not s.error]
    return round(sum(stated) / len(stated), 4) if stated else None


def as_data(scores: list[Score]) -> dict[str, Any]:
    """Bins and figures as plain data."""
    found = bins(scores)
    return {"ece": ece(found), "brier": brier(scores), "bins": [asdict(b) for b in found]}


def as_lines(scores: list[Score]) -> list[str]:
    """The bins as a table for people."""
    found = bins(scores)
    rows = [f"  {b.low:.1f}-{b.high:.1f}{b.n:>6}{b.confidence:>9.2f}{b.right:>8.2f}" for b in found]
    return [f"  {'stated':<7}{'n':>6}{'mean':>9}{'right':>8}", *rows]
