"""A list of rows, one line each, drawn for the width there is; the row of the cursor has a mark beside its colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ..text import SHOWN, said

Draw = Callable[[int], Content]


class _Row(Visual):
    """One line, drawn when it comes into sight, for the width that there is then."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return 1

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        line = self._draw(max(20, width)).truncate(max(1, width), ellipsis=True)
        return line.render_strips(width, 1, style, options)


class Rows(OptionList):
    """Rows by their keys. Each is drawn by a function of the width; it leaves the first two columns to the cursor."""

    DEFAULT_CSS = """
    Rows { border: none; padding: 0; height: 1fr; background: $background; text-wrap: nowrap;
           scrollbar-size-vertical: 1; }
    Rows:focus { border: none; background-tint: $foreground 0%; }
    Rows > .option-list--option { padding: 0; }
    Rows > .option-list--option-disabled { color: $text-muted; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "open", show=True)]

    def __init__(self, *, id: str, nothing: str = "") -> None:
        super().__init__(id=id, markup=False)
        self._rows: list[tuple[str, Draw]] = []
        self._nothing = nothing
        self.driven = False  # by the keys of another part: then it has a cursor without the focus

    @property
    def key(self) -> str | None:
        """The row that the cursor is on."""
        at = self.highlighted
        return self._rows[at][0] if at is not None and at < len(self._rows) else None

    def fill(self, rows: Sequence[tuple[str, Draw]], nothing: str | None = None) -> None:
        """Show these rows; the cursor stays on its row where that is still there.

        Args:
            nothing: said where there is no row.
        """
        self._nothing = self._nothing if nothing is None else nothing
        # Nobody looks for a cursor that was put there: it is on the first row until the list is used.
        before = self.key if self.has_focus or self.driven else None
        self._rows = list(rows)
        self._draw(before)

    def on_mount(self) -> None:
        self._draw(None)

    def _draw(self, cursor: str | None) -> None:
        if not self._rows:
            self.set_options([Option(Content(f"  {self._nothing}"), disabled=True)])
            return
        scrolled = self.scroll_offset.y
        self.set_options([Option(_Row(draw)) for _, draw in self._rows])
        keys = [key for key, _ in self._rows]
        self.highlighted = keys.index(cursor) if cursor in keys else 0
        if cursor in keys:
            self.scroll_to(y=scrolled, animate=False)

    def render_line(self, y: int) -> Strip:
        """The line with a mark before it where the cursor is: a colour alone tells nothing in monochrome."""
        strip = super().render_line(y)
        at = self.scroll_offset.y + y
        if at != self.highlighted or at >= len(self._rows) or not (self.has_focus or self.driven):
            return strip
        first = next(iter(strip), None)
        return Strip([Segment("> ", first.style if first else None), *strip.crop(2)], strip.cell_length)


def shown(text: str, style: str = "", limit: int = SHOWN) -> Content:
    """Text from outside for a row. Halves of characters, as in file names that are no UTF-8, are spelt out."""
    return said(text[: 4 * limit].encode("utf-8", "backslashreplace").decode(), style, limit)


def columns(parts: Sequence[tuple[Content, int]]) -> Content:
    """Cells of fixed widths, cut with a mark or filled, after the room for the cursor."""
    cells: list[Content | str] = ["  "]
    for number, (cell, width) in enumerate(parts):
        cells += [" "] if number else []
        cells.append(cell.truncate(max(1, width), ellipsis=True, pad=True))
    return Content.assemble(*cells)
