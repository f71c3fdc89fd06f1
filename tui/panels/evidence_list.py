"""The list of evidence: one line a row, drawn as it is scrolled to, so that ten thousand rows cost nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..text import said
from .evidence_rows import NARROW, Entry, bare, text, where, who

if TYPE_CHECKING:
    from textual.events import Click

_TEXT = 400  # characters of a row that are made ready; terminals are not wider


class EvidenceList(ScrollView, can_focus=True):
    """Rows of evidence with a cursor.

    Every row begins with `>` where the cursor is and `*` where the report cites it.
    """

    DEFAULT_CSS = """
    EvidenceList { height: 1fr; background: $surface; scrollbar-size-horizontal: 0; }
    EvidenceList > .evidence--where { color: $text-muted; }
    EvidenceList > .evidence--cited { text-style: bold; }
    EvidenceList > .evidence--cursor { background: $panel; }
    EvidenceList:focus > .evidence--cursor { background: $block-cursor-background; color: $block-cursor-foreground; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"evidence--where", "evidence--cited", "evidence--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "edge(0)", "First", show=False),
        Binding("end", "edge(1)", "Last", show=False),
        Binding("enter", "open", "Open the file"),
    ]

    @dataclass
    class Selected(Message):
        """The cursor stands on another row; None: there is none."""

        entry: Entry | None

    @dataclass
    class Opened(Message):
        """Enter was pressed on a row."""

        entry: Entry

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Entry] = []
        self.cursor = 0
        self._widths = (0, 0, 0)

    @property
    def current(self) -> Entry | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def fill(self, rows: list[Entry], cursor: int = 0) -> None:
        """Show other rows."""
        self.rows = rows
        self.cursor = max(0, min(cursor, len(rows) - 1))
        sample = rows[:500]
        self._widths = (
            max([len(e.fact.id) for e in sample], default=0),
            max([len(where(e.fact)) for e in sample], default=0),
            max([len(who(e.fact)) for e in sample], default=0),
        )
        self.virtual_size = Size(0, len(rows))
        self.refresh()
        self._reveal()
        self.post_message(self.Selected(self.current))

    def columns(self, width: int) -> tuple[int, int, int]:
        """Widths of id, place and rank; the text takes what is left."""
        ident, place, rank = self._widths
        return min(max(ident, 2), 7), min(place, max(width * 2 // 5 - 8, 12)), min(max(rank, 4), 8)

    def heading(self, width: int) -> str:
        """The names of the columns, above the rows."""
        ident, place, rank = self.columns(width)
        return f"   {'id':<{ident}} {_fit('where', place)} {'rank':<{rank}} what it says"

    def render_line(self, y: int) -> Strip:
        """One row of what is on the screen."""
        width, at = self.size.width, y + self.scroll_offset.y
        if not 0 <= at < len(self.rows):
            return Strip.blank(width, self.rich_style)
        entry, here = self.rows[at], at == self.cursor
        ident, place, rank = self.columns(width)
        style, muted = self.rich_style, self.get_component_rich_style("evidence--where", partial=True)
        strong = self.get_component_rich_style("evidence--cited", partial=True)
        base = style + self.get_component_rich_style("evidence--cursor", partial=True) if here else style
        e = entry.fact
        name = base + strong if entry.cited else base
        side = base if here else base + muted
        segments = [
            Segment(f"{'>' if here else ' '}{'*' if entry.cited else ' '} ", name),
            Segment(f"{_fit(e.id or '-', ident)} ", name),
            Segment(f"{_fit(where(e), place, from_end=bool(e.file))} ", side),
            Segment(f"{_fit(who(e), rank)} ", side),
        ]
        left = max(width - sum(cell_len(s.text) for s in segments), 0)
        segments.append(Segment(_fit(bare(e) if left < NARROW else text(e), left), base))
        return Strip(segments).adjust_cell_length(width, base)

    def action_move(self, by: int) -> None:
        """The cursor up or down."""
        self.go(self.cursor + by)

    def action_page(self, by: int) -> None:
        """A screen up or down."""
        self.go(self.cursor + by * max(self.size.height - 1, 1))

    def action_edge(self, end: int) -> None:
        """To the first row or the last."""
        self.go(len(self.rows) - 1 if end else 0)

    def action_open(self) -> None:
        """Ask for the file of this row."""
        if (entry := self.current) is not None:
            self.post_message(self.Opened(entry))

    def go(self, row: int) -> None:
        """Put the cursor on a row."""
        before, self.cursor = self.cursor, max(0, min(row, len(self.rows) - 1))
        if self.cursor == before:
            return
        for y in (before, self.cursor):
            self.refresh(Region(0, y - self.scroll_offset.y, self.size.width, 1))
        self._reveal()
        self.post_message(self.Selected(self.current))

    def on_click(self, event: Click) -> None:
        """A click selects; a second one on the same row opens."""
        at = event.y + self.scroll_offset.y
        if at >= len(self.rows):
            return
        if at == self.cursor and event.chain > 1:
            self.action_open()
        self.go(at)

    def _reveal(self) -> None:
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, force=True)


def _fit(words: str, width: int, from_end: bool = False) -> str:
    """A text in exactly so many cells; what is cut is marked with two dots, of a place its beginning."""
    plain = said(words[-_TEXT:] if from_end else words, limit=4_000).plain.expandtabs(4)
    if cell_len(plain) <= width:
        return set_cell_size(plain, width)
    if width < 3:
        return set_cell_size(plain, width)
    if not from_end:
        return set_cell_size(plain[:_TEXT], width - 2) + ".."
    kept = plain[-(width - 2) :]
    while cell_len(kept) > width - 2:
        kept = kept[1:]
    return set_cell_size(".." + kept, width)
