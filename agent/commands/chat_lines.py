"""`doctor chat` without a screen: questions one a line, from a terminal or standard input, each answered in words."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from ..errors import DoctorError
from ..sanitize import one_line
from .house import path_of
from .streams import print_line

if TYPE_CHECKING:
    from ..conversation.talk import Conversation
    from .output import Form

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
        from .progress import approve, follow, may_ask

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
        from ..conversation.export import exported

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
