"""`doctor chat`: a conversation about a run, on the whole terminal, a line at a time, or in a browser."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...core.errors import DoctorError, UsageError
from ...safety.fences import one_line
from ...session.store import STDIN
from . import diagnosis_options
from .output import print_line

if TYPE_CHECKING:
    from ...chat.talk import Conversation, Wanted
    from ...core.config import Config
    from ...llm.model_settings import ModelSettings
    from ...reading.run.workspace import Workspace
    from .output import Form


# ----------
# Opens conversations as the options of `doctor chat` say: the run, the session, the model, the bounds.


@dataclass(frozen=True, slots=True)
class ChatHouse:
    """See `conversation.opening.House`.

    Attributes:
        model: the settings of a model by its name; of the one that the user named where the name is empty.
    """

    config: Config
    state: Path
    model: Callable[[str], ModelSettings | None]
    allow: str

    def open(self, wanted: Wanted) -> Conversation:
        """The conversation that is wanted; the run of its session where none is named."""
        from ...chat.talk import Conversation
        from ...core.types import Risk
        from .diagnosis_options import within_the_run

        if wanted.report:
            return self._of_report(wanted)
        session = self._session(wanted)
        ws = self._workspace(wanted, session)
        settings, told = within_the_run(self.model(""), ws.roots)
        return Conversation(ws, self.state, session, settings, told, Risk(self.allow)).recalled()

    def name_model(self, talk: Conversation, name: str) -> None:
        """Let another model plan; none where the name is empty."""
        from .diagnosis_options import within_the_run

        talk.model, told = within_the_run(self.model(name) if name else None, talk.workspace.roots)
        talk.notes = told

    def models(self) -> list[str]:
        """Profiles of the user's file."""
        return sorted(self.config.profiles)

    def _of_report(self, wanted: Wanted) -> Conversation:
        """A report that a job left beside its run, and that run. A question begins a session of its own."""
        from ...chat.talk import Conversation
        from ...core.types import Risk
        from ...session.reported import report_of
        from .diagnosis_options import within_the_run

        report, path = report_of(wanted.report, self.state)
        folder = path.parent if path else Path()
        ws = self._workspace_of([str(folder)], wanted)
        settings, told = within_the_run(self.model(""), ws.roots)
        note = f"the report is that of {path}: whoever may write there may have made it"
        return Conversation(ws, self.state, None, settings, told, Risk(self.allow), [report], [note]).recalled()

    def _session(self, wanted: Wanted) -> str | None:
        """The session to go on with; None begins one.

        Raises:
            UsageError: there is none to go on with, or none by that id.
        """
        from ...session.store import checked_session, newest

        if wanted.session:
            return checked_session(self.state, wanted.session)
        if not wanted.resume:
            return None
        found = newest(self.state, path_of(wanted.paths[0]) if wanted.paths else None, left=True)
        if found is None:
            where = f" of {wanted.paths[0]}" if wanted.paths else ""
            raise UsageError(f"no session{where} to go on with", "leave --resume out to begin one")
        return found

    def _workspace(self, wanted: Wanted, session: str | None) -> Workspace:
        """The named run, else the one that the session is about, else none."""
        from ...reading.run.workspace import Workspace
        from ...session.store import is_kept, session_roots

        paths, good = list(wanted.paths), list(wanted.good)
        if not paths and session is not None and is_kept(self.state, session):
            roots, healthy = session_roots(self.state, session, by="PATH")
            paths, good = [str(r) for r in roots], good or [str(r) for r in healthy]
        if not paths and not wanted.pids:
            return Workspace([], may_be_empty=True)
        return self._workspace_of(paths, wanted, good)

    def _workspace_of(self, paths: list[str], wanted: Wanted, good: list[str] | None = None) -> Workspace:
        from .diagnosis_options import workspace

        good = good or list(wanted.good)
        for name in (*paths, *good, *wanted.also):
            if name != STDIN and not path_of(name).exists():
                raise UsageError(f"no such path: {name}", "name a folder or a file")
        return workspace(paths or None, good, list(wanted.also), pids=list(wanted.pids))


class LaterHouse:
    """A house that is made when a run is opened, on the thread that opens it: to read the settings takes longer than
    to draw the screen.
    """

    def __init__(self, state: Path, made: Callable[[], ChatHouse]) -> None:
        self.state = state
        self._made = made

    @cached_property
    def _house(self) -> ChatHouse:
        return self._made()

    def open(self, wanted: Wanted) -> Conversation:
        """See `ChatHouse`."""
        return self._house.open(wanted)

    def name_model(self, talk: Conversation, name: str) -> None:
        """See `ChatHouse`."""
        self._house.name_model(talk, name)

    def models(self) -> list[str]:
        """See `ChatHouse`."""
        return self._house.models()


def path_of(name: str) -> Path:
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


# ----------

_FOLDERS = ("DOCTOR_STATE", "DOCTOR_CACHE")  # variables that any value is right for, read where they are used


