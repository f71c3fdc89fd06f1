"""What one diagnosis is told of this team's history, and what it adds to it. Whatever is wrong with it is one note."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..claims import status
from ..hypotheses import rank
from ..planner import verdict
from ..playbook import Playbook
from ..predicates import Facts
from ..report import Report, Status
from ..restart.advice import Outcome, outcome_of
from ..restart.resume import framework_of
from ..types import Hypothesis
from . import corrections, diagnoses, recurring
from .database import SECONDS, Unusable, reading, writing
from .diagnoses import Entry
from .place import Place, place_of
from .row import entry_of, error_of
from .shift import Kind, Shift, by_cause, shifts

if TYPE_CHECKING:
    import sqlite3

    from ..workspace import Workspace

T = TypeVar("T")
IN_VAIN = 2  # earlier failures of the same job and cause after which starting it again is no advice


class Team:
    """The history as one session sees it. Without a place it knows nothing, keeps nothing and moves nothing."""

    def __init__(self, place: Place | None = None, session: str = "", notes: list[str] | None = None) -> None:
        """
        Args:
            place: where the history is; None for evaluations, which must neither read nor write it.
            session: the one that is diagnosed; its own row is no earlier one.
            notes: take what is wrong with the history.
        """
        self._place, self._session, self._left = place, session, SECONDS
        self._notes = notes if notes is not None else []
        self._shifts: list[Shift] | None = None
        self._unmoved: list[Hypothesis] = []
        self._corrections = self._ask(reading, corrections.everything, [])

    @classmethod
    def of(cls, state: Path, session: str, notes: list[str]) -> Team:
        """The team's own, where the settings say."""
        return cls(place_of(state), session, notes)

    def moved(
        self, prior: Mapping[str, float], playbooks: Sequence[Playbook], facts: Facts, ws: Workspace
    ) -> Mapping[str, float]:
        """The prior with the head starts that corrections of verdicts like this one give."""
        if not self._corrections:
            return prior
        ranked = self._unmoved = rank(playbooks, facts, prior)
        kind = Kind(framework_of(ws), error_of(facts))
        self._shifts = shifts(self._corrections, verdict(ranked), kind, datetime.now(UTC))
        odds = by_cause(self._shifts)
        more = {p.slug: prior.get(p.slug, 0.0) + odds[p.cause] for p in playbooks if p.cause in odds}
        return {**prior, **more}

    def by_evidence(self, ranked: list[Hypothesis], look: Callable[[], object]) -> list[Hypothesis]:
        """The hypotheses in their order, with the scores that the evidence alone gives: a head start confirms nothing.

        Args:
            look: plans once more without effect, where this process has not yet (a session that was resumed).
        """
        if self._corrections and self._shifts is None:
            look()
        odds = by_cause(self._shifts or ())
        return [replace(h, score=h.score - odds.get(h.cause, 0.0)) for h in ranked]

    def recall(self, report: Report, facts: Facts, ws: Workspace) -> None:
        """Tell in the report what of it has come before, and let the advice know."""
        if self._shifts:
            report.meta.history += [s.told for s in self._shifts if s.cause in {d.id for d in report.differential}]
            report.status = _weaker(report.status, status(report.root_cause.id or "", self._unmoved))
        if report.restart is None or self._place is None:
            return
        entry = replace(entry_of(report, facts, ws), session=self._session)
        before, often = self._ask(reading, lambda base: (diagnoses.earlier(base, entry), _nodes(base)), ([], []))
        report.restart.before = [diagnoses.as_before(e, entry) for e in before[: diagnoses.BEFORE]]
        outcome = outcome_of(report.root_cause.id)
        _in_vain(report, outcome, entry, before)
        _recurring(report, outcome, facts, often)

    def remember(self, report: Report, facts: Facts, ws: Workspace) -> None:
        """Keep the diagnosis; what only answers a question is none."""
        if report.status == "answer" or report.root_cause.id is None or self._place is None:
            return
        entry = entry_of(report, facts, ws)
        self._ask(writing, lambda base: diagnoses.put(base, entry), None)

    def _ask(self, how: Callable[..., T], work: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """What the history says, within the time that is left for it; nothing once it has failed."""
        if self._place is None:
            return nothing
        began = time.monotonic()
        try:
            if how is reading:
                return how(self._place, work, nothing, max(0.1, self._left))
            return how(self._place, work, max(0.1, self._left))
        except Unusable as e:
            self._notes.append(f"{e}: this diagnosis goes on without it")
            self._place = None
            return nothing
        finally:
            self._left -= time.monotonic() - began


def _weaker(one: Status, other: Status) -> Status:
    """A head start raises no status: what the evidence alone says bounds it."""
    order: list[Status] = ["insufficient_evidence", "hypothesis", "likely", "confirmed"]
    return min(one, other, key=order.index) if one in order and other in order else one


def _nodes(base: sqlite3.Connection) -> list[recurring.Recurring]:
    return recurring.recurring_nodes(base)


def _in_vain(report: Report, outcome: Outcome, entry: Entry, before: Sequence[Entry]) -> None:
    """Where starting again has not helped before, it is no advice."""
    restart, job = report.restart, [e for e in before if diagnoses.same_job(e, entry)]
    if restart is None or restart.advice != "restart" or outcome.returns or len(job) < IN_VAIN:
        return
    restart.advice = "fix_first"
    times = f"{len(job)} times before, last at {job[0].time}"
    report.meta.history.append(f"this job failed of {entry.cause} {times}: starting it again did not help")


def _recurring(report: Report, outcome: Outcome, facts: Facts, often: Sequence[recurring.Recurring]) -> None:
    """Name nodes that keep failing where this run's evidence names them too; a habit alone excludes nothing."""
    if report.restart is None or outcome.advice != "restart_excluding":
        return
    hosts = {e.host for found in facts.by_key.values() for e in found if e.host and e.kind != "asked"}
    for node in often[:3]:
        report.meta.history.append(f"{node.name} was named in {node.times} of the last {node.of} hardware diagnoses")
        if node.name in hosts and not report.restart.exclude:
            report.restart.exclude = [node.name]
