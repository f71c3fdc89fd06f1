"""What one diagnosis is told of this team's history, and what it adds to it. Whatever is wrong with it is one note."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...core.playbook import Playbook
from ...core.report import Report, Status
from ...core.types import Hypothesis
from ...repair.restart import Outcome, framework_of, outcome_of, outcomes
from ...verdict.gate import status
from ...verdict.planner import verdict
from ...verdict.predicates import Facts
from ...verdict.ranking import rank
from ...verdict.steer import Sounds
from . import diagnoses
from .diagnoses import Entry, entry_of, error_of
from .history_database import SECONDS, Place, Unusable, place_of, reading, writing

if TYPE_CHECKING:
    from ...reading.run.workspace import Workspace


# ----------
# What a diagnosed session really was, as somebody said afterwards.


_COLUMNS = ("session", "time", "user", "said", "truth", "framework", "error", "note", "incident")


@dataclass(frozen=True, slots=True)
class Correction:
    """The verdict of a session (`said`) and the truth about it; the two are equal where the verdict was right."""

    session: str
    time: str
    user: str
    said: str
    truth: str
    framework: str = ""
    error: str = ""
    note: str = ""
    incident: str = ""


def put(base: sqlite3.Connection, correction: Correction) -> None:
    """Keep it; an earlier one about the same session gives way."""
    marks = ", ".join(f":{name}" for name in _COLUMNS)
    base.execute(f"INSERT OR REPLACE INTO corrections ({', '.join(_COLUMNS)}) VALUES ({marks})", asdict(correction))


def take_back(base: sqlite3.Connection, session: str) -> Correction | None:
    """Forget what was said about a session; gives what that was."""
    kept = about(base, session)
    base.execute("DELETE FROM corrections WHERE session = ?", (session,))
    return kept


def about(base: sqlite3.Connection, session: str) -> Correction | None:
    """What was said about a session."""
    return next((c for c in everything(base) if c.session == session), None)


def everything(base: sqlite3.Connection) -> list[Correction]:
    """All of them, oldest first."""
    rows = base.execute(f"SELECT {', '.join(_COLUMNS)} FROM corrections ORDER BY time, session")
    return [Correction(**dict(row)) for row in rows]


# ----------
# How this team's corrections move the ranking: a bounded head start for what a verdict of this kind really was before.
#
# A head start is no evidence. It is smaller than any normal sign, needs two corrections of the same kind, and fades.

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


# ----------
# Nodes and causes that come again and again.

LATEST = 5  # hardware diagnoses that "of the last" speaks of
OFTEN = 2  # of them that name a node


@dataclass(frozen=True, slots=True)
class Recurring:
    """A node or a cause, how often it was named by diagnoses of different failures, of how many, and when last."""

    name: str
    times: int
    of: int
    last: str


def hardware() -> tuple[str, ...]:
    """Causes that lie in a node."""
    return tuple(sorted(cause for cause, o in outcomes().items() if o.advice == "restart_excluding"))


def recurring_nodes(base: sqlite3.Connection, latest: int = LATEST) -> list[Recurring]:
    """Nodes named more than once among the latest diagnoses of hardware, most often named first."""
    marks = ", ".join("?" * len(hardware()))
    last = f"SELECT failure, max(time) AS time, session FROM diagnoses WHERE cause IN ({marks})"
    rows = base.execute(
        f"WITH latest AS ({last} GROUP BY failure ORDER BY max(time) DESC LIMIT ?)"
        " SELECT node, count(*) AS times, (SELECT count(*) FROM latest) AS among, max(latest.time) AS last"
        " FROM latest JOIN nodes ON nodes.session = latest.session"
        " GROUP BY node HAVING count(*) >= ? ORDER BY times DESC, last DESC, node",
        (*hardware(), latest, OFTEN),
    )
    return [Recurring(r["node"], r["times"], r["among"], r["last"]) for r in rows]


def recurring_causes(base: sqlite3.Connection, most: int = 5) -> list[Recurring]:
    """Causes of more than one failure, most often first; what names no cause is left out."""
    rows = base.execute(
        "SELECT cause, count(DISTINCT failure) AS times, (SELECT count(DISTINCT failure) FROM diagnoses) AS among,"
        " max(time) AS last FROM diagnoses WHERE cause NOT LIKE 'none.%'"
        " GROUP BY cause HAVING count(DISTINCT failure) >= ? ORDER BY times DESC, last DESC, cause LIMIT ?",
        (OFTEN, most),
    )
    return [Recurring(r["cause"], r["times"], r["among"], r["last"]) for r in rows]


# ----------

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
        self._corrections = self._ask(reading, everything, [])

    @classmethod
    def of(cls, state: Path, session: str, notes: list[str]) -> Team:
        """The team's own, where the settings say."""
        return cls(place_of(state), session, notes)

    def moved(self, sounds: Sounds, playbooks: Sequence[Playbook], facts: Facts, ws: Workspace) -> Sounds:
        """What it sounds like, with the head starts that corrections of verdicts like this one give."""
        if not self._corrections:
            return sounds
        ranked = self._unmoved = rank(playbooks, facts, sounds)
        kind = Kind(framework_of(ws), error_of(facts))
        self._shifts = shifts(self._corrections, verdict(ranked), kind, datetime.now(UTC))
        return replace(sounds, moved=by_cause(self._shifts))

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


def _nodes(base: sqlite3.Connection) -> list[Recurring]:
    return recurring_nodes(base)


def _in_vain(report: Report, outcome: Outcome, entry: Entry, before: Sequence[Entry]) -> None:
    """Where starting again has not helped before, it is no advice."""
    restart, job = report.restart, [e for e in before if diagnoses.same_job(e, entry)]
    if restart is None or restart.advice != "restart" or outcome.returns or len(job) < IN_VAIN:
        return
    restart.advice = "fix_first"
    times = f"{len(job)} times before, last at {job[0].time}"
    report.meta.history.append(f"this job failed of {entry.cause} {times}: starting it again did not help")


def _recurring(report: Report, outcome: Outcome, facts: Facts, often: Sequence[Recurring]) -> None:
    """Name nodes that keep failing where this run's evidence names them too; a habit alone excludes nothing."""
    if report.restart is None or outcome.advice != "restart_excluding":
        return
    hosts = {e.host for found in facts.by_key.values() for e in found if e.host and e.kind != "asked"}
    for node in often[:3]:
        report.meta.history.append(f"{node.name} was named in {node.times} of the last {node.of} hardware diagnoses")
        if node.name in hosts and not report.restart.exclude:
            report.restart.exclude = [node.name]
