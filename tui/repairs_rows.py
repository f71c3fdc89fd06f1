"""Lines of a change or of repairs, folded at the width there is: only those in sight are drawn, however many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.style import Style
from rich.text import Text
from textual.events import Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from .text import said

TAB = 4
MOST = 16_000  # characters of a line
GOES_ON = "> "  # before the rest of a line that is wider than the view
_WORDS = frozenset(("words", "title", "mark", "note", "picked", "plain"))
_CODE = frozenset(("in", "out", "same"))
_NARROWEST = 8


@dataclass(frozen=True, slots=True)
class Drawn:
    """A line before it is folded. `block` is the part of a list that it belongs to."""

    kind: str
    text: str
    indent: int = 0
    block: int = -1


@dataclass(frozen=True, slots=True)
class _Line:
    kind: str
    text: str


class RowsView(ScrollView, can_focus=False):
    """Shows lines; whoever holds it has the keys and scrolls it. What is shown can be marked and copied."""

    DEFAULT_CSS = """
    RowsView {
        width: 1fr; height: 1fr; overflow-x: hidden; scrollbar-gutter: stable; scrollbar-size-vertical: 1;
        & > .rows--title { text-style: bold; }
        & > .rows--picked { text-style: bold; color: $text-accent; }
        & > .rows--mark { text-style: bold; color: $text-warning; }
        & > .rows--file { text-style: bold; }
        & > .rows--hunk { text-style: dim; }
        & > .rows--in { color: $text-success; }
        & > .rows--out { color: $text-error; }
        & > .rows--note { text-style: dim; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"rows--{kind}" for kind in ("title", "picked", "mark", "file", "hunk", "in", "out", "note")
    }

    class Moved(Message):
        """Other lines are in sight than before."""

    def __init__(self, rows: Sequence[Drawn] = (), *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows = list(rows)
        self._lines: list[_Line] = []
        self._starts: dict[int, int] = {}
        self._width = 0

    def put(self, rows: Sequence[Drawn]) -> None:
        """Show other lines; the place stays where it is."""
        self._rows = list(rows)
        self._fold()

    @property
    def below(self) -> int:
        """How many lines stand below those in sight."""
        return max(0, len(self._lines) - int(self.scroll_offset.y) - self.size.height)

    @property
    def folded(self) -> bool:
        """Whether it was laid out, so that `below` counts."""
        return self._width > 0

    def start_of(self, block: int) -> int:
        """The line that a block begins at."""
        return self._starts.get(block, 0)

    def on_resize(self, _: Resize) -> None:
        """Fold at the new width."""
        width = self.scrollable_content_region.width  # `size` has the scrollbar in it
        if width != self._width:
            self._width = width
            self._fold()
        self.post_message(self.Moved())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Tell whoever counts what was seen."""
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Moved())

    def _fold(self) -> None:
        if not self._width:
            return
        self._lines, self._starts = [], {}
        for row in self._rows:
            self._starts.setdefault(row.block, len(self._lines))
            self._lines += (_Line(row.kind, text) for text in folded(row, self._width))
        self.virtual_size = Size(self._width, len(self._lines))
        self.refresh()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        """One line in sight."""
        at = y + int(self.scroll_offset.y)
        width, base = self.scrollable_content_region.width, self.rich_style
        if at >= len(self._lines):
            return Strip.blank(width, base)
        line = self._lines[at]
        text = Text(line.text, no_wrap=True)
        text.stylize(base + self._style(line.kind))
        if (marked := self.text_selection) is not None and (span := marked.get_span(at)) is not None:
            start, end = span
            chosen = self.screen.get_component_rich_style("screen--selection")
            text.stylize(chosen, start, len(line.text) if end == -1 else end)
        strip = Strip(text.render(self.app.console), cell_len(line.text))
        return strip.crop_extend(0, width, base).apply_offsets(0, at)

    def _style(self, kind: str) -> Style:
        name = f"rows--{kind}"
        return self.get_component_rich_style(name, partial=True) if name in self.COMPONENT_CLASSES else Style()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """What is marked, as it is shown."""
        return selection.extract("\n".join(line.text for line in self._lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw the mark."""
        self.refresh()


def folded(row: Drawn, width: int) -> Iterator[str]:
    """A line at a width: words between words, everything else wherever it must be, behind a mark."""
    plain = len(row.text) <= MOST and row.text.isascii() and row.text.isprintable()  # most lines, and far faster
    text = row.text if plain else said(row.text, limit=MOST).plain
    room = max(width - row.indent, _NARROWEST)
    before = " " * row.indent
    if row.kind in _CODE:
        text = tabs_seen(text)
    elif "\t" in text:
        text = text.expandtabs(TAB)
    if (len(text) if plain else cell_len(text)) <= room:
        yield before + text
    elif row.kind in _WORDS:
        yield from (before + line for line in _between_words(text, room))
    elif row.kind == "command" and (lines := _continued(text, room)):
        yield from (before + line for line in lines)
    else:
        first = chop_cells(text, room)[0]
        yield before + first
        for piece in chop_cells(text[len(first) :], room - len(GOES_ON)):
            yield f"{before}{GOES_ON}{piece}"


def _continued(text: str, room: int) -> list[str]:
    """A command on lines that a shell reads as one, so that it can be marked and copied; none where that cannot be.

    The mark of other lines would not do: a shell takes `>` before a name for a file to be written.
    """
    found: list[str] = []
    while cell_len(text) > room:
        at = max((b for b in _blanks(text) if cell_len(text[:b]) + 2 <= room), default=0)
        if not text[:at].strip():
            return []
        found.append(f"{text[:at]} \\")
        text = f"  {text[at:].lstrip(' ')}"
    return [*found, text]


def _blanks(text: str) -> Iterator[int]:
    """Where blanks part the words of a command: none of those in quotes, behind a backslash, or of a comment."""
    quote, escaped = "", False
    for at, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#" and text[:at].endswith(" "):
            return
        elif character == " ":
            yield at


def _between_words(text: str, room: int) -> Iterator[str]:
    """Lines of whole words; what goes on stands two columns in."""
    line, hang = "", ""
    for word in text.split(" "):
        if line.strip() and cell_len(line) + 1 + cell_len(word) > room:
            yield line
            line, hang = "  ", "  "
        new = f"{line}{' ' if line.strip() or (line and not hang) else ''}{word}"
        while cell_len(new) > room:
            first = chop_cells(new, room)[0]
            yield first
            new, hang = f"  {new[len(first) :]}", "  "
        line = new
    if line.strip():
        yield line


def tabs_seen(text: str) -> str:
    """A row of a diff whose tabs are told from blanks: an arrow up to where the tab leads."""
    if "\t" not in text:
        return text
    out, column = [], -1  # the sign of the row stands before its first column
    for character in text:
        if character == "\t":
            wide = TAB - column % TAB
            out.append("\u2192" + " " * (wide - 1))
            column += wide
        else:
            out.append(character)
            column += cell_len(character)
    return "".join(out)
