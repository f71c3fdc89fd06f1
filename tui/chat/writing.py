"""What a model writes, as it comes: markdown that grows, its links and pictures shown as their source."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Markdown, Static

from ..text import paragraph, said

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MOST = 40_000  # characters that are shown of one writing
PART = 2_000  # of one Markdown widget; what it costs to go on with grows with its length
FORMATTED = 2  # parts that stay formatted; those before become their source, which costs next to nothing
_SPELT = 10  # characters that one may become: \U000e0001
_OFTEN = 0.08  # seconds between two looks whether there is more
_FENCES = ("```", "~~~")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_SHARE = 3  # the screen is left alone this many times as long as the last drawing took


class Writing(Vertical):
    """Words of a model between two of its calls. They are not the answer: that is the report."""

    DEFAULT_CSS = """
    Writing { height: auto; padding: 0 1; color: $text-muted; }
    Writing Markdown { height: auto; margin: 0; padding: 0 1; color: $text-muted; }
    Writing .source { height: auto; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[Markdown] = []
        self._cuts = _Cuts()
        self._waiting = ""
        self._count = 0
        self._free = 0.0  # when the next drawing may begin
        self._pouring = self._over = False

    def compose(self) -> ComposeResult:
        yield Static(said("the model writes:"))

    def on_mount(self) -> None:
        self._timer = self.set_interval(_OFTEN, self._pour)

    def add(self, piece: str) -> None:
        """A further piece. It is drawn with the next ones, a dozen times a second at most."""
        room = MOST - self._count
        self._count += len(piece)
        if room > 0:
            self._waiting += piece[:room]

    def end(self) -> None:
        """Nothing more comes."""
        self._over = True

    async def _pour(self) -> None:
        """Draw what has come. What takes long is drawn less often, so that keys are heard meanwhile."""
        if self._pouring or time.monotonic() < self._free:
            return
        text, self._waiting = self._waiting, ""
        if not text and self._over:
            self._timer.stop()
            if self._count > MOST:
                await self.mount(Static(said(f"... {self._count:,} characters in all; the rest is not shown")))
        if not text:
            return
        self._pouring, began = True, time.monotonic()
        try:
            for piece, begins in self._cuts.pieces(text):
                if begins:
                    await self._begin_part()
                await self._parts[-1].append(paragraph(piece, limit=_SPELT * len(piece)).plain)
        finally:
            self._pouring = False
        self.call_after_refresh(self._drawn, began)

    def _drawn(self, began: float) -> None:
        now = time.monotonic()
        self._free = now + _SHARE * (now - began)

    async def _begin_part(self) -> None:
        """Go on in a widget of its own; the oldest formatted one gives way to its source."""
        if len(self._parts) == FORMATTED:
            old = self._parts.pop(0)
            await self.mount(Static(paragraph(old.source.strip("\n"), limit=MOST), classes="source"), before=old)
            await old.remove()
        part = Markdown("", parser_factory=_parser, open_links=False)
        self._parts.append(part)
        await self.mount(part)


class _Cuts:
    """Cuts a growing text into parts: at a blank line outside of code; at the end of any line where none comes."""

    def __init__(self) -> None:
        self._line = self._fence = ""
        self._length = 0
        self._cut = True  # what comes next begins a part

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """What comes to the text, and whether a part begins with it; code that goes on is opened again."""
        piece, begins = "", False
        for line in _LINES.findall(text):
            if self._cut:
                piece, begins = f"{self._fence}\n" if self._fence else "", True
                self._length, self._cut = 0, False
            piece += line
            self._line += line
            self._length += len(line)
            if line.endswith("\n"):
                self._cut = self._ends()
            if self._cut:
                yield piece, begins
                piece, begins = "", False
        if piece:
            yield piece, begins

    def _ends(self) -> bool:
        """Whether a part may end behind the line that has just ended."""
        bare, self._line = self._line.strip(), ""
        if bare[:3] in _FENCES and bare[:3] == (self._fence or bare[:3]):
            self._fence = "" if self._fence else bare[:3]
        return self._length >= (PART if not bare and not self._fence else 3 * PART)


def _parser() -> MarkdownIt:
    """Nothing leads anywhere or hides behind other words: links, pictures, HTML and entities stay as written."""
    from markdown_it import MarkdownIt

    return MarkdownIt("gfm-like", {"html": False}).disable(["image", "link", "autolink", "linkify", "entity"])
