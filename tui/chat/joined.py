"""The screen of a conversation and the program around it, as the parts that the screen joins may ask of them.

The parts know these two and not `screen.py`, which makes the parts; a part that needs another is handed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from textual.app import App
    from textual.message import Message
    from textual.screen import Screen
    from textual.timer import Timer

    from ...agent.chat.talk import Conversation, House
    from ...agent.core.report import Report
    from ...agent.core.types import Call
    from .activity import Activity
    from .asking import Asking, Ended
    from .side import Side
    from .status import StatusLine
    from .transcript import Transcript


class Program(Protocol):
    """What a conversation asks of the program it is shown in, beyond what every program of Textual can."""

    house: House
    state: Path

    def choose_theme(self, name: str = "") -> None:
        """A look by its name, else the next one.

        Raises:
            UsageError: there is none by that name.
        """

    def show_help(self, words: str = "") -> None:
        """The help, at what the words name."""


class JoinedScreen(Protocol):
    """The screen that a part is joined to.

    Attributes:
        talk: the conversation that is open; None until a run was opened.
    """

    program: Program
    talk: Conversation | None
    transcript: Transcript
    side: Side
    status: StatusLine
    activity: Activity
    asking: Asking

    # what the screen does

    def put(self, question: str, calls: tuple[Call, ...] = ()) -> None:
        """Answer a question, after those that wait."""

    def answered(self, report: Report) -> None:
        """Take a report of the conversation in."""

    def ended(self, message: Ended) -> None:
        """An answer is over."""

    def action_panel(self, name: str) -> None:
        """Show a view and go there."""

    def action_stop(self) -> None:
        """Stop the answer, as the key does."""

    # what every screen of Textual can

    @property
    def app(self) -> App[Any]:
        """The program, as Textual knows it."""
        ...

    @property
    def screen(self) -> Screen[object]:
        """Itself, as Textual knows it: for what is done on any screen."""
        ...

    def post_message(self, message: Message) -> bool:
        """Tell the screen something; from any thread."""
        ...

    def call_after_refresh(self, callback: Callable[[float], None], value: float, /) -> bool:
        """Call something with a value once what changed is drawn."""
        ...

    def set_interval(self, interval: float, callback: Callable[[], None], *, pause: bool) -> Timer:
        """Call something every so many seconds."""
        ...

    def run_worker(self, work: Callable[[], None], *, thread: bool, exit_on_error: bool) -> object:
        """Do something aside."""
        ...
