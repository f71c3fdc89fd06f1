"""How each cause stood before every step: its probability then and now, what moved, what it stands on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...agent.core.events import Ranked

if TYPE_CHECKING:
    from ...agent.core.report import CitedEvidence, Report
    from ...agent.core.types import Evidence

NEGLIGIBLE = 0.01
NONE = "none of these"
INSUFFICIENT = "none.insufficient_evidence"
BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Standing:
    """One cause. `trail` has its probability of every step so far, None where it was not among the causes."""

    cause: str
    title: str = ""
    playbook: str = ""
    trail: list[float | None] = field(default_factory=list)
    supported_by: list[str] = field(default_factory=list)
    contradicted_by: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    explained_by: str | None = None
    explains: list[str] = field(default_factory=list)
    beside: float | None = None  # the confidence in it where the report found it too, independently of the first

    @property
    def now(self) -> float:
        """Its probability, 0 where it fell out."""
        return (self.trail[-1] if self.trail else None) or 0.0

    @property
    def moved(self) -> str:
        """What changed since the step before: `+12` or `-30` points, `new`, `back`, `fell out`; or nothing."""
        if len(self.trail) < 2:
            return ""
        before, now = self.trail[-2], self.trail[-1]
        if before is None:
            return "" if now is None else "back" if any(v is not None for v in self.trail[:-1]) else "new"
        if now is None:
            return "fell out"
        points = round(100 * now) - round(100 * before)
        return f"{points:+d}" if points else ""


@dataclass(slots=True)
class Course:
    """All causes of one question, the leading first, and the evidence that they cite."""

    steps: int = 0
    standings: dict[str, Standing] = field(default_factory=dict)
    none: Standing = field(default_factory=lambda: Standing("", NONE))
    evidence: dict[str, CitedEvidence | Evidence] = field(default_factory=dict)
    report: Report | None = None

    def step(self, event: Ranked) -> None:
        """Before a step of the diagnosis."""
        self.evidence |= {e.id: e for e in event.evidence}
        for h in event.hypotheses:
            s = self._of(h.cause)
            s.title, s.playbook = h.title, h.playbook
            s.supported_by, s.contradicted_by, s.missing = h.supported_by, h.contradicted_by, h.missing
            s.explained_by = h.explained_by
        self._add({h.cause: h.probability for h in event.hypotheses})
        self._explain()

    def conclude(self, report: Report) -> None:
        """How they stand in the report, which is the last word. The same report again changes nothing."""
        if report is self.report:
            return
        if self.report is not None or (self.steps and not self._fits(report)):
            self.steps, self.standings, self.none, self.evidence = 0, {}, Standing("", NONE), {}
        self.report = report
        self.evidence |= {e.id: e for e in report.evidence}
        told = {d.id: d.confidence for d in report.differential if d.id != INSUFFICIENT}
        for d in report.differential:
            if d.id not in told:
                continue  # that no cause is carried is the row "none of these"
            s = self._of(d.id)
            s.title = d.title or s.title
            s.supported_by, s.contradicted_by, s.missing = d.supported_by, d.contradicted_by, d.missing
        for found in report.also:
            s = self._of(found.id)
            s.beside, s.supported_by = found.confidence, s.supported_by or found.cites
        kept = {c: s.now for c, s in self.standings.items() if c not in told and s.trail and s.trail[-1] is not None}
        self._add(kept | told)  # a report tells the first few; what it leaves out stands as it stood
        self._explain()

    def ranked(self) -> list[Standing]:
        """The leading first: the report's own cause, then by probability; what fell out last."""
        root = self.report.root_cause.id if self.report is not None else None
        return sorted(
            self.standings.values(),
            key=lambda s: (s.cause != root, -s.now, s.beside is None, bool(s.trail) and s.trail[-1] is None, s.cause),
        )

    def _fits(self, report: Report) -> bool:
        """Whether the steps seen led to this report: they know its leading cause."""
        first = next((d.id for d in report.differential if d.id != INSUFFICIENT), None)
        return first is None or first in self.standings

    def _of(self, cause: str) -> Standing:
        return self.standings.setdefault(cause, Standing(cause, trail=[None] * self.steps))

    def _add(self, now: dict[str, float]) -> None:
        self.steps += 1
        for s in self.standings.values():
            s.trail.append(now.get(s.cause))
        self.none.trail.append(max(0.0, 1.0 - sum(now.values())))

    def _explain(self) -> None:
        for s in self.standings.values():
            s.explains = [o.cause for o in self.standings.values() if o.explained_by == s.cause]


def percent(share: float) -> str:
    """Whole percents; never a certainty that is none."""
    return "<1%" if 0 < share < 0.005 else ">99%" if share > 0.995 else f"{share:.0%}"


def sparkline(trail: list[float | None], width: int) -> str:
    """The last steps of a trail, a block each; a blank where the cause was not there."""
    shown = trail[-width:] if width > 0 else []
    return "".join(" " if v is None else BLOCKS[min(7, int(v * 8))] for v in shown)


def bar(share: float, width: int) -> str:
    """A share as a bar: full cells for what is there, dots for the rest; at least one cell where it counts."""
    full = min(width, round(share * width)) or (1 if share >= NEGLIGIBLE and width else 0)
    return "█" * full + "·" * (width - full)
