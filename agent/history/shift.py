"""How this team's corrections move the ranking: a bounded head start for what a verdict of this kind really was before.

A head start is no evidence. It is smaller than any normal sign, needs two corrections of the same kind, and fades.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from .corrections import Correction

STRONGEST = 0.8  # log odds; a normal supporting sign weighs 1.2
EACH = 0.25
FEWEST = 2
HALF_LIFE = 180  # days after which a correction counts half
LEAST = 0.05
ALIKE, SAME_FRAMEWORK, NOTHING_KNOWN = 1.0, 0.5, 0.5


@dataclass(frozen=True, slots=True)
class Kind:
    """What makes two failures alike: the framework and the first error without its numbers."""

    framework: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Shift:
    """Log odds for a cause, and what they come from in words."""

    cause: str
    odds: float
    told: str


def shifts(corrections: Sequence[Correction], verdict: str, kind: Kind, now: datetime) -> list[Shift]:
    """The head starts where the evidence alone says `verdict`, the largest first."""
    about = [c for c in corrections if c.said == verdict]
    upheld = sum(_weight(c, kind, now) for c in about if c.truth == verdict)
    found = []
    for truth in sorted({c.truth for c in about} - {verdict}):
        alike = [c for c in about if c.truth == truth and _likeness(c, kind) > 0]
        odds = EACH * (sum(_weight(c, kind, now) for c in alike) - upheld)
        if len(alike) >= FEWEST and odds >= LEAST:
            odds = round(min(STRONGEST, odds), 2)
            told = f"this team corrected {verdict} to {truth} {_times(len(alike))}: {truth} +{odds:g}"
            found.append(Shift(truth, odds, told))
    return sorted(found, key=lambda s: (-s.odds, s.cause))


def _weight(correction: Correction, kind: Kind, now: datetime) -> float:
    return _likeness(correction, kind) * 0.5 ** (_days(correction.time, now) / HALF_LIFE)


def _likeness(correction: Correction, kind: Kind) -> float:
    """From 0 to 1. Errors that differ are not alike at all where the frameworks differ too."""
    if correction.error != kind.error:
        return SAME_FRAMEWORK if kind.framework and correction.framework == kind.framework else 0.0
    if kind.error or correction.framework == kind.framework != "":
        return ALIKE
    return NOTHING_KNOWN if not kind.framework and not correction.framework else 0.0


def _days(time: str, now: datetime) -> int:
    """Whole days since; a clock that was ahead counts as today."""
    try:
        then = datetime.fromisoformat(time)
    except ValueError:
        return HALF_LIFE
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0, (now - then).days)


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def by_cause(found: Iterable[Shift]) -> dict[str, float]:
    """Log odds by cause."""
    return {s.cause: s.odds for s in found}
