"""The question before anything runs that is above the allowed risk: what exactly, why, and four answers.

No is what enter and esc say. Keys typed before the question was read do not count: the dialog takes none until the
keyboard was quiet for half a second, and none of a key that is held down.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from .approval_text import CHOICES, asked_text, choices_text

if TYPE_CHECKING:
    from ...agent.chat.consent import Asked, Decision

QUIET = 0.5  # seconds without a key before one counts
HELD = 0.15  # seconds in which a key that comes again is one that is held down
LEAVES = ("ctrl+c", "ctrl+q")  # these count at any time
_LETTERS = {key: n for n, (key, _, _) in enumerate(CHOICES)}
_MOVES = {"right": 1, "tab": 1, "left": -1, "shift+tab": -1}
_SCROLLS = {"up": "up", "down": "down", "pageup": "page_up", "pagedown": "page_down", "home": "home", "end": "end"}


class Choices(Widget, can_focus=True):
    """The answers in a line, one of them marked with `>`. All keys of the dialog come here."""

    DEFAULT_CSS = "Choices { height: auto; width: 1fr; }"
    chosen: reactive[int] = reactive(0)
    opened: reactive[bool] = reactive(False)

    class Pressed(Message):
        """A key that the dialog shall look at."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, lasting: str) -> None:
        super().__init__()
        self._lasting = lasting

    def render(self) -> Content:
        return choices_text(self.chosen, self._lasting, self.opened)

    async def _on_key(self, event: events.Key) -> None:
        if event.key in LEAVES:
            return
        event.stop()  # whatever it is, nothing below the dialog hears of it
        event.prevent_default()
        self.post_message(self.Pressed(event.key))

    def on_paste(self, event: events.Paste) -> None:
        event.stop()


class ApprovalDialog(ModalScreen["Decision | None"]):
    """Asks about one call. Ends with a decision; with None where it is taken away unanswered (`withdraw`)."""

    DEFAULT_CSS = """
    ApprovalDialog { align: center middle; }
    ApprovalDialog > Vertical {
        width: 96; max-width: 100%; height: auto; max-height: 100%;
        border: solid $accent; background: $surface; padding: 0 1;
    }
    ApprovalDialog #asked { height: auto; }
    ApprovalDialog #more { height: 1; color: $text-muted; }
    """
    # Choices takes every key before these are looked at; they stand here for the help.
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, f"press('{key}')", word) for key, _, word in CHOICES),
        Binding("escape", "press('escape')", "no"),
        Binding("enter", "press('enter')", "the marked answer"),
        Binding("left", "press('left')", "mark the answer before"),
        Binding("right", "press('right')", "mark the next answer"),
        *(Binding(key, f"press('{key}')", "scroll") for key in _SCROLLS),
    ]

    def __init__(self, asked: Asked, number: int = 1, of: int = 1, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.asked = asked
        self._number, self._of, self._now = number, of, now
        self._last = now()  # when the dialog appeared, or the last key that did not count
        self._held: tuple[str, Timer] | None = None
        self._over = False

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = "May this check run? Nothing of it has run"
            with VerticalScroll(id="asked", can_focus=False):
                yield Static(asked_text(self.asked, self._number, self._of))
            yield Static("", id="more")
            yield Choices("every call of this check" if self.asked.whole else "exactly this call")

    def on_mount(self) -> None:
        self.query_one(Choices).focus()
        self.set_interval(0.05, self._look)
        self.watch(self.query_one("#asked"), "scroll_y", self._tell_more, init=False)

    def on_resize(self, event: events.Resize) -> None:
        """The answers are always to be seen; what does not fit above them is scrolled."""
        below = 6 if event.size.width >= 80 else 10
        self.query_one("#asked").styles.max_height = max(2, event.size.height - below)

    def withdraw(self) -> None:
        """Take the question away: the diagnosis that asked was stopped."""
        self._end(None)

    async def _on_key(self, event: events.Key) -> None:
        """Keys come here where no widget has the focus."""
        if event.key not in LEAVES:
            event.stop()
            event.prevent_default()
            self.action_press(event.key)

    def on_choices_pressed(self, event: Choices.Pressed) -> None:
        event.stop()
        self.action_press(event.key)

    def on_screen_resume(self) -> None:
        """It is to be seen, for the first time or again: what is typed now was meant for something else."""
        if self._over:
            self.dismiss(None)
        else:
            self._shut()

    def action_press(self, key: str) -> None:
        """Take a key, unless it may have been meant for what stood here before."""
        choices = self.query_one(Choices)
        if not choices.opened:
            self._last = self._now()
        elif self._held is not None:
            timer = self._held[1]
            timer.stop()
            self._held = None
            self._shut()  # two keys within a blink: held down, or typed without looking
        elif key in _MOVES:
            choices.chosen = (choices.chosen + _MOVES[key]) % len(CHOICES)
        elif key in _SCROLLS:
            getattr(self.query_one("#asked", VerticalScroll), f"scroll_{_SCROLLS[key]}")(animate=False)
        elif key in ("escape", "enter", *_LETTERS):
            chosen = 0 if key == "escape" else choices.chosen if key == "enter" else _LETTERS[key]
            self._held = (key, self.set_timer(HELD, lambda: self._take(chosen)))

    def _take(self, chosen: int) -> None:
        from ...agent.chat.consent import Decision

        self._end(Decision(CHOICES[chosen][1]))

    def _end(self, decision: Decision | None) -> None:
        if self._over:
            return
        self._over = True
        if self.is_current:
            self.dismiss(decision)

    def _shut(self) -> None:
        self._last = self._now()
        self.query_one(Choices).opened = False

    def _look(self) -> None:
        """Open once the keyboard was quiet for long enough; say whether there is more to read."""
        choices = self.query_one(Choices)
        if not choices.opened and self._now() - self._last >= QUIET:
            choices.opened = True
        self._tell_more()

    def _tell_more(self) -> None:
        body, more = self.query_one("#asked", VerticalScroll), self.query_one("#more", Static)
        below = int(body.max_scroll_y - body.scroll_y)
        above = int(body.scroll_y)
        told = ", ".join(f"{n} line{'s' * (n != 1)} {where}" for n, where in ((above, "above"), (below, "below")) if n)
        more.update(Content(f"-- {told} (up, down, pgup, pgdn) --" if told else ""))


def withdraw(app: App[Any]) -> None:
    """Take the question away that is on the screen, if there is one: the diagnosis that asked was stopped."""
    for screen in app.screen_stack:
        if isinstance(screen, ApprovalDialog):
            screen.withdraw()


def ask_one_by_one(app: App[Any], asked: list[Asked], done: Callable[[dict[str, Decision]], None]) -> None:
    """Ask about each call in turn, and hand over all decisions at the end; not at all where one is withdrawn.

    A lasting answer covers the calls behind it too: they are not asked about.
    """
    decisions: dict[str, Decision] = {}
    lasting: dict[str, Decision] = {}

    def ask(at: int) -> None:
        while at < len(asked) and asked[at].scope in lasting:
            decisions[asked[at].call.identity] = lasting[asked[at].scope]
            at += 1
        if at == len(asked):
            done(decisions)
            return
        app.push_screen(ApprovalDialog(asked[at], at + 1, len(asked)), lambda said: take(at, said))

    def take(at: int, said: Decision | None) -> None:
        if said is None:
            return
        decisions[asked[at].call.identity] = said
        if said in ("session", "never"):
            lasting[asked[at].scope] = said
        ask(at + 1)

    ask(0)
