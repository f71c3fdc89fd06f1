"""A row of a list that is drawn for the width there is, each time it is drawn: nothing is laid out in advance."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual


class FittedRow(Visual):
    """One line high. `draw` makes its content for a width in cells; what is longer is cut with a mark."""

    def __init__(self, draw: Callable[[int], Content]) -> None:
        self._draw = draw

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        """One strip."""
        row = self._draw(width).truncate(width, ellipsis=True)
        return row.render_strips(width, 1, style, options)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        """All there is."""
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        """One line, whatever the width: long lists are not drawn to be measured."""
        return 1


def fitted(text: Content, width: int, right: bool = False) -> Content:
    """A text in a column of this width: cut with a mark, or filled up."""
    text = text.truncate(width, ellipsis=True)
    room = width - text.cell_length
    return text.pad_left(room) if right else text.pad_right(room)