def chat(
    path: Annotated[
        list[str] | None,
        typer.Argument(help="Folder or file of the run.", show_default="the start screen, or the session's"),
    ] = None,
    session: diagnosis_options.Session = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the newest session (of PATH, if given).")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the run while it goes on.")] = False,
    ask: Annotated[str | None, typer.Option("--ask", help="Ask this at once.", metavar="QUESTION")] = None,
    good: diagnosis_options.Good = None,
    also: diagnosis_options.Also = None,
    pid: diagnosis_options.Pid = None,
    model: diagnosis_options.Model = None,
    offline: diagnosis_options.Offline = False,
    base_url: diagnosis_options.BaseUrl = None,
    max_calls: diagnosis_options.MaxCalls = None,
    max_tokens: diagnosis_options.MaxTokens = None,
    max_seconds: diagnosis_options.MaxSeconds = None,
    max_cost: diagnosis_options.MaxCost = None,
    allow: diagnosis_options.AllowRisk = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="No screen: one question a line, one fact a line; for screen readers.")
    ] = False,
    quiet: diagnosis_options.Quiet = False,
    serve: Annotated[bool, typer.Option("--serve", help="In a browser of this machine instead.")] = False,
    host: Annotated[str, typer.Option("--host", help="Address that --serve binds to.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port of --serve; 0: any that is free.", min=0, max=65535)] = 8000,
    anywhere: Annotated[
        bool, typer.Option("--serve-anywhere", help="Let --host be one that other machines reach.")
    ] = False,
) -> int:
    """Talk about a run, on the whole terminal; without one, and with --plain, a line at a time."""
    from ...chat.talk import Wanted

    if serve:
        return _in_browser(host, port, anywhere)
    if path and "-" in path:
        raise UsageError("a chat reads questions from the terminal or standard input, not a log", "name a folder")
    given = {"model": model, "base_url": base_url, "max_calls": max_calls, "max_tokens": max_tokens,
             "max_seconds": max_seconds, "max_cost": max_cost}  # fmt: skip
    house = partial(_house, given, offline, allow)
    wanted = Wanted(
        tuple(path or ()), tuple(good or ()), tuple(also or ()), tuple(pid or ()), session or "", resume
    )  # fmt: skip
    if not plain and _has_screen():
        at_once = any(v is not None for v in given.values()) or _something_set()
        return _on_screen(house, at_once, wanted, ask or "", watch)
    if watch:
        raise UsageError("--watch needs a terminal to draw on", "`doctor triage` looks at a run once")
    from . import output

    return _in_lines(house(), wanted, ask, output.form(plain=plain), quiet)


def _house(given: dict[str, Any], offline: bool, allow: str | None) -> ChatHouse:
    """Who opens conversations, by the settings and the options that stand above them.

    Raises:
        UsageError: one of them is wrong: told before a screen covers it.
    """
    from ...core.config import settle
    from ...session.store import usable_state

    pass
    from .diagnosis_options import model_settings

    config = settle()

    def named(name: str) -> ModelSettings | None:
        return model_settings(config, **{**given, "model": name or given["model"]}, offline=offline and not name)

    named("")
    return ChatHouse(config, usable_state()[0], named, allow or config.allow)


def _something_set() -> bool:
    """Whether a file or a variable sets anything: then it may be wrong, and may say where sessions are kept."""
    if any(name.startswith("DOCTOR_") and name not in _FOLDERS for name in os.environ):
        return True
    named = os.environ.get("XDG_CONFIG_HOME")
    return os.path.lexists((Path(named) if named else Path.home() / ".config") / "traindoctor")


