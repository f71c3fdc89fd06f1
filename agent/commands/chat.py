"""`doctor chat`: questions one a line, each answered in the same session on the same evidence."""

from __future__ import annotations

import contextlib
import sys
import threading
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
HELP = """Ask what is wrong, or go on: why?  are you sure?  why not a straggler?  check rank 3  what if precision=bf16
show train.log:40  what should I do?  how do I verify that?
/report        print the last diagnosis again
/export FILE   write the conversation: .md (secrets taken out) or .json
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
        UsageError: there is none to go on with.
    """
    from ..store import newest

    if session or not resume:
        return session
    found = newest(state, Path(path[0]).expanduser() if path else None)
    if found is None:
        where = f" of {path[0]}" if path else ""
        raise UsageError(f"no session{where} to go on with", "leave --resume out to begin one")
    return found


def _workspace(
    state: Path, session: str | None, path: list[str] | None, good: list[str] | None, also: list[str] | None
) -> Workspace:
    """The named run, else the one that the session is about, else this folder."""
    from ..store import is_kept, session_roots
    from .material import workspace

    if path is None and session is not None and is_kept(state, session):
        roots, healthy = session_roots(state, session)
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
        _let_checks_end()
        return 0

    def _answer(self, question: str) -> None:
        from .. import session as sessions
        from . import output
        from .progress import approve, follow, may_ask

        _let_checks_end()
        self.workspace.question = question
        events = sessions.diagnose(
            self.workspace, question, session=self.session, allow=self.allow, state=self.state,
            approve=approve if may_ask(self.quiet) else None, model=self.model, notes=self.notes,
        )  # fmt: skip
        made: list[str] = []
        report = follow(self._watched(events, made), self.quiet)
        self.reports.append(report)
        # a follow-up shows the checks it made itself; the session's other ones were told before
        new = [c for c in report.checked if c.tool in made or c.outcome in ("failed", "not_allowed")]
        shown = report.model_copy(update={"checked": new}) if report.status == "answer" else report
        output.show(shown, self.form)

    def _watched(self, events: Iterable[Event], made: list[str]) -> Iterator[Event]:
        """The same events; notes the session's id and the checks made."""
        from ..events import SessionStarted, ToolFinished

        for event in events:
            if isinstance(event, SessionStarted):
                self.session = event.session
            elif isinstance(event, ToolFinished):
                made.append(event.call.tool)
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
        path = Path(name).expanduser()
        try:
            with path.open("x", encoding="utf-8") as f:
                f.write(_as_json(self.reports) if path.suffix == ".json" else _as_markdown(self.reports))
        except FileExistsError:
            print_line(f"{one_line(str(path))} exists already: name another file")
            return
        print_line(f"wrote {one_line(str(path))}")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")


def _as_json(reports: list[Report]) -> str:
    return "[" + ",\n".join(r.to_json() for r in reports) + "]\n"


def _as_markdown(reports: list[Report]) -> str:
    from ..markdown import as_markdown
    from ..redact import Redactor

    return Redactor().redact("\n\n".join(as_markdown(r) for r in reports)) + "\n"


def _let_checks_end() -> None:
    """Checks that were running when an answer was stopped end by themselves; two at once would write one session."""
    for thread in threading.enumerate():
        if thread.name == "diagnosis":
            thread.join()
