"""Lines of a file on the screen: a margin with ids and numbers, a cursor, wrapped or moved sideways.

It holds a stretch of the file and asks for more before the cursor comes to an end of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ..text import SHOWN, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.style import Style
    from textual.events import Click, MouseScrollDown, MouseScrollUp

    from ...agent.telling.views.excerpt import Row

KEPT = 3_000  # rows in memory; those farthest from the cursor go first
_NEAR = 150  # rows from an end at which more are asked for
_SIDEWAYS = 20  # columns of one step to the side
_IDS = 10  # columns of the margin's ids at most


class FilePane(Widget, can_focus=True):
    """A window on a file. The cited line that was opened has a `>` before it, others have their ids."""

    DEFAULT_CSS = """
    FilePane { height: 1fr; background: $surface; }
    FilePane > .pane--margin { color: $text-muted; }
    FilePane > .pane--ids { color: $text-accent; text-style: bold; }
    FilePane > .pane--cited { text-style: bold; background: $accent-muted; }
    FilePane > .pane--cursor { text-style: reverse; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"pane--margin", "pane--ids", "pane--cited", "pane--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,b", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("left", "aside(-1)", "Left", show=False),
        Binding("right", "aside(1)", "Right", show=False),
        Binding("w", "wrap", "Wrap"),
    ]

    @dataclass
    class Wanted(Message):
        """More rows are needed before (-1) or after (1) those that are here."""

        side: int

    @dataclass
    class Moved(Message):
        """The cursor stands on another row."""

        row: Row

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self.cursor = self.top = self.skip = self.aside = 0
        self.wrapped = False
        self.labels: dict[int, str] = {}  # offset -> ids
        self.marked: int | None = None  # offset of the line that was opened
        self.numbered = True
        self._ids = 0  # columns of the widest label
        self._pieces: dict[tuple[int, int, int], list[str]] = {}  # wrapped lines, by place, length and width
        self._placed: tuple[object, list[tuple[int, int]]] = (None, [])

    @property
    def current(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def label(self, labels: dict[int, str]) -> None:
        """Name the cited lines: offset -> ids."""
        self.labels = labels
        self._ids = min(max(map(len, labels.values()), default=0), _IDS)

    def fill(self, rows: Sequence[Row], at: int) -> None:
        """Show a stretch with the cursor on its row `at`, a third of the screen down."""
        self.rows, self.cursor, self.skip, self.aside = list(rows), max(0, min(at, len(rows) - 1)), 0, 0
        self._pieces.clear()
        self._placed = (None, [])
        self.top = self._top_with(self.cursor, self.size.height // 3)
        self._fill_page()
        self.refresh()

    def extend(self, rows: Sequence[Row], side: int) -> None:
        """Add rows before or after; too many at the other end are dropped."""
        if side < 0:
            self.rows[:0] = rows
            self.cursor += len(rows)
            self.top += len(rows)
            del self.rows[max(KEPT, self.cursor + _NEAR * 2) :]
        else:
            self.rows += rows
            over = min(len(self.rows) - KEPT, self.top - _NEAR * 2)
            if over > 0:
                del self.rows[:over]
                self.cursor -= over
                self.top -= over
        self._placed = (None, [])
        self.refresh()

    def count_from(self, offset: int, number: int) -> None:
        """Number the rows, now that the number of one of them is known."""
        at = next((n for n, r in enumerate(self.rows) if r.offset == offset), None)
        if at is None:
            return
        for n in range(at, len(self.rows)):
            self.rows[n] = replace(self.rows[n], number=number)
            number += self.rows[n].ended
        for n in range(at - 1, -1, -1):
            above = self.rows[n + 1].number or 0
            self.rows[n] = replace(self.rows[n], number=above - self.rows[n].ended)
        self.refresh()

    def action_move(self, by: int) -> None:
        """The cursor up or down; a wrapped line longer than the screen is scrolled through first."""
        if not self.rows:
            return
        shown = self._layout()
        if by > 0 and shown and shown[-1][0] == self.cursor and not self._ends(shown[-1]):
            self.skip += 1
        elif by < 0 and self.top == self.cursor and self.skip:
            self.skip -= 1
        else:
            self._go(self.cursor + by)
            return
        self.refresh()

    def action_page(self, by: int) -> None:
        """A screen up or down."""
        if not self.rows:
            return
        if by > 0:
            shown = self._layout()
            last = shown[-1][0] if shown else self.top
            if last == self.top and not self._ends(shown[-1]):
                most = self._height(last) - (self.size.height if last == len(self.rows) - 1 else 1)
                self.skip = min(self.skip + max(self.size.height - 1, 1), max(most, 0))
            else:
                self.top, self.skip = max(last, min(self.top + 1, len(self.rows) - 1)), 0
            target = len(self.rows) - 1 if last == len(self.rows) - 1 and self._ends(shown[-1]) else self.top
        else:
            self.top, self.skip = self._top_with(self.top, max(self.size.height - 1, 1)), 0
            target = self.top
        self._fill_page()
        self._go(max(target, self.top))

    def action_aside(self, by: int) -> None:
        """Move sideways, where lines are not wrapped."""
        if not self.wrapped:
            widest = max(
                (cell_len(self._text(r)) for r in self.rows[self.top : self.top + self.size.height]), default=0
            )
            self.aside = max(0, min(self.aside + by * _SIDEWAYS, max(widest - _SIDEWAYS, 0)))
            self.refresh()

    def action_wrap(self) -> None:
        """Wrap long lines, or cut them at the edge."""
        self.wrapped, self.skip, self.aside = not self.wrapped, 0, 0
        self.top = self._top_with(self.cursor, self.size.height // 3)
        self.refresh()

    def on_click(self, event: Click) -> None:
        """The cursor to the clicked line."""
        shown = self._layout()
        if event.y < len(shown):
            self._go(shown[event.y][0])

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """The wheel moves the cursor by three."""
        event.stop()
        self._go(self.cursor + 3)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """The same, up."""
        event.stop()
        self._go(self.cursor - 3)

    def on_resize(self) -> None:
        """Keep the cursor on the screen."""
        self._reveal()

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        width, shown = self.size.width, self._layout()
        if y >= len(shown):
            return Strip.blank(width, self.rich_style)
        at, part = shown[y]
        row, base = self.rows[at], self.rich_style
        opened = row.offset == self.marked
        body = base + self.get_component_rich_style("pane--cited", partial=True) if opened else base
        segments = self._margin(row, part, at == self.cursor, base, opened)
        left = max(width - sum(cell_len(s.text) for s in segments), 1)
        if self.wrapped:
            words = Strip([Segment(self._parts(row)[part], body)])
        else:
            whole = self._text(row)
            words = Strip([Segment(whole, body)]).crop(self.aside, self.aside + left)
            if cell_len(whole) > self.aside + left:
                words = Strip([*words.crop(0, left - 1), Segment(">", base + self._style("pane--margin"))])
        return Strip([*segments, *words.adjust_cell_length(left, body)])

    def _margin(self, row: Row, part: int, here: bool, base: Style, opened: bool) -> list[Segment]:
        """Ids of evidence, the mark of the opened line, the number."""
        ids, numbers = self._widths()
        label = said(self.labels.get(row.offset, "")).plain if part == 0 else ""
        label = label if len(label) <= ids else label[: ids - 1] + "+"
        number = "" if part or not self.numbered else "?" if row.number is None else f"{row.number:,}"
        beside = base + self._style("pane--margin")
        marked = beside + self._style("pane--cursor") if here else beside
        found = [Segment(f"{label:>{ids}}", base + self._style("pane--ids"))] if ids else []
        found.append(Segment(" > " if opened and part == 0 else "   ", base + self._style("pane--ids")))
        found += [Segment(f"{number:>{numbers}}", marked), Segment(" ", beside)] if numbers else []
        if not numbers and here and part == 0:
            found[-1] = Segment(found[-1].text, marked)
        return found

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(name, partial=True)

    def _widths(self) -> tuple[int, int]:
        """Columns of the ids and of the numbers."""
        largest = max((r.number or 0 for r in (self.rows[:1] + self.rows[-1:])), default=0)
        return self._ids, max(len(f"{largest:,}"), 4) if self.numbered else 0

    def _text(self, row: Row) -> str:
        """What is seen of a line: inert, its tabs as blanks, with its length where it goes on."""
        more = f" ... ({row.size:,} bytes)" if row.cut else ""
        return said(row.text.expandtabs(8), limit=2 * SHOWN).plain + more

    def _parts(self, row: Row) -> list[str]:
        """A line in pieces as wide as the screen leaves."""
        ids, numbers = self._widths()
        width = max(self.size.width - ids - numbers - 4, 10)
        key = (row.offset, row.size, width)
        if key not in self._pieces:
            if len(self._pieces) > KEPT:
                self._pieces.clear()
            self._pieces[key] = chop_cells(self._text(row), width) or [""]
        return self._pieces[key]

    def _height(self, at: int) -> int:
        return len(self._parts(self.rows[at])) if self.wrapped else 1

    def _ends(self, shown: tuple[int, int]) -> bool:
        return shown[1] == self._height(shown[0]) - 1

    def _layout(self) -> list[tuple[int, int]]:
        """Row and part of each line of the screen."""
        key = (self.top, self.skip, self.size, self.wrapped, len(self.rows), self._widths(), id(self.rows))
        if self._placed[0] == key:
            return self._placed[1]
        shown: list[tuple[int, int]] = []
        at, first = self.top, self.skip
        while at < len(self.rows) and len(shown) < self.size.height:
            shown += [(at, part) for part in range(first, self._height(at))]
            at, first = at + 1, 0
        self._placed = (key, shown[: self.size.height])
        return self._placed[1]

    def _top_with(self, row: int, lines: int) -> int:
        """The row to begin with, so that `lines` lines of the screen stand above a row."""
        while row > 0 and lines > 0 and self.rows:
            lines -= self._height(row - 1)
            row -= 1 if lines >= 0 else 0
        return row

    def _fill_page(self) -> None:
        """No empty lines below the end while there are rows above."""
        last = len(self.rows) - 1
        if last >= 0:
            self.top = min(self.top, self._top_with(last, self.size.height - self._height(last)))

    def _go(self, row: int) -> None:
        if not self.rows:
            return
        before, self.cursor = self.cursor, max(0, min(row, len(self.rows) - 1))
        self._reveal()
        if self.cursor != before:
            self.post_message(self.Moved(self.rows[self.cursor]))
        if self.cursor < _NEAR:
            self.post_message(self.Wanted(-1))
        if self.cursor >= len(self.rows) - _NEAR:
            self.post_message(self.Wanted(1))

    def _reveal(self) -> None:
        """Move as little as brings the cursor's row onto the screen."""
        if not self.rows:
            return
        if self.cursor < self.top:
            self.top, self.skip = self.cursor, 0
        elif (self.cursor, self._height(self.cursor) - 1) not in self._layout() and self.cursor != self.top:
            self.top = self._top_with(self.cursor, self.size.height - self._height(self.cursor))
            self.skip = 0
        self.refresh()
