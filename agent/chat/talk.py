"""One conversation: a run whose readings all questions share, a session, and the reports so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.errors import Stopped
from ..core.events import Event, Note, ReportReady, SessionStarted
from ..core.types import Call, Risk
from ..safety.fences import one_line

if TYPE_CHECKING:
    from ..core.report import Report
    from ..llm.model_settings import ModelSettings
    from ..reading.run.workspace import Workspace
    from ..session.session import Approve

_LOOK = 0.1  # seconds between two looks whether a wait was stopped


@dataclass(slots=True)
class Conversation:
    """Asks questions one after the other on the same evidence.

    Attributes:
        session: its id, once a question was asked or where one is gone on with.
        model: the model that plans; without one nothing is sent.
        notes: what limits every diagnosis of it; told in the reports.
        reports: of all questions so far, in order; those of a session that is gone on with too.
        told: what is to be known before the first question.
        renewed: the files have changed since the session's evidence was read.
    """

    workspace: Workspace
    state: Path
    session: str | None = None
    model: ModelSettings | None = None
    notes: list[str] = field(default_factory=list)
    allow: Risk = Risk.READ
    reports: list[Report] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    renewed: bool = False
    others: frozenset[threading.Thread] = field(default_factory=lambda: frozenset(threading.enumerate()))

    def recalled(self) -> Conversation:
        """The same with the reports of its session read in, and with what is to be known of files and state."""
        from ..session.store import turns, usable_state
        from .offered_repairs import Repairs

        if self.session:
            self.reports = turns(self.state, self.session)
        if word := usable_state(self.state)[1]:
            self.told.append(word)
        for left in Repairs(self).applied():
            if not left.whole:
                name = one_line(left.ident)
                self.told.append(
                    f"{name} was cut short while it changed files of this run: /undo {name} puts them back"
                )
        return self

    @property
    def diagnosis(self) -> Report | None:
        """The last report that is no mere answer; the last one where all are; None before the first."""
        found = [r for r in self.reports if r.status != "answer"] or self.reports
        return found[-1] if found else None

    @property
    def foreign(self) -> bool:
        """Whether nothing is known yet but a report that was made elsewhere: nothing can follow from that."""
        from ..session.store import is_kept

        return len(self.reports) == 1 and not is_kept(self.state, self.reports[0].session)

    @property
    def title(self) -> str:
        """The run in one short line."""
        return ", ".join(one_line(str(r)) for r in self.workspace.roots) or "no run"

    def ask(
        self,
        question: str,
        *,
        approve: Approve | None = None,
        stop: threading.Event | None = None,
        calls: Sequence[Call] = (),
        watched: bool = False,
    ) -> Iterator[Event]:
        """Answer a question; events as `session.diagnose` yields them. Blocks between them: not for a UI thread.

        Args:
            stop: set it to end the answer; what was found so far is kept, and the next question goes on from there.
            calls: checks that the user names; then they are made and nothing is diagnosed.
            watched: also tell how the hypotheses stand.

        Raises:
            DoctorError: it cannot be answered, or was stopped (`Stopped`).
        """
        from ..session import session as sessions

        if self.running():
            yield Note("waiting for a check that was running when the answer before was stopped")
        self.checks_end(stop=stop)
        if self.renewed and not self._follows(question):
            self.session, self.renewed = None, False  # what the session knows is of files as they were
        if self.session is None and self.foreign:
            yield Note("the report above was not made here: the run is looked at anew, in a session of its own")
        self.workspace.question = question
        events = sessions.diagnose(
            self.workspace, question, session=self.session, allow=self.allow, state=self.state, approve=approve,
            model=self.model, notes=self.notes, stop=stop, calls=calls, watched=watched,
        )  # fmt: skip
        for event in events:
            if isinstance(event, SessionStarted):
                self.session = event.session
            if isinstance(event, ReportReady):
                self.reports.append(event.report)
            yield event

    def renew(self, workspace: Workspace) -> None:
        """Go on with the same run as its files are now: the next diagnosis begins a session of its own."""
        self.workspace, self.renewed = workspace, True

    def _follows(self, question: str) -> bool:
        """Whether a question is about the last answer, and no new diagnosis."""
        from ..verdict.intent import intent_of

        last = self.diagnosis
        return last is not None and intent_of(question, beside_run=True, earlier=last.model_dump()) is not None

    def shown(self, report: Report) -> Report:
        """A report of this conversation with the checks that were made for it alone."""
        from ..session.store import with_new_checks

        before = self.reports[: self.reports.index(report)] if report in self.reports else self.reports
        return with_new_checks(report, before)

    def running(self) -> list[threading.Thread]:
        """Diagnoses of this conversation that were stopped and are not over yet."""
        return [t for t in threading.enumerate() if t.name == "diagnosis" and t not in self.others]

    def checks_end(
        self,
        seconds: float | None = None,
        waits: Callable[[], None] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Wait for checks that were running when an answer was stopped: two at once would write one session.

        Args:
            seconds: how long at most; None: until they are over.
            waits: told once where it takes longer than a moment.
            stop: ends the wait.

        Raises:
            Stopped: `stop` was set.
        """
        end = None if seconds is None else time.monotonic() + seconds
        for thread in self.running():
            thread.join(1.0 if end is None else max(0.0, end - time.monotonic()))
            if end is None and thread.is_alive() and waits:
                waits()
            while end is None and thread.is_alive():
                if stop is not None and stop.is_set():
                    raise Stopped("stopped", "a check before is still running")
                thread.join(_LOOK)


# ----------
# What a conversation is opened with, and who opens it: the command line, on behalf of the screen.


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run or a session to talk about, in the words of the command line. Nothing named: no run at all.

    Attributes:
        resume: go on with the newest session, of the paths where some are named.
        report: a report in a file, whose run is then looked at.
    """

    paths: tuple[str, ...] = ()
    good: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    session: str = ""
    resume: bool = False
    report: str = ""


class House(Protocol):
    """Opens conversations with the options of the command line. Its methods read files: not for a UI thread."""

    def open(self, wanted: Wanted) -> Conversation:
        """A conversation.

        Raises:
            DoctorError: there is no such run or session, or nothing in it can be read.
        """
        ...

    def name_model(self, talk: Conversation, name: str) -> None:
        """Let another model plan; an empty name: none, and nothing is sent.

        Raises:
            DoctorError: it cannot be asked.
        """
        ...

    def models(self) -> list[str]:
        """Names of the profiles that the user's file has."""
        ...
