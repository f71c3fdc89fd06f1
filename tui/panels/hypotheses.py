"""The causes as they rise and fall: how probable, what moved, and what each stands on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ...agent.core.events import Ranked, ReportReady, SessionStarted
from ..messages import Ask, OpenEvidence
from .hypotheses_course import NEGLIGIBLE, Course, Standing
from .hypotheses_fitted import FittedRow
from .panel import Panel

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation
    from ...agent.core.events import Event
    from ...agent.core.report import Report
    from .hypotheses_rows import Ground

_LEGEND = "> verdict  & found too  +12 points since the last step  enter opens  p why"


class HypothesesPanel(Panel):
    """Above, the causes by probability; below, what the chosen one stands on, where enter opens a line."""

    NAME = "hypotheses"
    KEY = "f3,ctrl+y"
    ABOUT = "the causes that are weighed: how probable, what moved, what they stand on"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("p", "why", "Ask why, or why not")]
    DEFAULT_CSS = """
    HypothesesPanel { height: 1fr; }
    HypothesesPanel > Static { height: auto; padding: 0 1; }
    HypothesesPanel > OptionList {
        border: none; padding: 0; background: transparent; scrollbar-size-vertical: 1;
    }
    HypothesesPanel > #hypotheses-what { max-height: 10; }
    HypothesesPanel > OptionList:focus { border: none; }
    HypothesesPanel > OptionList:nocolor > .option-list--option-highlighted { text-style: reverse; }
    HypothesesPanel > OptionList > .option-list--option { padding: 0 1; }
    HypothesesPanel > OptionList > .option-list--option-disabled { color: $text; }
    HypothesesPanel > #hypotheses-causes { height: auto; min-height: 2; max-height: 50%; }
    HypothesesPanel > #hypotheses-grounds { height: 1fr; min-height: 3; border-top: solid $panel; }
    HypothesesPanel > #hypotheses-grounds:focus { border-top: solid $accent; }
    HypothesesPanel > #hypotheses-legend { color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._course = Course()
        self._before: Course | None = None  # of the diagnosis before the question that is under way
        self._rows: list[Standing | None] = []  # None: the row that stands for the folded ones
        self._grounds: list[Ground] = []
        self._unfolded = False

    def compose(self) -> ComposeResult:
        """What is decided, the causes, their grounds, the legend."""
        yield Static("", id="hypotheses-what", markup=False)
        yield OptionList(id="hypotheses-causes", markup=False)
        yield OptionList(id="hypotheses-grounds", markup=False)
        yield Static(Content(_LEGEND), id="hypotheses-legend", markup=False)

    def on_mount(self) -> None:
        """What there is to say before anything was asked."""
        self._draw()

    # What the screen tells

    def begin(self, talk: Conversation) -> None:
        """Another run."""
        self._course, self._before, self._unfolded = Course(), None, False
        self._draw()

    def see(self, event: Event) -> None:
        """A step of the weighing; an answer to a follow-up leaves the diagnosis before it in place."""
        if isinstance(event, SessionStarted) and self._course.report is None:
            self._course = Course()  # the steps of a question that was stopped
        elif isinstance(event, Ranked):
            if self._course.report is not None:
                self._before, self._course = self._course, Course()
            self._course.step(event)
            self._draw()
        elif isinstance(event, ReportReady) and event.report.status == "answer" and self._before is not None:
            self._course, self._before = self._before, None
            self._draw()

    def show(self, report: Report) -> None:
        """The last word."""
        if self._before is not None and report is self._before.report:
            self._course = self._before
        self._before = None
        if self._course.report is not None and report is not self._course.report:
            self._course = Course()
        self._course.conclude(report)
        self._draw()

    def enter(self) -> None:
        """To the causes."""
        self._causes.focus()

    # Drawing

    @property
    def _causes(self) -> OptionList:
        return self.query_one("#hypotheses-causes", OptionList)

    @property
    def chosen(self) -> Standing | None:
        """The cause under the cursor; None on the row of the folded ones, and where there is none."""
        at = self._causes.highlighted
        return self._rows[at] if at is not None and at < len(self._rows) else None

    def _draw(self) -> None:
        from .hypotheses_rows import heading

        kept = self.chosen if self._causes.highlighted else None  # on the leading one it stays on the leading one
        course = self._course
        shown, folded = self._parted(course.ranked())
        self._rows = [*shown, course.none] if course.steps else []
        options = [Option(FittedRow(partial(self._row, s))) for s in self._rows if s is not None]
        if folded:
            self._rows.append(None)
            word = "- less: those below 1%" if self._unfolded else f"+ and {folded} below 1%"
            options.append(Option(FittedRow(lambda _width: Content.styled(word, "$text-muted"))))
        self.query_one("#hypotheses-what", Static).update(heading(course))
        causes = self._causes
        causes.clear_options()
        causes.add_options(options)
        names = [s.cause if s is not None else None for s in self._rows]
        if names:
            causes.highlighted = names.index(kept.cause) if kept is not None and kept.cause in names else 0
        for name in ("#hypotheses-grounds", "#hypotheses-legend"):
            self.query_one(name).display = bool(names)
        self._draw_grounds()

    def _parted(self, ranked: list[Standing]) -> tuple[list[Standing], int]:
        """Those that count, or counted at some step, and how many others there are (shown too once unfolded)."""
        small = [s for n, s in enumerate(ranked) if n and s.beside is None and not _counts(s)]
        if self._unfolded:
            return ranked, len(small)
        return [s for s in ranked if s not in small], len(small)

    def _row(self, s: Standing, width: int) -> Content:
        from .hypotheses_rows import row

        return row(s, self._course, width)

    def _draw_grounds(self) -> None:
        from .hypotheses_rows import grounds

        s = self.chosen
        self._grounds = grounds(s, self._course) if s is not None else []
        below = self.query_one("#hypotheses-grounds", OptionList)
        below.clear_options()
        below.add_options([Option(g.text, disabled=not g.ident) for g in self._grounds])
        below.scroll_home(animate=False)

    # Keys

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Another cause: what it stands on."""
        event.stop()
        if event.option_list is self._causes:
            self._draw_grounds()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Of a cause, go to its grounds; of evidence, open it; of the folded ones, unfold them."""
        event.stop()
        if event.option_list is not self._causes:
            self.post_message(OpenEvidence(self._grounds[event.option_index].ident))
        elif self._rows[event.option_index] is None:
            self._unfolded = not self._unfolded
            self._draw()
        else:
            below = self.query_one("#hypotheses-grounds", OptionList)
            below.focus()
            below.action_first()

    def action_why(self) -> None:
        """Why the verdict, or why not this one."""
        s = self.chosen
        if s is None or not s.cause:
            return
        report = self._course.report
        leader = report.root_cause.id if report is not None else self._course.ranked()[0].cause
        self.post_message(Ask("why?" if s.cause == leader else f"why not {s.cause}?"))


def _counts(s: Standing) -> bool:
    return any(v is not None and v >= NEGLIGIBLE for v in s.trail)
