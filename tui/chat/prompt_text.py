"""The lines that are typed: editing keys, and a paste that cannot steer the terminal or stop it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from ...agent.safety.fences import inert

PASTED = 20_000  # characters of one paste; more is a file, not a question

# What changes the line; answered in the order of the keys, also while the screen is busy drawing.
_EDITS = frozenset((
    "newline", "delete_left", "delete_right", "delete_word_left", "delete_word_right", "delete_to_start_of_line",
    "delete_to_end_of_line", "cursor_left", "cursor_right", "cursor_word_left", "cursor_word_right",
    "cursor_line_start", "cursor_line_end",
))  # fmt: skip


class PromptText(TextArea, inherit_bindings=False):
    """An editor of a few lines whose enter sends. It knows its text alone; the prompt around it does the rest."""

    DEFAULT_CSS = """
    PromptText { height: auto; min-height: 1; max-height: 6; border: none; padding: 0; background: $background; }
    PromptText:focus { border: none; }
    PromptText .text-area--cursor-line { background: $background; }
    PromptText .text-area--cursor { text-style: reverse; color: $foreground; background: $background; }
    PromptText .text-area--placeholder { color: $text-muted; }
    PromptText .text-area--selection { text-style: reverse; }
    """

    # All of its keys are here, so that none that Textual thought of takes one which the chat uses (ctrl+e, ctrl+d, f6).
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "send"),
        Binding("ctrl+j", "newline", "new line"),
        Binding("shift+enter,alt+enter", "newline", "new line, where the terminal tells it from enter", show=False),
        Binding("tab", "complete", "take what is offered", show=False),
        Binding("escape", "back_out", "close the list, or take a waiting question back", show=False),
        Binding("up", "back", "line above; on the first line the question before", show=False),
        Binding("down", "forward", "line below; on the last line the question after", show=False),
        Binding("ctrl+u", "empty", "clear the prompt", show=False),
        Binding("left", "cursor_left", "one character left", show=False),
        Binding("right", "cursor_right", "one character right", show=False),
        Binding("ctrl+left", "cursor_word_left", "one word left", show=False),
        Binding("ctrl+right", "cursor_word_right", "one word right", show=False),
        Binding("home,ctrl+a", "cursor_line_start", "start of the line", show=False),
        Binding("end", "cursor_line_end", "end of the line", show=False),
        Binding("shift+left", "cursor_left(True)", "choose text to the left", show=False),
        Binding("shift+right", "cursor_right(True)", "choose text to the right", show=False),
        Binding("shift+up", "cursor_up(True)", "choose text upwards", show=False),
        Binding("shift+down", "cursor_down(True)", "choose text downwards", show=False),
        Binding("shift+home", "cursor_line_start(True)", "choose text to the line's start", show=False),
        Binding("shift+end", "cursor_line_end(True)", "choose text to the line's end", show=False),
        Binding("backspace", "delete_left", "delete the character before", show=False),
        Binding("delete", "delete_right", "delete the character after", show=False),
        Binding("ctrl+w,alt+backspace", "delete_word_left", "delete the word before", show=False),
        Binding("ctrl+k", "delete_to_end_of_line", "delete to the end of the line", show=False),
        Binding("ctrl+z", "undo", "undo typing", show=False),
        Binding("ctrl+x", "cut_chosen", "cut the chosen text", show=False),
        Binding("ctrl+c", "copy_chosen", "copy the chosen text", show=False),
        Binding("ctrl+v", "paste", "put in what was cut or copied here", show=False),
    ]

    @dataclass
    class Cut(Message):
        """A paste was longer than a question may be."""

        characters: int

    def __init__(self, answer: Callable[[str], bool]) -> None:
        """`answer` is told at once of `send`, `complete`, `back`, `forward`, `back_out`; False: it was of no use."""
        super().__init__(soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False, placeholder="")
        self._answer = answer
        self.cursor_blink = False  # a blink is a write: over a slow line it flickers
        self.listing = False  # a list of completions is open: up, down, tab and enter are for it

    @property
    def before(self) -> tuple[str, bool]:
        """The cursor's line up to the cursor, and whether it is the first line."""
        row, column = self.cursor_location
        return self.document[row][:column], row == 0

    def put(self, text: str) -> None:
        """Replace everything, with the cursor at the end; what was there comes back by undo."""
        self.replace(text, (0, 0), self.document.end, maintain_selection_offset=False)
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        # Answered here and not as a binding: a binding runs after the keys that were typed behind it.
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.action_send()
            return
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if binding.action in _EDITS:
                event.stop()
                event.prevent_default()
                getattr(self, f"action_{binding.action}")()
                return

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        if len(text) > PASTED:
            self.post_message(self.Cut(len(text)))
        if result := self._replace_via_keyboard(inert(text[:PASTED]), *self.selection):
            self.move_cursor(result.end_location)

    def action_send(self) -> None:
        self._answer("send")

    def action_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    def action_complete(self) -> None:
        if not self._answer("complete"):
            raise SkipAction

    def action_back_out(self) -> None:
        if not self._answer("back_out"):
            raise SkipAction

    def action_back(self) -> None:
        first = self.selection.is_empty and self.navigator.is_first_wrapped_line(self.cursor_location)
        if not ((self.listing or first) and self._answer("back")):
            self.action_cursor_up()

    def action_forward(self) -> None:
        last = self.selection.is_empty and self.navigator.is_last_wrapped_line(self.cursor_location)
        if not ((self.listing or last) and self._answer("forward")):
            self.action_cursor_down()

    def action_empty(self) -> None:
        self.put("")

    def action_copy_chosen(self) -> None:
        if not self.selected_text:
            raise SkipAction
        self.action_copy()

    def action_cut_chosen(self) -> None:
        if self.selected_text:
            self.action_cut()
