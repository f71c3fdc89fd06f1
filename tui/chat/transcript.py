"""The conversation from top to bottom: questions, checks, what a model writes, answers, lines from other parts."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.widgets import Static

from ..text import said
from .activity import Activity
from .checks import Checks

if TYPE_CHECKING:
    from ...agent.core.report import Report
    from .answer import Answer
    from .writing import Writing

KEPT, SLACK = 100, 60  # entries on the screen, and further ones until the first go; the session keeps them all


class Question(Static):
    """What was asked."""

    DEFAULT_CSS = """
    Question { height: auto; margin: 1 0 0 0; padding: 0 1; background: $boost; text-style: bold; }
    """


class Line(Static):
    """A line from whichever part; trouble is marked by `!` and colour."""

    DEFAULT_CSS = """
    Line { height: auto; padding: 0 1; color: $text-muted; }
    Line.-trouble { color: $error; }
    """


class Transcript(VerticalScroll, can_focus=True):
    """Grows at its end and stays there, unless somebody has scrolled up. A long answer is seen from its first line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "scroll_up", "Up", show=False),
        Binding("j", "scroll_down", "Down", show=False),
        Binding("g", "scroll_home", "To the start", show=False),
        Binding("G,shift+g", "scroll_end", "To the end", show=False),
    ]
    DEFAULT_CSS = """
    Transcript { height: 1fr; padding: 0 1 0 0; border-left: blank; scrollbar-size-vertical: 1; }
    Transcript:focus { border-left: wide $accent; }
    """

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self.checks: Checks | None = None
        self._entries: deque[Vertical | Static] = deque()
        self._writing: Writing | None = None
        self._led: Answer | None = None  # the answer that is to be seen from its first line
        self._led_at = Region()  # where it was when it was last put into its place
        self._scrolled = False  # by somebody, since the conversation last chose its place by itself

    def on_mount(self) -> None:
        self.anchor()
        self.screen.screen_layout_refresh_signal.subscribe(self, lambda screen: self._laid_out())

    @property
    def below(self) -> int:
        """How many lines are there below what is seen."""
        return max(round(self.max_scroll_y - max(self.scroll_y, 0)), 0)

    @property
    def reading(self) -> bool:
        """Somebody has scrolled away from where the conversation goes on: nothing may jump."""
        return self._scrolled and self.below > 0

    def page(self, direction: int) -> None:
        """A page up (-1) or down (1), for keys that are pressed at the prompt."""
        (self.scroll_page_up if direction < 0 else self.scroll_page_down)(animate=False)

    def ask(self, question: str) -> None:
        """A question begins; its checks follow."""
        self._end_writing()
        self.checks = Checks()
        self._add(Question(Content.assemble("> ", said(question or "What went wrong here?"))), self.checks)
        if not (self.has_focus_within and self.reading):
            self._follow()

    def tell(self, text: str, trouble: bool = False) -> None:
        """A line that stays. Between answers it says what became of a command, and comes into view."""
        self.note(text, trouble)
        if not self.has_focus_within and (self.checks is None or self.checks.over):
            self._follow()

    def note(self, text: str, trouble: bool = False) -> None:
        """A line that nobody asked for: it is there, and moves nothing that is being read."""
        self._end_writing()
        shown = Content("\n").join(said(f"! {row}" if trouble else row) for row in text.split("\n"))
        self._add(Line(shown, classes="-trouble" if trouble else ""))
        if not self.below:
            self._follow()

    def write(self, piece: str) -> None:
        """A piece of what a model writes."""
        from .writing import Writing  # markdown is slow to import, and without a model nothing is written

        if self._writing is None:
            self._writing = Writing()
            self._add(self._writing)
        self._writing.add(piece)

    def answer(self, report: Report, whole: bool = False) -> None:
        """A report."""
        from .answer import Answer

        self.end()
        free = not self.reading
        shown = Answer(report, whole)
        if free:
            self._lead(shown)
        self._add(shown)

    def end(self) -> None:
        """No more comes to the question that was under way."""
        self._end_writing()
        if self.checks is not None:
            self.checks.end()

    def recall(self, reports: list[Report]) -> None:
        """Questions and answers of a session that is gone on with."""
        from .answer import Answer

        for report in reports:
            self._add(Question(Content.assemble("> ", said(report.question or "What went wrong here?"))))
            shown = Answer(report)
            self._add(shown)
            self._lead(shown)

    def wipe(self) -> None:
        """Another run: nothing said here is about it."""
        self.checks = self._writing = None
        self._entries.clear()
        self._follow()
        self.remove_children()

    def action_scroll_end(self) -> None:
        """To the end, and along with it from there on."""
        self._follow()

    def release_anchor(self) -> None:
        """Called by whatever scrolls: keys, wheel, scrollbar, the focus; not by a change of size."""
        super().release_anchor()
        self._scrolled = True

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._tell_below()

    def on_show(self) -> None:
        self._tell_below()

    def on_hide(self) -> None:
        self._tell_below()

    def _tell_below(self) -> None:
        """Say under the conversation how much more there is: a scrollbar of one column is easily missed."""
        for line in self.screen.query(Activity):
            key = "page down" if "pagedown" in self.screen.active_bindings else ""
            line.more(self.below if self.display else 0, key)

    def _follow(self) -> None:
        """Stay at the end from here on."""
        self._led, self._scrolled = None, False
        self.anchor()

    def _lead(self, shown: Answer) -> None:
        """See an answer from its first line: the verdict is what is waited for."""
        if self.scroll_y >= 0:  # below it the whole conversation has room, and stands at the end of the screen
            self.anchor(False)
        self._led, self._led_at, self._scrolled = shown, Region(), False

    def _laid_out(self) -> None:
        """Everything has its place. The answer that leads may have a first or another one, seen or not.

        An answer that begins below the screen hears of no size of its own.
        """
        self._tell_below()
        at = self._led.virtual_region if self._led is not None and self._led.is_mounted else self._led_at
        if at != self._led_at:
            self._led_at = at
            self.call_after_refresh(self._place, not self.reading)

    def _place(self, free: bool) -> None:
        """Put the answer's first line on top, or all of it into view where there is room."""
        if self._led is None or not free:
            return
        fits = self.max_scroll_y <= 0
        self.anchor(fits)
        if fits:
            self.refresh(layout=True)
        else:
            self.scroll_to(y=self._led.virtual_region.y, animate=False, immediate=True, force=True)
        self._scrolled = False

    def _end_writing(self) -> None:
        if self._writing is not None:
            self._writing.end()
            self._writing = None

    def _add(self, *parts: Vertical | Static | Writing) -> None:
        self.mount(*parts)
        self._entries.extend(parts)
        if len(self._entries) > KEPT + SLACK:  # many at once: keys wait while the application lets go of one
            oldest = [self._entries.popleft() for _ in range(SLACK)]
            kept = [e for e in oldest if e is self.checks]  # more comes to it
            self._entries.extendleft(kept)
            self.remove_children([e for e in oldest if e not in kept])
