"""What is marked on the curves: the first anomaly and the first failure, where a curve can tell their place."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ..reading.clocks import Stamp, earlier, stamp_of
from ..reading.curves import line_at
from ..reading.series import Series
from ..report import CitedEvidence, Report

FIRST_ANOMALY, FIRST_FAILURE = "first anomaly", "first failure"
# What a key ends in that says when something began; levels and facts (`loss.final_value`) begin nowhere, and what was
# so before (`loss.nan_flat_before`) ends there.
_BEGINS = re.compile(
    r"\.(?!\w*_before$)(?:\w*first_\w*|\w*spike\w*|\w*jump\w*|\w*nan\w*|\w*overflow\w*|\w*start|\w*onset\w*"
    r"|\w*collaps\w*|\w*explod\w*"
    r"|\w*worsened|\w*diverg\w*|\w*drop\w*|\w*slow\w*|\w*blow\w*)$"
)
_LOOK = 8  # curves of a figure on which a mark is looked for
_PACKED = frozenset((".gz", ".zst", ".bz2", ".xz"))
_FAILED = ("memory.oom", "error.exception")
_SILENT = "rank.silent_while_others_fail"


@dataclass(frozen=True, slots=True)
class Mark:
    """An event by its step, by its place in a file and by its time; each may be unknown."""

    name: str
    step: float | None = None
    file: str | None = None
    offset: int | None = None
    time: str | None = None

    def on(self, series: Series) -> float | None:
        """Where it falls on a curve: at its step, or at the last point written before it."""
        if self.step is not None and series.stepped:
            return self.step
        if self.file == series.file.name and self.offset is not None:
            before = int(np.searchsorted(series.offsets, self.offset, side="right"))
            return float(series.steps[max(before - 1, 0)])
        stamp = stamp_of(self.time) if self.time else None
        return _by_time(series, stamp) if stamp else None


def _by_time(series: Series, stamp: Stamp) -> float | None:
    """The step of the last point whose line is not stamped later; None where the two clocks cannot be compared."""
    if series.file.role != "log" or series.file.path.suffix in _PACKED:
        return None
    low, high = 0, len(series)  # the points before `low` are not later, those from `high` on are
    while low < high:
        middle = (low + high) // 2
        own = stamp_of(line_at(series, middle).text)
        later = earlier(stamp, own)
        if own is None or (later is None and own.value != stamp.value):
            return None
        low, high = (low, middle) if later else (middle + 1, high)
    return float(series.steps[low - 1]) if low else None


def marks(report: Report) -> list[Mark]:
    """Anomalies and failures of a verdict, those most sure of their place first within a kind."""
    if report.status in ("healthy", "answer"):
        return []
    by_id = {e.id: e for e in report.evidence}
    proof = [by_id[i] for d in report.differential[:1] for i in d.supported_by if i in by_id]
    proof += [by_id[i] for s in report.summary for i in s.cites if i in by_id]
    anomalies = sorted((e for e in proof if _BEGINS.search(e.key)), key=lambda e: (e.step is None, e.step or 0))
    return [*(_mark(FIRST_ANOMALY, e) for e in anomalies), *_failures(report, by_id)]


def _failures(report: Report, by_id: dict[str, CitedEvidence]) -> list[Mark]:
    """The first failure as each of the ways to tell its place has it, the most exact first; then who fell silent."""
    first = report.root_cause.first_failure
    links = [by_id[link.evidence] for link in report.chain if link.evidence in by_id]
    found = [Mark(FIRST_FAILURE, float(first.step))] if first.step is not None else []
    found += [_mark(FIRST_FAILURE, e) for e in links if e.key == "error.first"][:1]
    found += [Mark(FIRST_FAILURE, time=first.time)] if first.time else []
    for key in _FAILED:
        found += [_mark(FIRST_FAILURE, e) for e in [*links, *report.evidence] if e.key == key and e.kind == "line"][:4]
    silent = [e for e in report.evidence if e.key == _SILENT and e.step is not None and e.rank is not None]
    return [*found, *(_mark(f"rank {e.rank} last heard", e) for e in silent[:2])]


def _mark(name: str, e: CitedEvidence) -> Mark:
    return Mark(name, None if e.step is None else float(e.step), e.file if e.line else None, e.offset)


def placed(found: list[Mark], lines: list[Series]) -> dict[str, float]:
    """Each kind of mark with the place that the first of them has on any of the curves; anomalies: the earliest place.

    A value that is not finite is an anomaly whether or not a tool said so.
    """
    places: dict[str, float] = {}
    early = [at for m in found if m.name == FIRST_ANOMALY for s in lines[:_LOOK] if (at := m.on(s)) is not None]
    if found:
        early += [float(s.steps[np.argmin(s.finite)]) for s in lines if not s.file.good and not s.finite.all()]
    if early:
        places[FIRST_ANOMALY] = min(early)
    for mark in (m for m in found if m.name != FIRST_ANOMALY and m.name not in places):
        at = next((at for s in lines[:_LOOK] if (at := mark.on(s)) is not None), None)
        if at is not None:
            places.setdefault(mark.name, at)
    return places
