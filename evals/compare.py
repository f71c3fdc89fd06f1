"""One evaluation beside an earlier one: what got better, what got worse, and whether that is a drop.

A baseline is the JSON of `doctor eval --json`, or the short form that `--write-baseline` writes: verdict and rightness
by incident. Only incidents that both know are compared; the others are counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..agent.core.errors import UsageError
from .score import Score

SCHEMA = "traindoctor.eval.baseline/1"


@dataclass(frozen=True, slots=True)
class Kept:
    """What is remembered of a score."""

    said: str | None
    confidence: float
    exact: bool
    lenient: bool
    top3: bool
    invented: int = 0

    @property
    def worth(self) -> int:
        """3 for the right cause, 2 for an acceptable one, 1 for the right one among the first three, else 0."""
        return 3 if self.exact else 2 if self.lenient else 1 if self.top3 else 0


@dataclass(slots=True)
class Changes:
    """What differs, each a line for people; `dropped` says whether the share of right causes fell."""

    compared: int = 0
    better: list[str] = field(default_factory=list)
    worse: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)  # another wrong cause than before
    unknown: list[str] = field(default_factory=list)  # incidents that the earlier evaluation does not know
    gone: list[str] = field(default_factory=list)
    before: float = 0.0  # share of right causes among those compared
    after: float = 0.0
    invented: list[str] = field(default_factory=list)  # incidents that cite what does not exist, and did not before

    @property
    def dropped(self) -> bool:
        """Fewer right causes than before, or citations invented."""
        return self.after < self.before or bool(self.invented)


def kept(scores: Iterable[Score]) -> dict[str, Kept]:
    """What is remembered of each score, by incident."""
    return {s.id: Kept(s.said, round(s.confidence, 3), s.exact, s.lenient, s.top3, len(s.invented)) for s in scores}


def changes(before: Mapping[str, Kept], after: Mapping[str, Kept]) -> Changes:
    """Compare the incidents that both know."""
    both = [i for i in after if i in before]
    found = Changes(
        len(both), unknown=[i for i in after if i not in before], gone=[i for i in before if i not in after]
    )
    for i in both:
        old, new = before[i], after[i]
        line = f"{i}: {old.said} ({old.confidence:.2f}) -> {new.said} ({new.confidence:.2f})"
        if new.worth != old.worth:
            (found.better if new.worth > old.worth else found.worse).append(line)
        elif new.said != old.said:
            found.other.append(line)
        if new.invented > old.invented:
            found.invented.append(i)
    if both:
        found.before = round(sum(before[i].exact for i in both) / len(both), 4)
        found.after = round(sum(after[i].exact for i in both) / len(both), 4)
    return found


def as_lines(found: Changes, name: str = "the baseline") -> list[str]:
    """The changes for people."""
    lines = [f"against {name}: {found.compared} compared, right causes {found.before:.4f} -> {found.after:.4f}"]
    for title, rows in (("better", found.better), ("worse", found.worse), ("other", found.other)):
        if rows:
            lines += [f"{title} ({len(rows)}):", *(f"  {row}" for row in rows)]
    if found.invented:
        lines.append(f"citations that do not exist: {', '.join(found.invented)}")
    if found.unknown or found.gone:
        lines.append(f"{len(found.unknown)} are new, {len(found.gone)} were not asked this time")
    return lines


def write(path: Path, scores: Iterable[Score]) -> None:
    """Keep an evaluation in the short form, one incident a line, so that a difference can be read."""
    found = sorted(kept(scores).items())
    rows = ",\n".join(f"  {json.dumps(i)}: {json.dumps([k.said, k.confidence, k.worth, k.invented])}" for i, k in found)
    path.write_text(f'{{"schema": "{SCHEMA}", "incidents": {{\n{rows}\n}}}}\n', encoding="utf-8")


def read(path: Path) -> dict[str, Kept]:
    """An earlier evaluation in either form.

    Raises:
        UsageError: it cannot be read, or is neither.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        found = data["incidents"]
        if isinstance(found, dict):
            return {
                i: Kept(said, confidence, worth == 3, worth >= 2, worth in (1, 3), invented)
                for i, (said, confidence, worth, invented) in found.items()
            }
        return {
            s["id"]: Kept(s["said"], s["confidence"], s["exact"], s["lenient"], s["top3"], len(s["invented"]))
            for s in found
        }
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}") from None
    except (ValueError, KeyError, TypeError) as e:
        raise UsageError(f"{path}: no evaluation ({e})", "write one with doctor eval --write-baseline FILE") from None
