"""`/resume`: the earlier sessions, narrowed by typing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Static

from .line import InertInput
from .looking import look
from .recent_list import RecentList
from .recent_rows import details
from .rows import shown


class SessionsScreen(ModalScreen[str | None]):
    """Dismisses with the id of the session to go on with; None where none was chosen. Deletes nothing.

    Args:
        state: the state folder; the usual one where none is given.
        clock: gives the time that ages are counted from.
    """

    AUTO_FOCUS = "#filter"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "go on with it", show=True, priority=True),
        Binding("up", "move('cursor_up')", "up", show=False, priority=True),
        Binding("down", "move('cursor_down')", "down", show=False, priority=True),
        Binding("pageup", "move('page_up')", "page up", show=False, priority=True),
        Binding("pagedown", "move('page_down')", "page down", show=False, priority=True),
        Binding("escape", "dismiss(None)", "back", show=True),
    ]
    DEFAULT_CSS = """
    SessionsScreen { align: center middle; }
    SessionsScreen #box { width: 96%; height: 90%; max-width: 150; background: $background; border: round $border; }
    SessionsScreen #prompt { height: 1; padding: 0 1; }
    SessionsScreen #prompt Static { width: auto; color: $text-muted; }
    SessionsScreen #filter, SessionsScreen #filter:focus { width: 1fr; background: $background; }
    SessionsScreen .heading { height: 1; padding: 0 1; text-style: bold; }
    SessionsScreen RecentList { margin: 0 1; }
    SessionsScreen #details { height: 2; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, state: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._state = state
        self._clock = clock

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(Content("Earlier sessions"), id="heading", classes="heading")
            with Horizontal(id="prompt"):
                yield Static("filter: ", markup=False)
                yield InertInput(id="filter", compact=True, placeholder="words of the question, cause, run or session")
            yield RecentList(self._told, self._clock)
            yield Static("", id="details", markup=False)
            yield Footer()

    def on_mount(self) -> None:
        recent = self.query_one(RecentList)
        recent.can_focus, recent.driven = False, True
        look(self, self._usable, recent.read, self._told)

    def _usable(self) -> Path:
        from ...agent.chat.recent import usual_state

        return self._state or usual_state()

    def _told(self, text: str) -> None:
        self.query_one("#heading", Static).update(shown(f"Earlier sessions ({text})"))

    @on(Input.Changed)
    def _narrowed(self, event: Input.Changed) -> None:
        self.query_one(RecentList).narrow(event.value)

    @on(OptionList.OptionHighlighted)
    def _told_of_cursor(self) -> None:
        entry = self.query_one(RecentList).entry
        self.query_one("#details", Static).update(details(entry, self._clock()) if entry else "")

    @on(OptionList.OptionSelected)
    def action_open(self) -> None:
        entry = self.query_one(RecentList).entry
        if entry is None:
            return
        if entry.opens:
            self.dismiss(entry.session)
        else:
            self._told(f"! {entry.session} is {entry.status} and cannot be gone on with")

    def action_move(self, how: str) -> None:
        getattr(self.query_one(RecentList), f"action_{how}")()
