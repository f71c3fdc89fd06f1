"""What would be written to the user's files, whole, and the question whether it may. The answer is no unless said."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from ..repairs_rows import Drawn, RowsView
from ..text import said

if TYPE_CHECKING:
    from ...agent.chat.offered_repairs import PreparedApply, PreparedUndo

DEAF = 0.5  # seconds without a key until one counts: what was typed before the question was seen answers nothing
LEAST = 2  # lines of the change in sight, or it cannot be read
TOO_SMALL = "! make the window larger to see the change; n: no"
TOO_SOON = "! too soon to count: it will once the keyboard was quiet for half a second"
MOST_WARNINGS, LONG_WARNING = 2, 200  # so much has room above a change on the smallest screen


class ChangeDialog(ModalScreen[bool]):
    """Shows a change that was prepared and asks. `y` counts once its last line was in sight.

    Args:
        change: what would be written or put back.
        verb: the word on the button that does it.
    """

    DEFAULT_CSS = """
    ChangeDialog {
        align: center middle;
        & > #change {
            width: 96%; max-width: 150; height: 94%; padding: 0 1; background: $surface; border: round $accent;
        }
        #change-question { text-style: bold; height: auto; }
        #change-warnings { color: $text-warning; text-style: bold; height: auto; max-height: 10; display: none; }
        #change-warnings.-any { display: block; }
        #change-rows { margin: 1 0 0 0; background: $surface; }
        #change-foot { dock: bottom; height: 2; background: $surface; }
        #change-below { height: 1; text-wrap: nowrap; text-overflow: ellipsis; color: $text-muted; }
        #change-below.-asked { color: $text-warning; text-style: bold; }
        #change-answers { height: 1; }
        Button { margin: 0 2 0 0; min-width: 12; }
        Button:focus { text-style: bold reverse underline; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Write"),
        Binding("n,escape", "answer(False)", "No"),
        Binding("up", "move('line', -1)", "Up", show=False),
        Binding("down", "move('line', 1)", "Down", show=False),
        Binding("pageup", "move('page', -1)", "Page up", show=False),
        Binding("pagedown,space", "move('page', 1)", "Page down"),
        Binding("home", "move('all', -1)", "Top", show=False),
        Binding("end", "move('all', 1)", "End"),
        Binding("left", "app.focus_previous", "Other answer", show=False),
        Binding("right", "app.focus_next", "Other answer", show=False),
    ]

    def __init__(self, change: PreparedApply | PreparedUndo, verb: str = "Write") -> None:
        super().__init__()
        self._change = change
        self._verb = verb
        self._deaf_until = float("inf")
        self._seen = False

    def compose(self) -> ComposeResult:
        """Question and warnings stay in sight, the change scrolls between them and the answers."""
        with Vertical(id="change"):
            yield Static(said(self._change.question), id="change-question")
            warnings = [said(f"! {text}") for text in self._warnings()]
            yield Static(Content("\n").join(warnings), id="change-warnings", classes="-any" if warnings else "")
            yield RowsView(self._rows(), id="change-rows")
            with Vertical(id="change-foot"):
                yield Static(id="change-below")
                with Horizontal(id="change-answers"):
                    yield Button("No (n)", id="change-no", compact=True)
                    yield Button(said(f"{self._verb} (y)"), id="change-yes", compact=True)

    def _many(self) -> bool:
        told = self._change.warnings
        return len(told) > MOST_WARNINGS or any(len(text) > LONG_WARNING for text in told)

    def _warnings(self) -> list[str]:
        """What stays in sight; where that is too much, the first of it, and that all of it comes before the change."""
        told = self._change.warnings
        if not self._many():
            return [*self._change.marks, *told]
        first = [t if len(t) <= LONG_WARNING else f"{t[:LONG_WARNING]} ..." for t in told[:MOST_WARNINGS]]
        whole = f"{len(told)} warnings stand" if len(told) > 1 else "this warning stands"
        return [*self._change.marks, *first, f"{whole} whole before the change below"]

    def _rows(self) -> list[Drawn]:
        rows = [Drawn("mark", f"! {text}") for text in self._change.warnings] if self._many() else []
        rows += [Drawn("words", line) for line in self._change.where]
        rows += [Drawn("note", "")] * bool(rows)
        for row in self._change.rows:
            if row.kind in ("title", "file") and rows[-1:] and rows[-1].kind in ("in", "out", "same"):
                rows.append(Drawn("note", ""))
            if row.kind == "mark":
                rows.append(Drawn("mark", f"! {row.text}", 2))
            else:
                rows.append(Drawn(row.kind, row.text, 2 if row.kind == "words" else 0))
        return rows

    def on_mount(self) -> None:
        """No has the focus, and nothing counts until the change was drawn."""
        self.query_one("#change-no").focus()
        self.call_after_refresh(self._listen)

    def _listen(self) -> None:
        self._deaf_until = monotonic() + DEAF

    @property
    def deaf(self) -> bool:
        """Whether a key would still count as typed before the question was seen."""
        return monotonic() < self._deaf_until

    @on(RowsView.Moved)
    def _moved(self) -> None:
        view = self.query_one("#change-rows", RowsView)
        below = view.below
        if not self._in_sight(view):
            self._say(TOO_SMALL, asked=True)
            return
        self._seen = self._seen or (view.folded and not below)
        more = f"{below:,} more line{'s' * (below != 1)} below (space, end)" if below else "the change ends here"
        self._say(more)

    def _quiet(self) -> None:
        """Say again what is in sight, if no key came since."""
        if not self.deaf:
            self._moved()

    def _in_sight(self, view: RowsView) -> bool:
        """Whether the lines of the change are drawn at all: in a small window what stands above them takes all room."""
        room = self.query_one("#change").content_region
        foot = self.query_one("#change-foot").region
        return view.size.height >= LEAST and room.contains_region(view.region) and view.region.bottom <= foot.y

    def _say(self, text: str, asked: bool = False) -> None:
        line = self.query_one("#change-below", Static)
        line.set_class(asked, "-asked")
        line.update(said(text))

    def action_move(self, far: str, way: int) -> None:
        """Scroll the change."""
        view = self.query_one("#change-rows", RowsView)
        if far == "all":
            view.scroll_to(y=view.max_scroll_y if way > 0 else 0, animate=False)
        else:
            view.scroll_relative(y=way * (max(1, view.size.height - 1) if far == "page" else 1), animate=False)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        self.action_answer(event.button.id == "change-yes")

    def action_answer(self, yes: bool) -> None:
        """End with an answer, where one counts."""
        if self.deaf:
            self._listen()  # somebody is still typing something else
            self._say(TOO_SOON, asked=True)
            self.set_timer(DEAF + 0.02, self._quiet)
        elif not yes:
            self.dismiss(False)
        elif not self._in_sight(self.query_one("#change-rows", RowsView)):
            self._say(TOO_SMALL, asked=True)
        elif not self._seen:
            below = self.query_one("#change-rows", RowsView).below
            self._say(f"! {below:,} more lines below: go to the end first (end), then y", asked=True)
        else:
            self.dismiss(True)
