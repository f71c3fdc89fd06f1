"""Where the user types: questions, commands, completion, and the questions of before. It is never out of order."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import OptionList, Static, TextArea
from textual.worker import Worker, WorkerState

from ...agent.chat.chat_export import PastQuestions
from ...agent.core.errors import DoctorError
from ...agent.safety.fences import inert
from .. import commands, messages
from ..text import said
from . import completion_disk
from .completion import Candidate, Known, Place, candidates, place
from .completion_list import CompletionList
from .prompt_past import Past
from .prompt_text import PASTED, PromptText

PLACEHOLDERS = {
    "no run": "name a run: /run PATH   or ask: what does NCCL_TIMEOUT do?   / commands",
    "ready": "ask: why did it die?   / commands   @ files   F1 help",
    "diagnosing": "type the next question: it waits for this answer   esc stops",
    "diagnosed": "go on: why?   are you sure?   what if precision=bf16   / commands   @ files",
}


class Prompt(Vertical):
    """Posts `messages.Ask` for a question and `messages.Command` for a line with a slash.

    What is asked while an answer is under way waits, is shown as waiting, and is posted when `under_way(False)` is
    told; commands are posted at once. The screen keeps `known` up to date.

    Attributes:
        known: what can be completed.
        waiting: questions to be asked, in order.
    """

    NAME = "prompt"
    DEFAULT_CSS = """
    Prompt { height: auto; background: $background; border-top: solid $border-blurred; }
    Prompt:focus-within { border-top: heavy $border; }
    Prompt .prompt--line { height: auto; }
    Prompt .prompt--mark { width: 2; color: $accent; text-style: bold; }
    Prompt .prompt--waiting { height: auto; max-height: 3; color: $text-muted; display: none;
        text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, past: PastQuestions | None = None, *, known: Known | None = None) -> None:
        super().__init__()
        self.known = known or Known()
        self.waiting: list[str] = []
        self._store = past or PastQuestions(None)
        self._past = Past()
        self._disk = completion_disk.OnDisk(self._store.state)
        self._busy = False
        self._put: str | None = ""  # what was put in, or was closed upon: nothing is offered for it
        self._round = 0  # of completion; what a thread brings for an earlier one is dropped
        self._text = PromptText(self._answer)
        self._list = CompletionList()
        self._mark = Static(" ", classes="prompt--mark", markup=False)
        self._waits = Static("", classes="prompt--waiting", markup=False)
        self.stage("no run")

    def compose(self) -> ComposeResult:
        """The list lies over what is above; then what waits; then the line."""
        yield self._list
        yield self._waits
        yield Horizontal(self._mark, self._text, classes="prompt--line")

    def on_mount(self) -> None:
        """Read the questions of before, aside."""
        self._aside(self._read_past, "past")

    # What the screen says.

    def focus(self, scroll_visible: bool = True) -> Prompt:
        """The keyboard goes to the line."""
        self._text.focus(scroll_visible)
        return self

    @property
    def text(self) -> str:
        """What is typed so far."""
        return self._text.text

    def stage(self, word: str) -> None:
        """What can be asked now: a key of `PLACEHOLDERS`."""
        self._text.placeholder = Content(PLACEHOLDERS[word])

    def under_way(self, busy: bool) -> None:
        """An answer began or ended; when it ended the next question that waits is posted."""
        was, self._busy = self._busy, busy
        if was and not busy and self.waiting:  # told twice, the second question would overtake the first
            question = self.waiting.pop(0)
            self._show_waiting()
            self.post_message(messages.Ask(question))

    def queue(self, question: str) -> None:
        """Let a question wait for the end of the answer that is under way."""
        self.waiting.append(question)
        self._show_waiting()

    def back_out(self) -> bool:
        """Close the list, or take the last waiting question back into an empty line; False: there was neither."""
        if self._list.open:
            self._put = self._text.text
            self._close()
            return True
        if not self.waiting or self._text.text:
            return False
        self.load(self.waiting.pop())
        self._show_waiting()
        return True

    def load(self, text: str) -> None:
        """Put a text into the line, to be changed and sent; nothing is sent by itself."""
        self._put = text = inert(text)
        self._close()
        self._text.put(text)

    def begin_command(self, name: str) -> None:
        """Begin a command that needs a word, and offer what it may be."""
        self._text.put(f"/{name} ")
        self.focus()

    # What the keys do.

    def _answer(self, word: str) -> bool:
        """A key of the line; whether it was of use."""
        if word == "send":
            self._send()
            return True
        if word == "complete":
            listing = self._list.open  # else the key is for the screen
            self._take(self._list.taken or next(iter(self._list.rows), None))
            return listing
        if word == "back_out":
            return self.back_out()
        by = -1 if word == "back" else 1
        if self._list.open:
            self._list.move(by)
            return True
        text = self._past.step(by, self._text.text)
        if text is not None:
            self.load(text)
        return text is not None

    def _send(self) -> None:
        """Take the marked row, or send the line."""
        if self._text.text != self._put:
            self._complete()  # what was typed just now may not have been looked at yet
        row, where = self._list.taken if self._list.open else None, self._list.where
        if row and where and not (_stands(row, where) or (_named(where) and not self._list.moved)):
            self._take(row)
            named = commands.command(row.text) if where.kind == "command" else None
            if named is None or named.arguments:
                return
        line = self._text.text
        if not line.strip():
            return
        self._keep(line.strip())
        self.load("")
        if commands.is_command(line):
            self.post_message(messages.Command(line.strip()))
        elif self._busy:
            self.queue(line.strip())
        else:
            self.post_message(messages.Ask(line.strip()))

    def _take(self, row: Candidate | None) -> bool:
        """Put a row where it belongs; False: there is none."""
        where = self._list.where
        if row is None or where is None:
            return False
        line, column = self._text.cursor_location
        text = f"{where.lead}{row.text}{'' if row.more else ' '}"
        self._close()
        self._text.replace(text, (line, where.start), (line, column), maintain_selection_offset=False)
        self._text.move_cursor((line, where.start + len(text)))
        return True

    # Completion.

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Offer what may stand here; a text that was put in is left alone."""
        event.stop()
        if self._text.text == self._put:
            self._close()
        else:
            self._put = None
            self._complete()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A row was clicked."""
        event.stop()
        self._take(self._list.rows[event.option_index] if event.option_index < len(self._list.rows) else None)
        self.focus()

    def _complete(self) -> None:
        where = place(*self._text.before)
        if where is None:
            self._close()
        elif where != self._list.where:
            self._round += 1
            if where.kind in completion_disk.KINDS:
                now = self._round
                self._list.offer(where, [], "looking ...")
                self._aside(lambda: self._look(where, now), "completion", exclusive=True)
            else:
                self._list.offer(where, candidates(where, self.known))
        self._text.listing = self._list.open

    def _look(self, where: Place, now: int) -> None:
        """Off the screen's thread."""
        try:
            rows, word = self._disk.offered(where, self.known.talk), "nothing begins like that"
        except OSError as e:
            rows, word = [], f"cannot be read: {e.strerror or 'error'}"
        except DoctorError as e:
            rows, word = [], str(e)
        self.app.call_from_thread(self._found, where, rows, word, now)

    def _found(self, where: Place, rows: list[Candidate], word: str, now: int) -> None:
        if now == self._round and self._list.open:
            self._list.offer(where, rows, word)

    def _close(self) -> None:
        self._round += 1
        self._disk.forget()
        self._list.close()
        self._text.listing = False

    # The rest.

    def on_descendant_focus(self) -> None:
        """Show by a mark, not only by a colour, that typing goes here."""
        self._mark.update(">")

    def on_descendant_blur(self) -> None:
        """Typing goes elsewhere."""
        self._mark.update(" ")
        self._put = self._text.text
        self._close()

    def on_prompt_text_cut(self, event: PromptText.Cut) -> None:
        """Say that a paste was too long for a question."""
        event.stop()
        told = f"pasted {event.characters:,} characters, the first {PASTED:,} are kept; a log is read with /run PATH"
        self.post_message(messages.Told(told, trouble=True))

    def _show_waiting(self) -> None:
        self._waits.display = bool(self.waiting)
        rows = [said(f"  waiting: {' '.join(q.split())}", limit=400) for q in self.waiting[:2]]
        more = f"  and {len(self.waiting) - 2} more" if len(self.waiting) > 2 else ""
        self._waits.update(Content("\n").join([*rows, *([Content(more)] if more else [])]))

    def _keep(self, line: str) -> None:
        self._past.add(line)
        self._aside(lambda: self._kept(line), "past")

    def _kept(self, line: str) -> None:
        try:
            self._store.keep(line)
        except OSError as e:
            told = f"questions are not kept for later chats: {e.strerror or e}"
            self.post_message(messages.Told(told, trouble=True))

    def _read_past(self) -> None:
        found = self._store.all()
        self.app.call_from_thread(self._past.begin, found)

    def _aside(self, work: Callable[[], None], group: str, exclusive: bool = False) -> None:
        self.run_worker(work, thread=True, group=group, exclusive=exclusive, exit_on_error=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """What a thread could not do costs a line, not the chat."""
        if event.state is WorkerState.ERROR:
            told = f"bug in doctor: the prompt: {type(event.worker.error).__name__}: {event.worker.error}"
            self.post_message(messages.Told(told, trouble=True))


def _stands(row: Candidate, where: Place) -> bool:
    """Whether a row is already typed as it is: enter then sends."""
    return row.text.strip('"').rstrip("/") == where.typed.rstrip("/")


def _named(where: Place) -> bool:
    """Whether a command is typed by its whole name or another name of it, whatever else begins like that."""
    return where.kind == "command" and commands.command(where.typed) is not None
