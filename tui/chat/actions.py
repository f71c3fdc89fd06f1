"""What the lines with a slash do: one method a command of `commands.py`, by its name. None is missing (a test)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...agent.chat.talk import Wanted
from ...agent.core.errors import DoctorError, UsageError
from ...agent.core.types import Risk

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation
    from .approving import Approving
    from .following import FollowingRun
    from .joined import JoinedScreen
    from .opening import Opening


class Actions:
    """Carries commands out on the screen. What takes time is left to workers of the parts."""

    def __init__(self, screen: JoinedScreen, opening: Opening, approving: Approving, live: FollowingRun) -> None:
        self._screen, self._opening, self._approving, self._live = screen, opening, approving, live

    def carry_out(self, name: str, words: list[str]) -> None:
        """Do what a command says.

        Raises:
            UsageError: it cannot be done; the line says why.
        """
        getattr(self, f"do_{name}")(words)

    @property
    def _talk(self) -> Conversation:
        if self._screen.talk is None:
            raise UsageError("no run is open", "/run PATH opens one")
        return self._screen.talk

    def _say(self, text: str) -> None:
        self._screen.transcript.tell(text)

    # runs and sessions

    def do_run(self, words: list[str]) -> None:
        """Look at another run."""
        self._opening.begin(Wanted(paths=tuple(words)))

    def do_good(self, words: list[str]) -> None:
        """Compare with a healthy run: a session of its own, as what was read before knew nothing of it."""
        talk = self._talk
        if not talk.workspace.roots:
            raise UsageError("there is no run to compare", "/run PATH opens one first")
        last = next((r.question for r in reversed(talk.reports) if r.status != "answer"), "")
        paths = tuple(map(str, talk.workspace.roots))
        self._opening.begin(Wanted(paths=paths, good=tuple(words)), question=last if talk.reports else "")

    def do_watch(self, words: list[str]) -> None:
        """Follow the run, or stop following."""
        if words and words[0] in ("off", "no", "stop"):
            self._live.stop()
            self._say("following no more")
        else:
            self._live.begin(self._talk)

    def do_resume(self, words: list[str]) -> None:
        """Go on with a session; without one, with the newest of this run."""
        if words:
            self._opening.begin(Wanted(session=words[0]))
            return
        talk = self._screen.talk
        paths = tuple(map(str, talk.workspace.roots)) if talk else ()
        self._opening.begin(Wanted(paths=paths, resume=True))

    def do_sessions(self, words: list[str]) -> None:
        """Choose among earlier sessions."""
        from ..start.sessions import SessionsScreen

        def chosen(name: str | None) -> None:
            if name:
                self.do_resume([name])

        self._screen.app.push_screen(SessionsScreen(self._screen.program.state), chosen)

    def do_session(self, words: list[str]) -> None:
        """How to go on with this one later."""
        name = self._talk.session
        self._say(f"{name}: doctor chat --session {name}" if name else "Nothing asked yet.")

    # checks, model, bounds

    def do_tool(self, words: list[str]) -> None:
        """Make one check; what it finds is evidence of the session."""
        from ...agent.chat.named_check import named_check

        call = named_check(words)
        self._screen.put("/tool " + " ".join(words), (call,))

    def do_allow(self, words: list[str]) -> None:
        """Up to which risk checks run unasked."""
        talk = self._talk
        if words:
            try:
                talk.allow = Risk(words[0].lower())
            except ValueError:
                raise UsageError(f"no such risk: {words[0][:40]}", "read, probe or costly") from None
            if talk.allow is Risk.WRITE:
                talk.allow = Risk.READ
                raise UsageError("nothing writes unasked", "read, probe or costly")
        self._say(f"checks up to {talk.allow.value} run unasked")
        for line in self._approving.described():
            self._say(line)

    def do_model(self, words: list[str]) -> None:
        """Which model plans from now on."""
        talk = self._talk
        if not words:
            names = ", ".join(self._screen.program.house.models())
            self._say(f"model {talk.model.model}" if talk.model else "no model: the offline planner answers")
            self._say(f"{f'profiles: {names}; ' if names else ''}/model NAME asks a model, /model off asks none")
            return
        name = "" if words[0].lower() in ("off", "none", "offline") else words[0]
        self._screen.program.house.name_model(talk, name)
        self._screen.status.begin(talk)
        since = "from the next question on" if self._screen.asking.now else "from now on"
        self._say(f"asks {talk.model.model} {since}" if talk.model else f"asks no model {since}: nothing is sent then")

    # views

    def do_evidence(self, words: list[str]) -> None:
        """The evidence, one of it in its file, or those that match."""
        found = {e.id.lower() for r in self._talk.reports for e in r.evidence}
        if words and words[0].lower() in found:
            self.open_file(words[0].upper())
            return
        self._screen.action_panel("evidence")
        if words:
            from ..panels.evidence import EvidencePanel

            self._screen.side.query_one(EvidencePanel).filter(" ".join(words))

    def do_hypotheses(self, words: list[str]) -> None:
        """The causes that were weighed."""
        self._screen.action_panel("hypotheses")

    def do_curves(self, words: list[str]) -> None:
        """The curves."""
        self._screen.action_panel("curves")

    def do_ranks(self, words: list[str]) -> None:
        """The ranks."""
        self._screen.action_panel("ranks")

    def do_repairs(self, words: list[str]) -> None:
        """The patches."""
        self._screen.action_panel("repairs")

    def open_file(self, place: str | tuple[str, int]) -> None:
        """A file of the run at a piece of evidence, or at a line."""
        from ...agent.core.report import Report, RootCause
        from ..viewer.screen import FileViewer

        talk = self._talk
        wanted = place if isinstance(place, str) else ""
        report = next((r for r in reversed(talk.reports) if any(e.id == wanted for e in r.evidence)), talk.diagnosis)
        if wanted and (report is None or all(e.id != wanted for e in report.evidence)):
            raise UsageError(f"evidence {wanted} is in no report yet", "it can be opened once the answer is there")
        if report is None:  # before the first one
            report = Report(status="insufficient_evidence", root_cause=RootCause(id=None, confidence=0.0))
        self._screen.app.push_screen(FileViewer(talk, report, place))

    # repairs

    def apply(self, ids: list[str]) -> None:
        """Show what patches would change, and ask."""
        from ..panels.repairs_flow import begin_apply

        if self._talk.diagnosis is None:
            raise UsageError("there is no diagnosis yet", "ask what is wrong first")
        begin_apply(self._screen.screen, self._talk, self._talk.diagnosis, ids)

    def undo(self, ident: str) -> None:
        """Show what taking an apply back would change, and ask."""
        from ..panels.repairs_flow import begin_undo

        begin_undo(self._screen.screen, self._talk, ident)

    def do_apply(self, words: list[str]) -> None:
        """Apply patches."""
        self.apply([w.upper() for w in words])

    def do_undo(self, words: list[str]) -> None:
        """Take an apply back."""
        self.undo(words[0] if words else "")

    # the conversation itself

    def do_report(self, words: list[str]) -> None:
        """The last diagnosis, whole."""
        found = self._talk.diagnosis
        if found is None:
            raise UsageError("no diagnosis yet", "ask what is wrong")
        self._screen.transcript.answer(found, whole=True)

    def do_copy(self, words: list[str]) -> None:
        """The last answer as text on the terminal's clipboard."""
        from ...agent.telling.render import as_plain

        if not self._talk.reports:
            raise UsageError("nothing to copy yet", "ask what is wrong")
        text = as_plain(self._talk.reports[-1])
        self._screen.app.copy_to_clipboard(text)
        self._say(f"{len(text):,} characters given to the terminal's clipboard, if it takes them (OSC 52)")

    def do_export(self, words: list[str]) -> None:
        """The conversation as a file."""
        from ...agent.chat.chat_export import export_path

        talk = self._talk
        if not talk.reports:
            raise UsageError("nothing to export yet", "ask what is wrong")
        path = export_path(words[0])
        self._screen.run_worker(lambda: self._export(talk, path), thread=True, exit_on_error=False)

    def _export(self, talk: Conversation, path: Path) -> None:
        from ...agent.chat.chat_export import exported, write_export
        from ..messages import Told

        try:
            write_export(exported(talk.reports, path.suffix, talk.workspace), path)
            self._screen.post_message(Told(f"wrote {path}"))
        except (DoctorError, OSError) as e:
            self._screen.post_message(Told(str(e), trouble=True))

    def do_theme(self, words: list[str]) -> None:
        """How the chat looks."""
        self._screen.program.choose_theme(words[0] if words else "")

    def do_stop(self, words: list[str]) -> None:
        """Stop the answer."""
        self._screen.action_stop()

    def do_help(self, words: list[str]) -> None:
        """Keys, commands, what can be asked."""
        self._screen.program.show_help(" ".join(words))

    def do_quit(self, words: list[str]) -> None:
        """End."""
        self._screen.app.exit()
