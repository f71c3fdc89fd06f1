"""The checks made for one question: those that found something as cards, the rest folded into a line."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from ...agent.core.types import Call, ToolResult
from .card import OUTCOMES, Card, Made

MOST, SLACK = 40, 40  # cards at once, and further ones until the first make room for the last
_RECALL = "recall"  # why the checks that are made over everything were called


class Folded(Static, can_focus=True):
    """How many checks were made and what they came to; enter unfolds those without a finding too."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "open", "Unfold or fold")]
    DEFAULT_CSS = """
    Folded { height: auto; padding: 0 1; color: $text-muted; border-left: blank; }
    Folded:focus { border-left: thick $accent; background: $boost; }
    """

    def action_open(self) -> None:
        if isinstance(self.parent, Checks):
            self.parent.unfold(not self.parent.unfolded)

    def on_click(self) -> None:
        self.action_open()


class Checks(Vertical):
    """All checks of a question. Cards exist only for what is shown: a diagnosis makes some fifty calls."""

    DEFAULT_CSS = """
    Checks { height: auto; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Made] = []
        self.unfolded = False
        self.over = False
        self._cards: dict[int, Card] = {}
        self._left: dict[int, Made] = {}  # that are running, by their number
        self._counts: Counter[str] = Counter()  # of what came of the others
        self._folded = Folded("", markup=False)

    def compose(self) -> ComposeResult:
        yield self._folded

    def on_mount(self) -> None:
        for number, made in enumerate(self.made):  # begun before the line that they stand under was there
            if made.call.why != _RECALL:
                self._show(number)
        self.renew()

    def begin(self, call: Call, folded: bool = False) -> None:
        """A call starts. One that a planner or the user chose has its card from the start, unless it is `folded`."""
        self._left[len(self.made)] = Made(call)
        self.made.append(self._left[len(self.made)])
        if call.why != _RECALL and not folded:
            self._show(len(self.made) - 1)
        self.renew()

    def finish(self, call: Call, result: ToolResult, seconds: float) -> None:
        """It is over: a finding gets its card."""
        number = self._number_of(call)
        made = self.made[number]
        made.result, made.seconds = result, seconds
        self._left.pop(number, None)
        self._counts[result.outcome] += 1
        if number in self._cards:
            self._cards[number].renew()
        elif self.unfolded:
            self._show(number)
        self.renew()

    def end(self) -> None:
        """The question is answered, or nobody waits any more."""
        self.over = True
        self.renew()

    def unfold(self, wanted: bool) -> None:
        """Show all checks, or fold those away that were made over everything."""
        self.unfolded = wanted
        for number, made in list(enumerate(self.made))[-MOST:]:
            if wanted:
                self._show(number)
            elif made.call.why == _RECALL and number in self._cards:
                self._cards.pop(number).remove()
        self.renew()

    def open_all(self, wanted: bool) -> None:
        """Open the outputs of all cards that are shown."""
        for card in self._cards.values():
            card.unfold(wanted)

    def running(self) -> list[Made]:
        """Calls that are not over."""
        return list(self._left.values())

    def renew(self) -> None:
        """Count anew."""
        parts = [f"{n} {OUTCOMES[o][1]}" for o in OUTCOMES if (n := self._counts[o])]
        left = len(self._left)
        if left:
            parts.append(f"{left} {'left where they were' if self.over else 'running'}")
        sign = "-" if self.unfolded else "+"
        total = f"{len(self.made)} check{'s' * (len(self.made) != 1)}"
        self._folded.display = bool(self.made) or not self.over  # many a question is answered from what is known
        self._folded.update(Content(f"{sign} {total}: {', '.join(parts)}" if self.made else "+ no check yet"))

    def _number_of(self, call: Call) -> int:
        return next((n for n, m in self._left.items() if m.call == call), len(self.made) - 1)

    def _show(self, number: int) -> None:
        if number in self._cards or not self._folded.is_attached:
            return
        if len(self._cards) >= MOST + SLACK:  # many at once: keys wait while the application lets go of one
            self.remove_children([self._cards.pop(n) for n in sorted(self._cards)[:SLACK]])
        card = self._cards[number] = Card(self.made[number])
        later = [n for n in sorted(self._cards) if n > number]
        if later and self._cards[later[0]].is_attached:
            self.mount(card, before=self._cards[later[0]])
        else:
            self.mount(card)
