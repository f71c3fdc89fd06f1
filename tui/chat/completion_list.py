"""The list of what may stand at the cursor, over the conversation, above the prompt. The focus stays in the prompt."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ..text import said
from .completion import Candidate, Place

ROWS = 8
WIDEST = 100  # columns


class CompletionList(OptionList, can_focus=False, inherit_bindings=False):
    """Rows with one of them taken at most. It is laid over the screen, so that nothing below moves."""

    DEFAULT_CSS = """
    CompletionList {
        overlay: screen; constrain: inside; display: none; height: auto; max-height: 8; width: auto;
        border: none; padding: 0; background: $panel; scrollbar-size-vertical: 1; text-wrap: nowrap;
    }
    CompletionList > .option-list--option { padding: 0; text-wrap: nowrap; text-overflow: ellipsis; }
    CompletionList > .option-list--option-highlighted {
        text-style: bold; color: $block-cursor-foreground; background: $block-cursor-background;
    }
    CompletionList > .option-list--option-disabled { color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.rows: list[Candidate] = []
        self.where: Place | None = None
        self.moved = False  # the mark was moved by a key
        self._widths = (0, 0)  # of the names, of a row
        self._marked: int | None = None

    @property
    def open(self) -> bool:
        """Whether it is shown."""
        return bool(self.display)

    @property
    def taken(self) -> Candidate | None:
        """The row that is marked."""
        return (
            self.rows[self.highlighted] if self.highlighted is not None and self.highlighted < len(self.rows) else None
        )

    def offer(self, where: Place, rows: list[Candidate], word: str = "") -> None:
        """Show rows; the first is marked where enter should take it. `word`: a line where there are none yet."""
        self.where, self.rows, self.moved = where, rows, False
        if not rows and not word:
            self.close()
            return
        width = min(WIDEST, self.screen.size.width)
        name = min(max((cell_len(r.shown or r.text) for r in rows), default=0), max(12, width // 2))
        self._widths, self._marked = (name, width), None
        self.clear_options()
        self.add_options([Option(_row(r, name, width)) for r in rows] or [Option(said(f" {word}"), disabled=True)])
        self.styles.width = width
        self.styles.offset = (0, -min(ROWS, max(1, len(rows))))
        self.highlighted = 0 if rows and _begun(where, rows[0]) else None
        self.display = True

    def watch_highlighted(self, highlighted: int | None) -> None:
        """Mark the row by a sign too: a colour alone tells nothing without colours."""
        super().watch_highlighted(highlighted)
        for index, sign in ((self._marked, " "), (highlighted, ">")):
            if index is not None and index < min(len(self.rows), self.option_count):
                self.replace_option_prompt_at_index(index, _row(self.rows[index], *self._widths, sign))
        self._marked = highlighted

    def close(self) -> None:
        """Take it away."""
        self.display = False
        self.where, self.rows = None, []

    def move(self, by: int) -> None:
        """Mark the next row, or the one before; from the ends it goes round."""
        if not self.rows:
            return
        at, self.moved = self.highlighted, True
        self.highlighted = (0 if by > 0 else len(self.rows) - 1) if at is None else (at + by) % len(self.rows)


def _begun(where: Place, first: Candidate) -> bool:
    """Whether what is typed means the first row. With nothing typed enter sends the line as it stands."""
    if where.kind in ("command", "file"):
        return True
    typed = where.typed.rpartition("/")[2] if where.kind in ("path", "folder") else where.typed
    if where.kind in ("theme", "model", "risk"):
        return bool(typed) and typed.lower() in first.text.lower()
    return bool(typed) and first.text.lstrip('"').lower().startswith(where.typed.lower())


def _row(row: Candidate, name: int, width: int, sign: str = " ") -> Content:
    """A name in its column and what is said about it, cut at the edge with a mark."""
    first = _fitted(row.shown or row.text, name) if row.about else _fitted(row.text, width - 3).rstrip()
    rest = _fitted(row.about, max(0, width - name - 5)).rstrip()
    return Content.assemble(sign, said(first), "  ", said(rest, "" if sign == ">" else "$text-muted"))


def _fitted(text: str, cells: int) -> str:
    return set_cell_size(text, cells) if cell_len(text) <= cells else set_cell_size(text, max(0, cells - 2)) + ".."
