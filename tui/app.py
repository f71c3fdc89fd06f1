"""The chat as a program: which screen, which look, how it ends. What is on the screens is in the folders beside it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen

from ..agent.chat.talk import House, Wanted
from ..agent.core.errors import UsageError
from . import themes
from .chat.palette import SlashCommands
from .chat.screen import ChatScreen
from .crash import Sturdy
from .messages import Told
from .start.messages import Opened as Chosen

WORKERS = 8  # threads that views read on; one that hangs on a dead server must not take the others' place


class DoctorApp(Sturdy, App[int]):
    """Begins with the start screen where nothing is named, else with the conversation."""

    CSS_PATH = "doctor.tcss"
    TITLE = "doctor"
    COMMANDS: ClassVar[set] = {SlashCommands}
    BINDINGS: ClassVar[list[BindingType]] = [Binding("f1", "help", "help", show=False)]  # also over a file

    def __init__(
        self, house: House, state: Path, wanted: Wanted | None, question: str = "", watch: bool = False
    ) -> None:
        super().__init__()
        self.animation_level = "none"  # over ssh each frame is a screen of bytes
        self.house, self.state = house, state
        self.last_words = ""  # for the terminal, once the screen is gone
        self._wanted, self._question, self._watch = wanted, question, watch
        for theme in themes.OURS:
            self.register_theme(theme)

    def get_system_commands(self, screen: Screen) -> Iterable[SystemCommand]:
        """None of Textual's own: the palette is made of the table of commands."""
        return ()

    def on_load(self) -> None:
        """Threads that still read when the program ends are left behind, not waited for."""
        asyncio.get_running_loop().set_default_executor(_Leaving(WORKERS))

    def on_mount(self) -> None:
        self.theme = themes.remembered(self.state)
        if self._wanted is not None or self._question:
            self.push_screen(ChatScreen(self, self._wanted, self._question, self._watch))
        else:
            from .start.screen import StartScreen

            self.push_screen(StartScreen(self.state))
        self.call_after_refresh(_collect_again)

    def open(self, wanted: Wanted, question: str = "") -> None:
        """Leave the start screen for a conversation."""
        self.switch_screen(ChatScreen(self, wanted, question))

    @on(Chosen)
    def _chosen(self, message: Chosen) -> None:
        """Something was chosen on the start screen."""
        message.stop()
        path, session, report = message.path, message.session, message.report
        wanted = Wanted(
            paths=(str(path),) if path else (), session=session or "", report=str(report) if report else ""
        )  # fmt: skip
        self.open(wanted, message.question)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing may open over a question that must be answered: what is typed then was meant for it."""
        return action != "command_palette" or not isinstance(self.screen, ModalScreen)

    def show_help(self, words: str = "") -> None:
        """The help, at what the words name."""
        from .dialogs.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen.of(self.screen, words))

    def choose_theme(self, name: str = "") -> None:
        """A look by its name, else the next of ours; remembered for later.

        Raises:
            UsageError: there is none by that name.
        """
        wanted = themes.named(name) if name else themes.after(self.theme)
        if not wanted:
            raise UsageError(f"no theme {name[:40]}", f"{', '.join(themes.names())}")
        self.theme = wanted
        try:
            themes.remember(self.state, wanted)
        except OSError as e:
            self.screen.post_message(Told(f"the theme is not remembered: {e.strerror}"))

    def action_help(self) -> None:
        self.show_help()

    def action_next_theme(self) -> None:
        self.choose_theme()


def _collect_again() -> None:
    """Set what is there now aside from garbage collection, and begin it: a pass over all of Textual is a felt pause."""
    if not gc.isenabled():  # the command line has put it off
        gc.freeze()
        gc.enable()


class _Leaving(ThreadPoolExecutor):
    """Does not keep the program from ending: its work only reads, and nobody waits for it any more."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)
