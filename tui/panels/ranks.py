"""The timeline of ranks: who wrote from when to when, who failed first, who complained, who fell silent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Hide, Resize, Show
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ...agent.core.errors import DoctorError
from ...agent.core.events import ToolFinished
from ..messages import OpenFile
from ..text import said
from .hypotheses_fitted import FittedRow
from .panel import Panel

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation
    from ...agent.core.events import Event
    from ...agent.core.report import Report
    from ...agent.reading.run.workspace import Workspace
    from ...agent.telling.views.timeline import Fold, Lane, Sort, Timeline

SORTS: tuple[Sort, ...] = ("failed first", "rank", "last step")
_NONE = "No run is open. The ranks are shown once the logs of one were read."
_LATER = "The ranks are read from the logs when this is looked at."


@dataclass
class _Made(Message):
    """A timeline came from the worker, or a line about why there is none."""

    turn: int
    line: Timeline | None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class _Row:
    """What stands on a line of the list: a fold, or one lane of an unfolded one."""

    fold: Fold
    opened: bool | None = None
    inner: bool = False


class RanksPanel(Panel):
    """Rows of ranks on one axis; those that are alike are one row until enter unfolds it."""

    NAME = "ranks"
    KEY = "f5,ctrl+r"
    ABOUT = "the timeline of ranks: who failed first, who complained, who fell silent"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "sort", "Sort: failed first, rank, last step"),
        Binding("t", "trouble", "Open where it complained"),
    ]
    DEFAULT_CSS = """
    RanksPanel { height: 1fr; }
    RanksPanel > Static { height: auto; padding: 0 1; }
    RanksPanel > #ranks-heads { height: 1; }
    RanksPanel > OptionList {
        height: 1fr; min-height: 3; border: none; padding: 0; background: transparent; scrollbar-size-vertical: 1;
    }
    RanksPanel > OptionList:focus { border: none; }
    RanksPanel > OptionList:nocolor > .option-list--option-highlighted { text-style: reverse; }
    RanksPanel > OptionList > .option-list--option { padding: 0 1; }
    RanksPanel > #ranks-about {
        max-height: 6; border-top: solid $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    RanksPanel > #ranks-legend { color: $text-muted; max-height: 4; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._ws: Workspace | None = None
        self._report: Report | None = None
        self._line: Timeline | None = None
        self._rows: list[_Row] = []
        self._open: set[str] = set()
        self._sort: Sort = SORTS[0]
        self._turn = 0  # what a worker read for an earlier one is dropped
        self._stale = self._seen = self._renewed = False
        self._names = 0

    def compose(self) -> ComposeResult:
        """What it is, the columns, the rows, the chosen one, the legend."""
        yield Static(_NONE, id="ranks-what", markup=False)
        yield Static("", id="ranks-heads", markup=False)
        yield OptionList(markup=False)
        yield Static("", id="ranks-about", markup=False)
        yield Static("", id="ranks-legend", markup=False)

    def on_mount(self) -> None:
        """What there is to say before a run is open."""
        self._draw()

    # What the screen tells

    def begin(self, talk: Conversation) -> None:
        """Another run."""
        self._ws, self._report, self._line = talk.workspace, None, None
        self._open.clear()
        self._draw(_LATER)
        self._due()

    def renew(self, workspace: Workspace) -> None:
        """The same run as its files are now: the row under the cursor, what is unfolded and the order stay."""
        self._ws, self._renewed = workspace, True
        self._due()

    def see(self, event: Event) -> None:
        """The logs were read for a check: now it costs nothing to show them."""
        if isinstance(event, ToolFinished) and event.call.tool.replace("-", "_") == "rank_roster":
            self._due()

    def show(self, report: Report) -> None:
        """The first failure is the report's."""
        self._report = report
        self._due()

    def enter(self) -> None:
        """To the rows."""
        self.query_one(OptionList).focus()

    def on_show(self, _event: Show) -> None:
        """Read what was put off while nobody looked."""
        self._seen = True
        self._due(only_stale=True)

    def on_hide(self, _event: Hide) -> None:
        """Nothing is read for a view that nobody looks at."""
        self._seen = False

    def on_resize(self, _event: Resize) -> None:
        """The heads stand over the columns."""
        self._draw_heads()

    # Reading

    def _due(self, only_stale: bool = False) -> None:
        if only_stale and not self._stale:
            return
        self._turn += 1
        self._stale = not self._seen
        if self._ws is None or not self._seen:
            return
        if self._line is None:
            self._say("Reading the logs: who wrote, and from when to when ...")
        self.run_worker(
            partial(self._read, self._turn, self._ws, self._report),
            thread=True, exclusive=True, group="ranks", exit_on_error=False,
        )  # fmt: skip

    def _read(self, turn: int, ws: Workspace, report: Report | None) -> None:
        from ...agent.telling.views.timeline import timeline

        try:
            made = _Made(turn, timeline(ws, report))
        except (DoctorError, OSError) as e:
            made = _Made(turn, None, f"The ranks cannot be shown: {e}")
        except Exception as e:  # noqa: BLE001 - a view that fails may not end the chat
            made = _Made(turn, None, f"bug in doctor: the ranks cannot be shown: {type(e).__name__}: {e}")
        self.post_message(made)

    def on__made(self, message: _Made) -> None:
        """Show it, unless another run or report has come since."""
        message.stop()
        if message.turn != self._turn:
            return
        self._line, keep, self._renewed = message.line, self._renewed, False
        self._draw(message.trouble, keep)

    # Drawing

    def _say(self, text: str) -> None:
        self.query_one("#ranks-what", Static).update(said(text))

    def _draw(self, instead: str = "", keep: bool = False) -> None:
        rows = self.query_one(OptionList)
        at, held = (rows.highlighted, self.chosen) if keep else (None, None)
        rows.clear_options()
        self._rows = []
        line = self._line
        self.query_one("#ranks-about").display = line is not None and bool(line.lanes)
        if line is None or not line.lanes:
            self._say(instead or " ".join(line.notes if line else ()) or _NONE)
            for name in ("#ranks-heads", "#ranks-about", "#ranks-legend"):
                self.query_one(name, Static).update("")
            return
        from ...agent.telling.views.timeline import Fold, folds
        from .ranks_rows import legend, title

        for fold in folds(line, self._sort):
            several = len(fold.lanes) > 1
            opened = several and fold.name + fold.lead.state in self._open
            self._rows.append(_Row(fold, opened if several else None))
            self._rows += [_Row(Fold((lane,)), inner=True) for lane in fold.lanes] if opened else []
        # the name of a fold is long where its ranks lie apart; the line below tells it whole
        self._names = max(min(title(r.fold, r.inner).cell_length, 40 if r.opened is None else 20) for r in self._rows)
        rows.add_options([Option(FittedRow(partial(self._row, r))) for r in self._rows])
        same = [i for i, r in enumerate(self._rows) if held is not None and _who(r.fold.lead) == _who(held)]
        rows.highlighted = at if at in same else next(iter(same), min(at or 0, len(self._rows) - 1))
        self._say(self._what(line))
        self._draw_heads()
        notes = [said(note) for note in line.notes]
        below = [legend(line), Content(" ").join(notes)] if notes else [legend(line)]
        self.query_one("#ranks-legend", Static).update(Content("\n").join(below))

    def _what(self, line: Timeline) -> str:
        count = len({(x.run, x.variant, x.name) for x in line.lanes})
        noun = line.noun if count == 1 else f"{line.noun}s"
        basis = {"time": "by time", "step": "by last step", "none": "without order"}[line.axis.basis]
        since = "" if self._report is not None else " (logs alone, no report yet)"
        return f"{count:,} {noun} {basis}{since}; order: {self._sort}"

    def _row(self, row: _Row, width: int) -> Content:
        from .ranks_rows import row as drawn

        assert self._line is not None
        return drawn(row.fold, self._line, width, self._names, row.opened, row.inner)

    def _draw_heads(self) -> None:
        if self._line is None or not self._line.lanes:
            return
        from .ranks_rows import heads

        width = self.query_one(OptionList).scrollable_content_region.width - 2
        if width > 0:
            self.query_one("#ranks-heads", Static).update(heads(self._line, width, self._names))

    # Keys

    @property
    def chosen(self) -> Lane | None:
        """The lane under the cursor; of a fold, its first."""
        at = self.query_one(OptionList).highlighted
        return self._rows[at].fold.lead if at is not None and at < len(self._rows) else None

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Tell all about the chosen row."""
        event.stop()
        if self._line is not None and event.option_index < len(self._rows):
            from .ranks_about import about

            row = self._rows[event.option_index]
            self.query_one("#ranks-about", Static).update(about(row.fold, row.opened))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Unfold or fold alike ones; of a single one, open its log at its last line."""
        event.stop()
        row = self._rows[event.option_index]
        if row.opened is not None:
            self._open ^= {row.fold.name + row.fold.lead.state}
            self._draw(keep=True)
        elif row.fold.lead.file:
            self.post_message(OpenFile(row.fold.lead.file, row.fold.lead.last_line))

    def action_sort(self) -> None:
        """The next order."""
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        if self._line is not None:
            self._draw()

    def action_trouble(self) -> None:
        """The line in which the chosen one failed or complained."""
        lane = self.chosen
        if lane is not None and lane.trouble is not None:
            self.post_message(OpenFile(lane.trouble.file, lane.trouble.line))


def _who(lane: Lane) -> tuple[object, ...]:
    return lane.run, lane.variant, lane.name, lane.attempt
