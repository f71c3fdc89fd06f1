"""`doctor chat`: questions one a line, each answered in the same session on the same evidence."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import DoctorError, UsageError
from ..sanitize import one_line
from . import options
from .streams import print_line

if TYPE_CHECKING:
    from ..events import Event
    from ..llm.settings import ModelSettings
    from ..report import Report
    from ..types import Risk
    from ..workspace import Workspace
    from .output import Form

PROMPT = "> "
PATIENCE = 1.0  # seconds that the end of a conversation waits for checks that were stopped
HELP = """Ask what is wrong, or go on: why?  are you sure?  why not a straggler?  check rank 3  what if precision=bf16
show train.log:40  what should I do?  how do I verify that?
/report        print the last diagnosis again
/export FILE   write the conversation: .md or .json, secrets taken out
/session       the session's id and how to go on with it later
/help          this text
/quit          end (also Ctrl-D); Ctrl-C stops an answer"""


def chat(
    path: Annotated[
        list[str] | None,
        typer.Argument(help="Folder or file of the run.", show_default="this folder, or the session's"),
    ] = None,
    session: options.Session = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the newest session (of PATH, if given).")
    ] = False,
    good: options.Good = None,
    also: options.Also = None,
    model: options.Model = None,
    offline: options.Offline = False,
    base_url: options.BaseUrl = None,
    max_calls: options.MaxCalls = None,
    max_tokens: options.MaxTokens = None,
    max_seconds: options.MaxSeconds = None,
    max_cost: options.MaxCost = None,
    allow: options.AllowRisk = None,
    plain: options.Plain = False,
    quiet: options.Quiet = False,
) -> int:
    """Talk about a run: one question a line, from the terminal or standard input."""
    from ..config import settle
    from ..store import usable_state
    from ..types import Risk
    from . import output
    from .model import model_settings, within_the_run

    config = settle()
    asked = model_settings(
        config, model=model, base_url=base_url, max_calls=max_calls, max_tokens=max_tokens, max_seconds=max_seconds,
        max_cost=max_cost, offline=offline,
    )  # fmt: skip
    if path and "-" in path:
        raise UsageError("a chat reads questions from standard input, not a log", "name a folder or a file")
    state = usable_state()[0]
    name = _session(state, session, resume, path)
    ws = _workspace(state, name, path, good, also)
    settings, told = within_the_run(asked, ws.roots)
    talk = _Talk(ws, state, name, settings, told, Risk(allow or config.allow), output.form(plain=plain), quiet)
    talk.greet()
    return talk.hold(_questions())


def _session(state: Path, session: str | None, resume: bool, path: list[str] | None) -> str | None:
    """The session to go on with; None begins one.

    Raises:
        UsageError: there is none to go on with, or none by that id.
    """
    from ..store import checked_session, newest

    if session:
        return checked_session(state, session)
    if not resume:
        return None
    found = newest(state, _path(path[0]) if path else None)
    if found is None:
        where = f" of {path[0]}" if path else ""
        raise UsageError(f"no session{where} to go on with", "leave --resume out to begin one")
    return found


def _path(name: str) -> Path:
    """A path as the user wrote it.

    Raises:
        UsageError: it can be none.
    """
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # no such user
        raise UsageError(f"{name}: whose home is meant is not known", "write the folder out") from None
    if "\0" in name:
        raise UsageError(f"{name} names no file: it holds a NUL")
    return path


def _workspace(
    state: Path, session: str | None, path: list[str] | None, good: list[str] | None, also: list[str] | None
) -> Workspace:
    """The named run, else the one that the session is about, else this folder."""
    from ..store import is_kept, session_roots
    from .material import workspace

    if path is None and session is not None and is_kept(state, session):
        roots, healthy = session_roots(state, session, by="PATH")
        path = [str(r) for r in roots] or None
        good = good or [str(r) for r in healthy]
    return workspace(path, good, also)


def _questions() -> Iterator[str]:
    """Lines of the terminal (with its history) or of standard input, until they end."""
    if sys.stdin is None:
        return
    if not sys.stdin.isatty():
        for line in sys.stdin:
            if line.strip():
                print_line(f"{PROMPT}{one_line(line.strip())}")
            yield line
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - line editing and history of input()
    while True:
        try:
            yield input(PROMPT)
        except EOFError:
            print_line("")
            return
        except KeyboardInterrupt:
            print_line("\n(/quit or Ctrl-D ends)")


@dataclass(slots=True)
class _Talk:
    """One conversation: a workspace whose readings all questions share, a session, and the reports so far."""

    workspace: Workspace
    state: Path
    session: str | None
    model: ModelSettings | None
    notes: list[str]
    allow: Risk
    form: Form
    quiet: bool
    reports: list[Report] = field(default_factory=list)
    others: frozenset[threading.Thread] = field(default_factory=lambda: frozenset(threading.enumerate()))

    def greet(self) -> None:
        """What is looked at, and in which session."""
        from ..store import turns

        if self.session:
            self.reports = turns(self.state, self.session)
        if self.quiet:
            return
        where = ", ".join(one_line(str(r)) for r in self.workspace.roots)
        asks = f"model {self.model.model}" if self.model else "no model"
        self._say(f"{where}: {len(self.workspace.files)} files, {asks}. /help lists what can be asked.")
        if self.reports:
            last = one_line(self.reports[-1].question)[:100] or "(no question)"
            self._say(f"Going on with session {self.session}; asked last: {last}")

    def hold(self, questions: Iterable[str]) -> int:
        """Answer until the questions end. A question that cannot be answered costs a line, not the conversation."""
        for line in questions:
            text = line.strip()
            try:
                if text.startswith("/"):
                    if not self._command(text):
                        break
                elif text:
                    self._answer(text)
            except (DoctorError, OSError) as e:
                self._say(f"doctor: {one_line(str(e))}")
            except KeyboardInterrupt:
                self._say("Stopped. What was found so far is kept; ask again or go on.")
        with contextlib.suppress(KeyboardInterrupt):
            self._checks_end(PATIENCE)
        if self._running():
            _leave()
        return 0

    def _running(self) -> list[threading.Thread]:
        """Diagnoses of this conversation that were stopped and are not over yet."""
        return [t for t in threading.enumerate() if t.name == "diagnosis" and t not in self.others]

    def _checks_end(self, seconds: float | None = None) -> None:
        """Wait for checks that were running when an answer was stopped: two at once would write one session."""
        end = None if seconds is None else time.monotonic() + seconds
        for thread in self._running():
            thread.join(PATIENCE if end is None else max(0.0, end - time.monotonic()))
            if end is None and thread.is_alive():
                self._say("Waiting for a check that was running; Ctrl-C stops waiting.")
                thread.join()

    def _answer(self, question: str) -> None:
        from .. import session as sessions
        from ..store import with_new_checks
        from . import output
        from .progress import approve, follow, may_ask

        self._checks_end()
        self.workspace.question = question
        events = sessions.diagnose(
            self.workspace, question, session=self.session, allow=self.allow, state=self.state,
            approve=approve if may_ask(self.quiet) else None, model=self.model, notes=self.notes,
        )  # fmt: skip
        report = follow(self._watched(events), self.quiet)
        shown = with_new_checks(report, self.reports)
        self.reports.append(report)
        output.show(shown, self.form)

    def _watched(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events; notes the session's id."""
        from ..events import SessionStarted

        for event in events:
            if isinstance(event, SessionStarted):
                self.session = event.session
            yield event

    def _command(self, text: str) -> bool:
        """Do what a line with a slash says; False ends the conversation."""
        name, _, rest = text.partition(" ")
        if name in ("/quit", "/exit", "/q"):
            return False
        if name == "/report":
            self._show_diagnosis()
        elif name == "/export":
            self._export(rest.strip())
        elif name == "/session":
            print_line(
                f"{self.session}: doctor chat --session {self.session}" if self.session else "Nothing asked yet."
            )
        else:
            print_line(HELP if name in ("/help", "/?") else f"no command {one_line(name)}\n{HELP}")
        return True

    def _show_diagnosis(self) -> None:
        from . import output

        found = [r for r in self.reports if r.status != "answer"] or self.reports
        if found:
            output.show(found[-1], self.form)
        else:
            print_line("No diagnosis yet: ask what is wrong.")

    def _export(self, name: str) -> None:
        """The conversation as one file that did not exist before."""
        if not name or not self.reports:
            print_line("Say where to: /export FILE.md" if not name else "Nothing to export yet.")
            return
        from .export import exported

        path = _path(name)
        data = exported(self.reports, path.suffix)  # made first: what fails here leaves no empty file
        try:
            with path.open("xb") as f:
                f.write(data)
        except FileExistsError:
            print_line(f"{one_line(str(path))} exists already: name another file")
            return
        print_line(f"wrote {one_line(str(path))}")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")


def _leave() -> None:
    """End the program without waiting for checks that are still running: they only read, and nobody wants them."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)
