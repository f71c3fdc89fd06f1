"""The curves that matter around the event, with the first anomaly and the first failure marked, in words too."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static
from textual.worker import Worker, WorkerState

from ...agent.core.errors import DoctorError, ParseError
from ..messages import OpenEvidence
from ..text import said
from . import curves_words as words
from .curves_window import Window
from .panel import Panel

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation
    from ...agent.core.report import Report
    from ...agent.reading.run.workspace import Workspace
    from ...agent.telling.views.curve_views import Drawing, Sketch
    from .plot import Plot

    _Wanted = tuple[Drawing, float, float, bool | None, int]  # first and last step, log scale, cells across

_NO_RUN = "No run is open."
_READING = "Reading the curves of the run ..."
_NOTHING = "Nothing to draw: no file of the run holds a loss, a rate or another known number at two steps or more."
_PATIENCE = 0.1  # seconds without another resize after which the plot is made anew


class CurvesPanel(Panel, can_focus=True):
    """One metric at a time. Files are read, and many curves put together, in threads; numbers come back."""

    NAME: ClassVar[str] = "curves"
    KEY: ClassVar[str] = "f4,ctrl+g"
    ABOUT: ClassVar[str] = "loss, gradient norm, learning rate, memory and throughput around the event"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "metric(-1)", "metric before"),
        Binding("down", "metric(1)", "next metric"),
        Binding("a", "turn", "all / around the event"),
        Binding("l", "log", "log scale"),
        Binding("plus,equals_sign", "zoom(True)", "closer", key_display="+"),
        Binding("minus", "zoom(False)", "wider", key_display="-"),
        Binding("left", "slide(False)", "left", show=False),
        Binding("right", "slide(True)", "right", show=False),
        Binding("comma", "marker(False)", "marker back", key_display=","),
        Binding("full_stop", "marker(True)", "marker on", key_display="."),
        Binding("e", "evidence", "evidence of the anomaly"),
    ]

    DEFAULT_CSS = """
    CurvesPanel { height: 1fr; padding: 0 1; }
    CurvesPanel > Static { height: auto; }
    CurvesPanel > #place { height: 1fr; min-height: 4; }
    CurvesPanel > #metrics, CurvesPanel > #part, CurvesPanel > #under { height: 1; }
    CurvesPanel > #sentence { color: $text-muted; }
    CurvesPanel:focus > #metrics { background: $surface; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._workspace: Workspace | None = None
        self._report: Report | None = None
        self._found: list[Drawing] = []
        self._windows: dict[str, Window] = {}
        self._logs: dict[str, bool] = {}
        self._metric = ""
        self._sketch: Sketch | None = None
        self._plot: Plot | None = None
        self._run = 0  # curves of an older run are dropped
        self._wanted: _Wanted | None = None  # the view to draw; a sketch of another is dropped
        self._busy = False
        self._unread = self._on_screen = self._chosen = False
        self._trouble = ""
        self._later: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="metrics")
        yield Static(id="part")
        yield Vertical(id="place")
        yield Static(id="key")
        yield Static(id="under")
        yield Static(id="sentence")

    def begin(self, talk: Conversation) -> None:
        """A run was opened: its curves are read when they are first looked at."""
        self._workspace, self._report = talk.workspace, None
        self._found, self._windows, self._logs, self._metric, self._sketch = [], {}, {}, "", None
        self._wanted, self._chosen = None, False
        self._want()

    def show(self, report: Report) -> None:
        """What the verdict is about comes first from now on, around its event."""
        if self._report is not report:
            self._report = report
            self._windows = {}
            if not self._chosen:  # nobody has turned to a metric: the most telling one
                self._metric = ""
            self._want()

    def renew(self, workspace: Workspace) -> None:
        """The same run as its files are now: metric, part and marker stay where they were."""
        self._workspace = workspace
        self._want()

    def _want(self) -> None:
        """Read, now or when the panel is first seen."""
        self._run += 1
        self._unread = True
        if self._on_screen:
            self._load()

    def on_show(self) -> None:
        self._on_screen = True
        if self._unread:
            self._load()
        else:
            self._words()

    def on_hide(self) -> None:
        self._on_screen = False

    def _load(self) -> None:
        self._unread, self._trouble = False, ""
        if self._workspace is not None:
            work = partial(self._read, self._run, self._workspace, self._report)
            self._trouble = "" if self._found else _READING
            self.run_worker(work, thread=True, exclusive=True, group="curves", exit_on_error=False)
        self._words()

    def _read(self, run: int, workspace: Workspace, report: Report | None) -> None:
        from ...agent.telling.views.curve_views import drawings, stops

        found: list[Drawing] = []
        trouble, places = "", {}
        try:
            found = drawings(workspace, report)
            places = {d.figure.metric: stops(d.figure).tolist() for d in found}
        except (DoctorError, ParseError, OSError) as e:
            trouble = f"The curves could not be read: {e}"
        self.app.call_from_thread(self._take, run, found, places, trouble)

    def _take(self, run: int, found: list[Drawing], stops: dict[str, list[float]], trouble: str) -> None:
        if run != self._run:
            return
        self._found, self._trouble = found, trouble or ("" if found else _NOTHING)
        names = [d.figure.metric for d in found]
        self._metric = self._metric if self._metric in names else next(iter(names), "")
        for drawing in found:
            v, held = drawing.figure.view, self._windows.get(drawing.figure.metric)
            fresh = Window(v.first, v.last, v.low, v.high, (v.low, v.high), stops[drawing.figure.metric])
            if held is not None and not held.whole and (held.low, held.high) != held.near:  # a part that was asked for
                fresh.low, fresh.high = max(held.low, v.first), min(held.high, v.last)
            elif held is not None and held.whole:
                fresh.low, fresh.high = v.first, v.last
            fresh.cursor = held.cursor if held is not None else None
            self._windows[drawing.figure.metric] = fresh
        self._draw()

    @property
    def _current(self) -> tuple[Drawing, Window] | None:
        drawing = next((d for d in self._found if d.figure.metric == self._metric), None)
        return (drawing, self._windows[self._metric]) if drawing else None

    def _draw(self) -> None:
        """Have the part that is in view put together, then draw it."""
        if self._current is None:
            self._sketch = self._wanted = None
            self._words()
            return
        drawing, window = self._current
        wanted = (drawing, window.low, window.high, self._logs.get(self._metric), max(self.size.width - 12, 20))
        held = self._wanted
        if held is None or wanted[0] is not held[0] or wanted[1:] != held[1:]:
            self._wanted = wanted
            if not self._busy:  # keys that come faster than sketches are made: the last of them counts
                self._put_together()
        self._words()

    def _put_together(self) -> None:
        if self._wanted is not None:
            self._busy = True
            work = partial(self._make_sketch, self._wanted)
            self.run_worker(work, thread=True, group="sketch", exit_on_error=False)

    def _make_sketch(self, wanted: _Wanted) -> None:
        from ...agent.telling.views.curve_views import sketch

        made = sketch(wanted[0].figure, *wanted[1:])
        self.app.call_from_thread(self._show_sketch, wanted, made)

    def _show_sketch(self, wanted: _Wanted, made: Sketch) -> None:
        self._busy = False
        if wanted is not self._wanted:
            self._put_together()
            return
        self._sketch = made
        self._words()

    def _words(self) -> None:
        """All lines around the plot and the plot itself, from what is known now."""
        if not self.is_mounted:
            return
        current = self._current
        if current is None:
            self._fill(Content(""), Content(""), Content(""), Content(""))
            self.query_one("#sentence", Static).update(said(self._trouble or _NO_RUN))
            self._canvas(None)
            return
        drawing, window = current
        width, made = max(self.size.width - 2, 20), self._sketch
        at = next(i for i, d in enumerate(self._found) if d is drawing)
        self._fill(
            words.choices(self._found, at, width), words.part(drawing, window, made),
            words.key(made, drawing, window, width) if made else Content(""), self._under(drawing, window),
        )  # fmt: skip
        lines = 1 if self.size.height < 14 else 2 if self.size.height < 24 else 4
        sentence = self._trouble or drawing.figure.text
        self.query_one("#sentence", Static).update(said(sentence, limit=max(lines * width - 28, 40)))
        self._canvas(current)

    def _under(self, drawing: Drawing, window: Window) -> Content:
        if window.cursor is None:
            return said("no marker: . and , put one on the curve", "$text-muted")
        from ...agent.telling.views.curve_views import reading

        return words.values(reading(drawing, window.cursor), drawing.figure.stepped)

    def _fill(self, *lines: Content) -> None:
        for name, line in zip(("metrics", "part", "key", "under"), lines, strict=True):
            self.query_one(f"#{name}", Static).update(line)

    def _canvas(self, current: tuple[Drawing, Window] | None) -> None:
        if self._plot is None:
            if current is None:
                return
            from .plot import Plot

            self._plot = Plot()
            self.query_one("#place", Vertical).mount(self._plot)
        if current is None:
            self._plot.draw(None, [], None)
            return
        drawing, window = current
        marks = [(at, *words.sign(name)) for name, at in drawing.figure.marks.items()]
        self._plot.draw(self._sketch, marks, window.cursor)

    def on_resize(self) -> None:
        """Ticks depend on the width; a storm of resizes is drawn once it is over."""
        if self._later is not None:
            self._later.stop()
        self._later = self.set_timer(_PATIENCE, self._draw)
        self._words()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """What nobody expected is told as ours; the chat goes on."""
        if event.state is WorkerState.ERROR and event.worker.group in ("curves", "sketch"):
            error, self._busy = event.worker.error, False
            self._trouble = f"Bug in doctor: {type(error).__name__}: {error}"
            self._words()

    def action_metric(self, way: int) -> None:
        """The metric before or after this one; round at the ends."""
        if self._found:
            names = [d.figure.metric for d in self._found]
            before, at = self._current, (names.index(self._metric) + way) % len(names)
            self._metric = names[at]
            if before is not None and before[0].figure.stepped == self._found[at].figure.stepped:
                self._windows[self._metric].like(before[1])
            self._sketch, self._wanted, self._chosen = None, None, True
            self._draw()

    def action_turn(self) -> None:
        """All steps, or those around the event."""
        if self._current:
            self._current[1].turn()
            self._draw()

    def action_log(self) -> None:
        """Values by their logarithm or straight; what the values themselves want is where it starts."""
        if self._sketch:
            self._logs[self._metric] = not self._sketch.log
            self._draw()

    def action_zoom(self, closer: bool) -> None:
        """Half or twice as many steps, around marker or event."""
        if self._current:
            drawing, window = self._current
            window.zoom(closer, min(drawing.figure.marks.values(), default=None))
            self._draw()

    def action_slide(self, right: bool) -> None:
        """A quarter of the view to a side."""
        if self._current:
            self._current[1].slide(right)
            self._draw()

    def action_marker(self, right: bool) -> None:
        """The marker one point on or back; the first time to the event."""
        if self._current:
            drawing, window = self._current
            window.move(right, min(drawing.figure.marks.values(), default=None))
            self._draw()

    def action_evidence(self) -> None:
        """Open the line that the first anomaly stands on."""
        if self._current is None:
            return
        ident = self._current[0].evidence
        if ident:
            self.post_message(OpenEvidence(ident))
        else:
            why = "no line of evidence is known for an anomaly of this curve"
            self.query_one("#under", Static).update(said(why, "$text-muted"))
