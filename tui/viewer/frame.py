"""The frame of the viewer: title, lines, state, a line to type in, and the work beside the screen's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from ..start.line import InertInput
from ..text import said
from . import opening
from .jobs import Done, Job, new_job, size
from .pane import FilePane

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ...agent.telling.views.excerpt import Excerpt, Row, Watch

_TICK, _LOOK = 0.2, 3.0  # seconds between two drawings of progress, and two looks whether the file is still there


class Frame(Screen[None]):
    """A screen that shows an open file and fetches more of it as one moves. What to open is its heirs' matter."""

    DEFAULT_CSS = """
    Frame > Static { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    Frame > #viewer-title { background: $panel; text-style: bold; }
    Frame > #viewer-note { color: $warning; display: none; height: auto; max-height: 3; text-wrap: wrap; }
    Frame > #viewer-note.-told { display: block; }
    Frame > #viewer-state { color: $text-muted; }
    Frame > Input { height: 1; border: none; padding: 0 1; display: none; background: $panel; }
    Frame > Input.-open { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._page: Excerpt | None = None
        self._cited: dict[int, tuple[int, str]] = {}
        self._age = 0
        self._job: Job | None = None
        self._fetching: set[int] = set()  # sides that are being fetched; 0: the look after the file
        self._said = ""
        self._title = Static("", id="viewer-title")
        self._note = Static("", id="viewer-note")
        self._pane = FilePane()
        self._state = Static("", id="viewer-state")
        self._words = InertInput(compact=True)

    def compose(self) -> ComposeResult:
        """Title, what is wrong with the file, its lines, where one is, the line to type in."""
        yield self._title
        yield self._note
        yield self._pane
        yield self._state
        yield self._words
        yield Footer(compact=True, show_command_palette=False)

    def on_unmount(self) -> None:
        """Nothing goes on for a screen that is gone."""
        self.stop_job()

    def watch_file(self) -> None:
        """Begin to tell progress, and to look whether the file is still there."""
        self.set_interval(_TICK, self._tick)
        self.set_interval(_LOOK, self._look)

    def stop_job(self) -> bool:
        """Stop the long job that runs; whether there was one that had not been told to."""
        if self._job is None or self._job.watch.stop is None or self._job.watch.stop.is_set():
            return False
        self._job.watch.stop.set()
        return True

    def on_file_pane_wanted(self, event: FilePane.Wanted) -> None:
        """Fetch more rows of the file before the cursor reaches them."""
        event.stop()
        page, rows, side = self._page, self._pane.rows, event.side
        if page is None or not rows or side in self._fetching:
            return
        edge = rows[0] if side < 0 else rows[-1]
        if side < 0 and edge.offset == 0:
            return
        after = None if edge.number is None else edge.number + edge.ended
        self._fetching.add(side)

        def take(found: list[Row]) -> None:
            now = self._pane.rows
            if now and (now[0] if side < 0 else now[-1]).offset == edge.offset:
                self._pane.extend(found, side)

        self._beside(
            lambda w: page.before(edge.offset, edge.number, opening.CHUNK) if side < 0
            else page.after(edge.end, after, opening.CHUNK), take, side,
        )  # fmt: skip

    def _start(self, name: str, work: Callable[[Watch], Any], then: Callable[[Any], None]) -> None:
        """A long job; one that runs is stopped for it."""
        self.stop_job()
        self._age += 1
        self._fetching.clear()
        job = self._job = new_job(name, work, then, self._age)
        self._tell("")
        self.run_worker(lambda: job.run(self.post_message), thread=True, group="long", exit_on_error=False)

    def _beside(self, work: Callable[[Watch], Any], then: Callable[[Any], None], side: int) -> None:
        """A short one, which does not disturb the long one."""

        def finish(result: Any) -> None:
            self._fetching.discard(side)
            then(result)

        job = new_job("reading", work, finish, self._age)
        self.run_worker(lambda: job.run(self.post_message), thread=True, group="short", exit_on_error=False)

    def on_done(self, event: Done) -> None:
        """Take a result, unless something else was opened meanwhile."""
        event.stop()
        job = event.job
        if job is self._job:
            self._job = None
        if job.age != self._age:
            return
        if event.trouble:
            self._fetching.clear()
            self._tell(event.trouble)
        else:
            job.then(event.result)
        self._describe()

    def _look(self) -> None:
        """Whether the file is still what was opened; one look at a time, as a dead server answers none."""
        page = self._page
        if page is None or 0 in self._fetching:
            return
        self._fetching.add(0)

        def tell(message: str) -> None:
            if message and message not in self._said:
                self._tell("; ".join(filter(None, (message, self._said))))

        self._beside(lambda w: page.changed(), tell, 0)

    def _close_words(self) -> None:
        self._words.remove_class("-open")
        self._pane.focus()

    def _entitle(self, words: str) -> None:
        self._title.update(said(words, limit=600))

    def _tell(self, words: str) -> None:
        self._said = words
        self._note.update(said(f"! {words}", limit=400) if words else Content(""))
        self._note.set_class(bool(words), "-told")

    def _tick(self) -> None:
        if self._job is not None:
            self._describe()

    def _describe(self) -> None:
        """Where one is, and what is going on."""
        row, page = self._pane.current, self._page
        parts = []
        if row is not None and page is not None:
            number = f"line {row.number:,}" if row.number is not None else "a line not counted yet"
            share = f"{min(row.end / page.size, 1):.0%} of {size(page.size)}" if page.size else "empty"
            parts = [number, share]
            parts += [f"{len(self._cited):,} cited here"] if self._cited else []
            parts += [f"from column {self._pane.aside + 1}"] if self._pane.aside else []
        if self._job is not None:
            parts.append(f"{self._job.progress}, esc stops")
        self._state.update(said("   ".join(parts)))
