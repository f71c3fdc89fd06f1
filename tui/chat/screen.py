"""The screen of a conversation: it joins its parts and passes on what they say. What commands do is in `actions.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen

from ...agent.chat.chat_export import PastQuestions
from ...agent.chat.talk import Wanted
from ...agent.core.errors import DoctorError
from ..commands import parsed
from ..keys import bindings
from ..messages import ApplyPatches, Ask, Command, OpenEvidence, OpenFile, Told, UndoApply
from .actions import Actions
from .activity import Activity
from .approving import Approving, ToApprove
from .asking import Asked, Asking, Began, Ended
from .completion import Known
from .following import FollowingRun
from .footer import KeyLine
from .hearing import Hearing
from .opening import Opened, Opening, Refused
from .prompt import Prompt
from .side import Side
from .status import StatusLine
from .transcript import Transcript

if TYPE_CHECKING:
    from textual.app import App

    from ...agent.chat.talk import Conversation
    from ...agent.core.report import Report
    from ...agent.core.types import Call
    from .joined import Program


class ChatScreen(Screen[None]):
    """One conversation at a time, beside it what is known of the case."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings()]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012 - as Screen declares it
    DEFAULT_CSS = """
    ChatScreen #body { height: 1fr; }
    ChatScreen #transcript { width: 3fr; }
    ChatScreen.-no-side #side { display: none; }
    ChatScreen.-narrow #side { display: none; width: 1fr; border-left: none; }
    ChatScreen.-narrow.-side #side { display: block; }
    ChatScreen.-narrow.-side #transcript { display: none; }
    """

    def __init__(self, program: Program, wanted: Wanted | None, question: str = "", watch: bool = False) -> None:
        super().__init__()
        self.program = program
        self.talk: Conversation | None = None
        self.transcript, self.side, self.status = Transcript(), Side(), StatusLine()
        self.activity, self.prompt = Activity(), Prompt(PastQuestions(program.state))
        self.asking = Asking(self.post_message)
        self.hearing = Hearing(self)
        self.approving = Approving(self)
        self.opening = Opening(self)
        self.live = FollowingRun(self, self.opening)
        self.actions = Actions(self, self.opening, self.approving, self.live)
        self._wanted, self._first, self._watch = wanted, question, watch

    if TYPE_CHECKING:  # Textual declares it by a descriptor, which a type checker does not match with `JoinedScreen`

        @property
        def app(self) -> App[Any]: ...

    def compose(self) -> ComposeResult:
        yield self.status
        yield self.live.strip
        with Horizontal(id="body"):
            yield self.transcript
            yield self.side
        yield self.activity
        yield self.prompt
        yield KeyLine()

    def on_mount(self) -> None:
        self.prompt.focus()
        self.hearing.begin()
        wanted, first = self._wanted or Wanted(), self._first
        if self._watch and wanted.paths:
            self._watch, self._first = False, ""
            self.call_after_refresh(self.live.await_run, wanted, first)
        else:
            self.call_after_refresh(self.opening.begin, wanted)

    def on_unmount(self) -> None:
        self.asking.stop()
        self.live.stop()

    # a run is opened

    def on_opened(self, message: Opened) -> None:
        """A run is there: every part forgets the one before."""
        self.activity.end()
        if message.talk.workspace.roots or not self.live.awaits:
            self.live.stop()
        self.talk = talk = message.talk
        self.asking.begin(talk)
        self.approving.begin()
        self.transcript.wipe()
        self.transcript.recall(talk.reports)
        for line in message.told:
            self.transcript.tell(line)
        self.status.begin(talk)
        self.side.begin(talk)
        if talk.diagnosis:
            self.side.show(talk.diagnosis)
        self._settle_prompt()
        if message.unfinished is not None:
            self.transcript.tell(f"left unfinished: {message.unfinished.question or 'a diagnosis'}; going on with it")
            self.put("", ())
        elif self._first or message.question:
            self.put(message.question or self._first)
        self._first = ""
        if self._watch or message.watch:
            self._watch = False
            self.live.begin(talk)

    def on_refused(self, message: Refused) -> None:
        """It could not be opened; what was open stays."""
        self.activity.end()
        self.transcript.tell(message.why, trouble=True)
        if self.talk is None:
            self.transcript.tell("/run PATH looks at another one, /sessions lists earlier ones, F1 helps")

    # a question is answered

    def on_ask(self, message: Ask) -> None:
        """Somebody asks, at the prompt or from a view."""
        if self.asking.now is not None:
            self.prompt.queue(message.question)
        else:
            self.put(message.question)

    def put(self, question: str, calls: tuple[Call, ...] = ()) -> None:
        """Answer a question, after those that wait."""
        if self.talk is None:
            self._first = question
            if not self.opening.busy:
                self.opening.begin(Wanted(), question=question)
            return
        self.asking.put(Asked(question, calls), self.approving.asked)
        self._settle_prompt()

    def on_began(self, message: Began) -> None:
        """An answer begins."""
        self.hearing.resume()
        self.transcript.ask(message.asked.question)
        self.activity.begin("", self.talk, lambda: self.transcript.checks)
        self.status.spend(None)
        self._settle_prompt()

    def on_to_approve(self, message: ToApprove) -> None:
        """The diagnosis waits for a yes."""
        self.approving.show(message.asked)

    def answered(self, report: Report) -> None:
        """A report: the conversation has it, and if it is a diagnosis so have the views."""
        if self.talk is None:
            return
        self.transcript.answer(self.talk.shown(report))
        if report.status != "answer":
            self.status.show(report)
            self.side.show(report)

    def ended(self, message: Ended) -> None:
        """An answer is over."""
        if self.asking.now is not message.asked:
            return  # of a run that was left
        self.hearing.pause()
        self.transcript.end()
        self.activity.end()
        if self.talk and self.talk.diagnosis and (message.stopped or message.trouble):
            self.side.show(self.talk.diagnosis)  # what was being weighed came to nothing
        if message.stopped:
            self.transcript.tell("Stopped. What was found so far is kept: ask again to go on.")
        elif message.trouble:
            self.transcript.tell(message.trouble, trouble=True)
        self.asking.ended()
        self.live.settle()
        self._settle_prompt()

    def _settle_prompt(self) -> None:
        """Tell the prompt what can be asked and named now."""
        busy, talk = self.asking.now is not None, self.talk
        if talk is not None:
            models = [(name, "a profile of your doctor.toml") for name in self.program.house.models()]
            self.prompt.known = Known.of(talk, models=models)
        named = bool(talk and talk.workspace.roots)
        self.prompt.stage(
            "diagnosing" if busy else "diagnosed" if talk and talk.diagnosis else "ready" if named else "no run"
        )
        self.prompt.under_way(busy)
        self.query_one(KeyLine).busy = busy

    # what parts ask for

    def on_command(self, message: Command) -> None:
        """A line with a slash."""

        def carry_out() -> None:
            found, arguments = parsed(message.line)
            self.actions.carry_out(found.name, arguments)

        self._tried(carry_out)

    def _tried(self, work: Callable[[], None]) -> None:
        """Do what was asked for; what a user can cause to fail is a line."""
        try:
            work()
        except (DoctorError, OSError) as e:
            self.transcript.tell(str(e), trouble=True)

    def on_told(self, message: Told) -> None:
        """A line from another part."""
        self.transcript.tell(message.text, message.trouble)

    def on_open_evidence(self, message: OpenEvidence) -> None:
        self._tried(lambda: self.actions.open_file(message.ident))

    def on_open_file(self, message: OpenFile) -> None:
        self._tried(lambda: self.actions.open_file((message.name, message.line)))

    def on_apply_patches(self, message: ApplyPatches) -> None:
        self._tried(lambda: self.actions.apply(message.ids))

    def on_undo_apply(self, message: UndoApply) -> None:
        self._tried(lambda: self.actions.undo(message.ident))

    # keys

    def action_panel(self, name: str) -> None:
        """Show a view and go there; again: back to the prompt."""
        shown = self.side.display and self.side.shown == name and self.side.has_focus_within
        if shown:
            self.action_leave_side()
            return
        self.remove_class("-no-side")
        self.add_class("-side")
        self.side.front(name).enter()

    def action_leave_side(self) -> None:
        """Back to the conversation."""
        self.remove_class("-side")
        self.prompt.focus()

    def action_aside(self) -> None:
        """Hide or show the views."""
        if self.has_class("-narrow"):
            self.toggle_class("-side")
        else:
            self.toggle_class("-no-side")
        self.prompt.focus()

    def action_stop(self) -> None:
        """Leave a view; else take back the question that waits; else stop the answer."""
        if self.side.has_focus_within or self.transcript.has_focus_within or self.has_class("-side"):
            self.action_leave_side()
            return
        if self.prompt.back_out():
            return
        if self.opening.busy:
            self.opening.stop()
        elif self.asking.stop():
            self.approving.withdraw()
            self.activity.turn("stopping")

    def action_page(self, direction: int) -> None:
        """The conversation a page up or down, while one types."""
        self.transcript.page(direction)

    def action_copy_text(self) -> None:
        """What is selected, to the terminal's clipboard; a habit of ctrl+c ends nothing."""
        selected = self.get_selected_text()
        if selected:
            self.app.copy_to_clipboard(selected)
        else:
            self.transcript.tell("nothing is selected to copy; esc stops an answer, ctrl+q ends")

    def action_fold(self) -> None:
        """Unfold the checks of the last question, then open their outputs, then fold them."""
        checks = self.transcript.checks
        if checks is None:
            return
        if not checks.unfolded:
            checks.unfold(True)
        elif not checks.has_class("-all-open"):
            checks.add_class("-all-open")
            checks.open_all(True)
        else:
            checks.remove_class("-all-open")
            checks.open_all(False)
            checks.unfold(False)