def _in_browser(host: str, port: int, anywhere: bool) -> int:
    """Serve the same command line, without what is about serving, to each tab."""
    from ....tui.serve.server import serve

    def tell(line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    return serve(_without_serving(sys.argv[sys.argv.index("chat") + 1 :]), host, port, anywhere=anywhere, tell=tell)


def _without_serving(arguments: list[str]) -> list[str]:
    """The arguments of `doctor chat` less those that say how it is served."""
    kept, given = [], iter(arguments)
    for word in given:
        if word in ("--host", "--port"):
            next(given, None)
        elif word not in ("--serve", "--serve-anywhere") and not word.startswith(("--host=", "--port=")):
            kept.append(word)
    return kept


def _has_screen() -> bool:
    """Whether there is a terminal that can be drawn on and somebody at it, or a browser behind it."""
    if os.environ.get("TEXTUAL_DRIVER"):
        return True
    streams = (sys.stdin, sys.stdout)
    return all(s is not None and s.isatty() for s in streams) and os.environ.get("TERM", "") not in ("", "dumb")


def _in_lines(house: ChatHouse, wanted: Wanted, ask: str | None, form: Form, quiet: bool) -> int:
    """A conversation a line at a time; about this folder where nothing is named."""
    from dataclasses import replace

    pass

    named = wanted.paths or wanted.session or wanted.resume or wanted.pids
    return hold(house.open(wanted if named else replace(wanted, paths=(".",))), form, quiet, ask)


def _on_screen(house: Callable[[], ChatHouse], at_once: bool, wanted: Wanted, ask: str, watch: bool) -> int:
    """The chat on the whole terminal; the start screen where nothing is named.

    Args:
        at_once: what is set may be wrong, and is looked at before the screen is drawn.
    """
    from ...chat.talk import Wanted as Nothing
    from ...session.store import usable_state

    pass
    pass

    for name in (*(() if watch else wanted.paths), *wanted.good):  # a run that is followed may begin later
        _check_path(name)
    if watch and not wanted.paths:
        raise UsageError("--watch follows a run", "name its folder")
    gc.disable()  # all that is made until the screen is drawn is kept anyway; then the app sees to it
    try:
        opens: ChatHouse | LaterHouse = house() if at_once else LaterHouse(usable_state()[0], house)
        from ....tui.app import DoctorApp

        app = DoctorApp(opens, opens.state, None if wanted == Nothing() else wanted, ask, watch)
        code = app.run() or app.return_code or 0
    finally:
        gc.enable()
    if app.last_words:
        sys.stderr.write(f"{app.last_words}\n")
    leave(code)
    return code


def _check_path(name: str) -> None:
    """Say before the screen is drawn what is plainly not there.

    Raises:
        UsageError: it is not.
    """
    pass

    path = path_of(name)
    if not os.path.lexists(path):
        raise UsageError(f"no such path: {name}", "name a folder or a file")


# ----------
# `doctor chat` without a screen: questions one a line, from a terminal or standard input, each answered in words.

PROMPT = "> "
PATIENCE = 1.0  # seconds that the end of a conversation waits for checks that were stopped
HELP = """Ask what is wrong, or go on: why?  are you sure?  why not a straggler?  check rank 3  what if precision=bf16
show train.log:40  what should I do?  how do I verify that?
/report        print the last diagnosis again
/export FILE   write the conversation: .md, .html or .json, secrets taken out
/session       the session's id and how to go on with it later
/help          this text
/quit          end (also Ctrl-D); Ctrl-C stops an answer"""


def hold(talk: Conversation, form: Form, quiet: bool, first: str | None = None) -> int:
    """Greet, then answer until the questions end; the exit code."""
    lines = _Lines(talk, form, quiet)
    lines.greet()
    code = lines.hold(chain([first] if first else [], _questions()))
    if talk.running():
        leave(code)
    return code


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
class _Lines:
    """A conversation held a line at a time."""

    talk: Conversation
    form: Form
    quiet: bool

    def greet(self) -> None:
        """What is looked at, and in which session."""
        if self.quiet:
            return
        talk = self.talk
        asks = f"model {talk.model.model}" if talk.model else "no model"
        self._say(f"{talk.title}: {len(talk.workspace.files)} files, {asks}. /help lists what can be asked.")
        if talk.reports:
            last = one_line(talk.reports[-1].question)[:100] or "(no question)"
            self._say(f"Going on with session {talk.session}; asked last: {last}")

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
            self.talk.checks_end(PATIENCE)
        return 0

    def _answer(self, question: str) -> None:
        from functools import partial

        from . import output
        from .output import approve, follow, may_ask

        waiting = "Waiting for a check that was running; Ctrl-C stops waiting."
        self.talk.checks_end(waits=lambda: self._say(waiting))
        asks = partial(approve, workspace=self.talk.workspace) if may_ask(self.quiet) else None
        events = self.talk.ask(question, approve=asks)
        output.show(self.talk.shown(follow(events, self.quiet)), self.form)

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
                f"{self.talk.session}: doctor chat --session {self.talk.session}"
                if self.talk.session
                else "Nothing asked yet."
            )
        else:
            print_line(HELP if name in ("/help", "/?") else f"no command {one_line(name)}\n{HELP}")
        return True

    def _show_diagnosis(self) -> None:
        from . import output

        if self.talk.diagnosis:
            output.show(self.talk.diagnosis, self.form)
        else:
            print_line("No diagnosis yet: ask what is wrong.")

    def _export(self, name: str) -> None:
        """The conversation as one file that did not exist before."""
        if not name or not self.talk.reports:
            print_line("Say where to: /export FILE.md" if not name else "Nothing to export yet.")
            return
        from ...chat.chat_export import exported

        path = path_of(name)
        data = exported(self.talk.reports, path.suffix)  # made first: what fails here leaves no empty file
        try:
            with path.open("xb") as f:
                f.write(data)
        except FileExistsError:
            print_line(f"{one_line(str(path))} exists already: name another file")
            return
        print_line(f"wrote {one_line(str(path))}")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")


def leave(code: int) -> None:
    """End the program without waiting for threads that are still reading: nobody wants what they read."""
    if threading.active_count() == 1:
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
