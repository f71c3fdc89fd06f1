"""The file behind a piece of evidence: its line in place, all of the file around it, other ranks at the same moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from ...agent.telling.outline import place as place_of
from ...agent.telling.views.other_ranks import peers
from ..text import said
from . import opening
from .facts import rows_of
from .frame import Frame
from .pane import FilePane
from .ranks import RankList

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation
    from ...agent.core.report import CitedEvidence, Report
    from ...agent.telling.views.excerpt import Excerpt, Row, Watch
    from ...agent.telling.views.other_ranks import Moment, Name, Peer
    from .opening import Opened


_OF_A_FILE = frozenset({"cited", "neighbour", "ranks", "type"})


class FileViewer(Frame):
    """A file of the run at a place: an id of evidence, or a name with a line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "Back", key_display="esc"),
        Binding("n", "cited(1)", "Cited", key_display="n N"),
        Binding("N,p", "cited(-1)", "Cited line before", key_display="N", show=False),
        Binding("left_square_bracket", "neighbour(-1)", "Rank", key_display="[ ]"),
        Binding("right_square_bracket", "neighbour(1)", "Rank after", key_display="]", show=False),
        Binding("r", "ranks", "All ranks"),
        Binding("slash", "type('search')", "Search", key_display="/"),
        Binding("g", "type('line')", "Line"),
        Binding("home", "first", "Begin of the file", show=False),
        Binding("end,G", "last", "End of the file", show=False),
        Binding("c", "copy", "Copy"),
    ]

    def __init__(self, talk: Conversation, report: Report, place: str | tuple[str, int]) -> None:
        super().__init__()
        self._talk, self._report, self._place = talk, report, place
        self._name: Name | None = None  # whose log is shown, after a jump
        self._rank: int | None = None  # whose line was cited
        self._when: Moment | None = None  # of the row from which one jumped, until the cursor moves
        self._peers: list[Peer] = []
        self._typing = ""

    def on_mount(self) -> None:
        """Open the place."""
        self._pane.focus()
        self.watch_file()
        if isinstance(self._place, str):
            found = next((e for e in self._report.evidence if e.id == self._place), None)
            self._open_evidence(found)
        else:
            self._open_line(*self._place)

    # opening

    def _open_evidence(self, e: CitedEvidence | None) -> None:
        if e is None:
            self._entitle("no such evidence")
            self._tell(f"the report has no evidence {self._place}")
            return
        self._rank = e.rank
        self._entitle(f"{e.id}  {place_of(e)}")
        if e.kind != "line" or e.file is None or not opening.has(self._talk, e.file):
            self._show_fact(e)
            return
        self._pane.marked = e.offset
        self._start("opening", lambda w: opening.at_evidence(self._talk, self._report, e, w), self._show)

    def _open_line(self, name: str, line: int) -> None:
        self._entitle(f"{name}:{line}")
        if not opening.has(self._talk, name):
            self._tell(f"{name} is not among the files of this run")
            return

        def show(found: Opened) -> None:
            if found.rows:
                self._pane.marked = found.rows[found.at].offset
            self._show(found)

        self._start("opening", lambda w: opening.at_line(self._talk, self._report, (name, line), w), show)

    def _show_fact(self, e: CitedEvidence) -> None:
        self._pane.numbered, self._pane.wrapped = False, True
        self._pane.fill(rows_of(e), 0)
        if e.kind == "line":
            self._tell(f"{e.file} is not among the files of this run; this is what was cited")
        self._describe()

    def _show(self, found: Opened) -> None:
        """Put a stretch of a file on the screen."""
        new = found.page is not self._page
        self._page = found.page
        if new:
            name = found.page.file.name
            self._cited = opening.cited_lines(self._report, name)
            self.refresh_bindings()
            self._pane.label({at: ids for at, (_, ids) in self._cited.items()})
        self._pane.fill(found.rows, found.at)
        if found.how:
            self._name, self._when, self._peers = found.name, found.when, found.known
            self._pane.marked = found.rows[found.at].offset if found.rows else None
            self._entitle(f"{found.page.file.name}   {found.how}")
        self._tell(found.message or ("the file is empty" if not found.rows else ""))
        self._describe()

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What is no file has no neighbours and nothing to search."""
        return self._page is not None if action in _OF_A_FILE else True

    def action_back(self) -> None:
        """Stop what runs; else close the line that is typed in; else leave."""
        if self._words.has_class("-open"):
            self._close_words()
        elif not self.stop_job():
            self.dismiss(None)

    def action_first(self) -> None:
        """To the first line of the file."""
        if (page := self._page) is None:
            self._pane.fill(self._pane.rows, 0)
            return
        self._start("reading", lambda w: opening.around(page, 0, 1), self._show)

    def action_last(self) -> None:
        """To its last line; its number is counted while one reads."""
        if (page := self._page) is None:
            self._pane.fill(self._pane.rows, len(self._pane.rows) - 1)
            return

        def show(rows: list[Row]) -> None:
            self._show(opening.Opened(page, rows, len(rows) - 1, page.notes[0] if page.notes else ""))
            if rows and rows[-1].number is None:
                self._count(rows[-1].offset)

        self._start("reading", lambda w: page.ending(opening.CHUNK), show)

    def action_cited(self, by: int) -> None:
        """To the next cited line of this file, or the one before."""
        row, page = self._pane.current, self._page
        if row is None or page is None:
            return
        places = sorted(self._cited)
        further = [at for at in places if (at > row.offset if by > 0 else at < row.offset)]
        if not further:
            self._tell(f"no cited line {'below' if by > 0 else 'above'} in this file")
            return
        offset = further[0 if by > 0 else -1]
        self._pane.marked = offset
        number, ids = self._cited[offset]
        self._entitle(f"{ids}  {page.file.name}:{number}")
        self._start("reading", lambda w: opening.around(page, offset, number), self._show)

    def action_neighbour(self, by: int) -> None:
        """The log of the rank before or after, at the same moment."""
        self._jump(by, beside=True)

    def action_ranks(self) -> None:
        """Choose among all ranks."""
        page, row = self._page, self._pane.current
        if page is None or row is None:
            return

        def choose(found: list[Peer]) -> None:
            self._peers = found
            if not found:
                self._tell("no rank of this run has a log of its own here")
                return
            here = self._name if self._name is not None else opening.own(found, page.file, row.text, self._rank)
            self.app.push_screen(RankList(found, here), lambda name: None if name is None else self._jump(name))

        known = self._peers
        self._start("looking for ranks", lambda w: known or peers(self._talk.workspace, page.file), choose)

    def action_type(self, what: str) -> None:
        """Open the line in which a text or a number is typed."""
        if self._page is None:
            return
        self._typing = what
        self._words.value = ""
        self._words.placeholder = "search below for" if what == "search" else "number of a line"
        self._words.add_class("-open")
        self._words.focus()

    def action_copy(self) -> None:
        """The line under the cursor with its place, inert."""
        if (row := self._pane.current) is None:
            return
        name = self._page.file.name if self._page else str(self._place)
        number = f":{row.number}" if row.number else ""
        self.app.copy_to_clipboard(said(f"{name}{number}").plain + "\n" + said(row.text).plain)
        self.notify("copied the line", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search, or go to the line."""
        event.stop()
        words, what = event.value, self._typing
        self._close_words()
        page, row = self._page, self._pane.current
        if page is None or not words.strip():
            return
        if what == "search":
            self._search(page, words, row.end if row else 0)
        elif (number := words.strip().replace(",", "").replace("_", "")).isdecimal() and len(number) < 16:
            self._start(
                "counting lines", lambda w: opening.around(page, *page.place_of(int(number) or 1, w)), self._show
            )
        else:
            self._tell("a line is a number")

    def on_file_pane_moved(self, event: FilePane.Moved) -> None:
        """Another row, another moment."""
        event.stop()
        self._when = None
        self._describe()

    # work

    def _jump(self, wanted: Name, beside: bool = False) -> None:
        page, row, known = self._page, self._pane.current, self._peers
        if page is None or row is None:
            return
        rank = self._name if isinstance(self._name, int) else self._rank
        when = self._when

        def show(found: Opened | str) -> None:
            if isinstance(found, str):
                self._tell(found)
            else:
                self._show(found)

        self._start(
            "looking for the same moment",
            lambda w: opening.at_peer(
                self._talk, self._report, opening.From(page, row, rank, when), wanted, beside, known, w
            ),
            show,
        )

    def _search(self, page: Excerpt, words: str, start: int) -> None:
        def work(watch: Watch) -> Opened | None:
            at = page.find(words, start, watch)
            return None if at is None else opening.around(page, at, page.number_at(at, watch))

        def show(found: Opened | None) -> None:
            if found is None:
                self._tell(f"not found below: {words} (home, then / searches the whole file)")
            else:
                self._show(found)

        self._start("searching", work, show)

    def _count(self, offset: int) -> None:
        page = self._page
        if page is not None:
            self._start(
                "counting lines", lambda w: page.number_at(offset, w), lambda n: self._pane.count_from(offset, n)
            )
