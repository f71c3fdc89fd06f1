"""Retrieval alone as a rival: the index is asked with the question, and with each of the last lines of trouble."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...agent.core.report import CitedEvidence, Differential, Report, RootCause
from ..score import INSUFFICIENT
from ..variants.hay import TROUBLE
from .texts import numbered, texts

if TYPE_CHECKING:
    from ..asked import Task

LINES = 3  # of trouble, the last ones of the run
ASKED = 800  # characters of a query
PASSAGES = 40  # so that several different causes are among them


def solve(task: Task) -> Report:
    """The causes of the best passages, in their order; none found means too little to tell."""
    from ...index.search import search

    last: deque[CitedEvidence] = deque(maxlen=LINES)
    number_of = 0
    for name, path in texts(task.files):
        for number, line in numbered(path):
            if TROUBLE.search(line):
                number_of += 1
                last.append(CitedEvidence(id=f"E{number_of}", key="line", kind="line", file=name, line=number,
                                          text=line[:4000], cut=len(line) > 4000))  # fmt: skip
    best: dict[str, float] = {}
    degraded = ""
    for query in (task.question, *(e.text for e in last)):
        found = search(query[:ASKED], k=PASSAGES)
        degraded = degraded or found.degraded
        for r in found:
            if r.cause and r.kind != "document":
                best[r.cause] = max(best.get(r.cause, 0.0), min(r.score, 1.0))
    ranked = sorted(best, key=lambda cause: -best[cause])
    if not ranked:
        return Report(status="insufficient_evidence", root_cause=RootCause(id=INSUFFICIENT, confidence=0.5))
    total = sum(best.values()) or 1.0
    weighed = [Differential(id=cause, confidence=round(best[cause] / total, 4)) for cause in ranked]
    weighed[0].supported_by = [e.id for e in last]
    root = RootCause(id=ranked[0], confidence=weighed[0].confidence)
    report = Report(status="hypothesis", root_cause=root, differential=weighed, evidence=list(last))
    report.meta.degraded = [degraded] if degraded else []
    return report
