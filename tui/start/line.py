"""The line on top of the start screen: a path, which the tab key completes, or a question."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from ...agent.safety.fences import one_line

_PATIENCE = 0.5  # seconds until a list that takes no focus is given up


class InertInput(Input):
    """One line of input. Characters that nobody sees are spelt out as they come in."""

    def validate_value(self, value: str) -> str:
        return one_line(value)


class StartLine(InertInput):
    """A path or a question."""

    class Complete(Message):
        """Go on with the path as far as it is clear."""

    class Leave(Message):
        """Go down to the lists."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "complete", show=True),
        Binding("down", "leave", "lists", show=True),
        Binding("enter", "submit", "open or ask", show=True),
        Binding("escape", "clear", "clear", show=False),
    ]

    def __init__(self, placeholder: str) -> None:
        super().__init__(id="line", placeholder=placeholder, compact=True, select_on_focus=False)
        self.cursor_blink = False
        self._early: list[events.Key] | None = None  # typed after `down`, before the list has the focus

    async def _on_key(self, event: events.Key) -> None:
        """Down leaves at once: who types on does not wait for the screen, and means the list."""
        if self._early is None and event.key != "down":
            return
        event.stop()
        event.prevent_default()
        if self._early is None:
            self._early = []
            self.action_leave()
            self.set_timer(_PATIENCE, self._hand_on)
        else:
            self._early.append(event)

    def on_blur(self) -> None:
        """The list has the focus."""
        self._hand_on()

    def _hand_on(self) -> None:
        early, self._early = self._early, None
        for event in early or []:
            self.app.post_message(events.Key(event.key, event.character))

    def action_complete(self) -> None:
        if self.value.strip():
            self.post_message(self.Complete())
        else:
            self.screen.focus_next()

    def action_leave(self) -> None:
        self.post_message(self.Leave())

    def action_clear(self) -> None:
        self.value = ""
