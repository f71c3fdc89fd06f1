"""The drawing of one metric in characters. Imported when the first plot is drawn: plotext is not needed before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.color import Color, ColorParseError
from textual_plotext import PlotextPlot

if TYPE_CHECKING:
    from ...agent.telling.views.curve_views import Sketch, Trace

RGB = tuple[int, int, int]
MARKERS = ("braille", "o", "+", "x", "*", "v")  # of curves, told apart without colour
KEYS = ("\u2812\u2812", "o", "+", "x", "*", "v")  # what these look like in the key
GOOD, MEDIAN, EDGE = "=", "-", "."
_LAYERS = ("good", "least", "greatest", "median", "curve")  # what lies over what
_HUES = ("accent", "primary", "secondary", "success", "foreground", "warning")


def marker(trace: Trace) -> str:
    """The character of a line; the first that is drawn one by one is a fine line."""
    fixed = {"good": GOOD, "median": MEDIAN, "least": EDGE, "greatest": EDGE}
    return fixed.get(trace.kind) or MARKERS[trace.place % len(MARKERS)]


def hue(trace: Trace) -> str:
    """The theme variable of a line."""
    fixed = {"good": "success", "median": "foreground", "least": "foreground", "greatest": "foreground"}
    return fixed.get(trace.kind) or _HUES[trace.place % len(_HUES)]


class Plot(PlotextPlot):
    """Draws a sketch, its marks and a cursor. Nothing that a run wrote is handed to plotext: numbers and signs only."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__()
        self._sketch: Sketch | None = None
        self._marks: list[tuple[float, str, str]] = []
        self._cursor: float | None = None
        self._kept: tuple[object, Text] | None = None

    def draw(self, sketch: Sketch | None, marks: list[tuple[float, str, str]], cursor: float | None) -> None:
        """Show this instead of what was there.

        Args:
            marks: step, sign and theme variable of each.
            cursor: the step under the marker.
        """
        if sketch is not self._sketch or marks != self._marks or cursor != self._cursor:
            self._sketch, self._marks, self._cursor, self._kept = sketch, marks, cursor, None
            self.refresh()

    def render(self) -> Text:
        """The drawing; the same one again where nothing changed (120 x 40 cells take some 20 ms)."""
        width, height = self.size
        if self._sketch is None or width < 16 or height < 4:
            return Text("")
        key = (width, height, self.app.theme)
        if self._kept is None or self._kept[0] != key:
            self._kept = (key, self._drawn(self._sketch, width, height))
        return self._kept[1]

    def _drawn(self, sketch: Sketch, width: int, height: int) -> Text:
        plt = self.plt
        plt.clear_figure()
        plt.plotsize(width, height)
        plt._set_size(width, height)  # as PlotextPlot does: plotsize alone does not follow a resize
        plt.theme(self._get_plotext_theme_name(self.app.theme))
        plt.xlim(0, 1)
        plt.ylim(0, 1)
        plt.xticks([at for at, _ in sketch.across], [word for _, word in sketch.across])
        plt.yticks([at for at, _ in sketch.up], [word for _, word in sketch.up])
        for trace in sorted(sketch.traces, key=lambda t: (_LAYERS.index(t.kind), -t.place)):
            for across, up in trace.pieces:
                one = len(across) == 1
                (plt.scatter if one else plt.plot)(
                    across, up, marker="o" if one and marker(trace) == "braille" else marker(trace),
                    color=self._rgb(hue(trace)),
                )  # fmt: skip
        rows = [i / max(height - 4, 1) for i in range(height - 3)]
        for step, sign, variable in self._marks:
            self._column(sketch, step, sign, variable, rows[::2])
        if self._cursor is not None:
            self._column(sketch, self._cursor, "|", "foreground", rows[1::2])
        self._gaps(sketch, width)
        return Text.from_ansi(plt.build())

    def _column(self, sketch: Sketch, step: float, sign: str, variable: str, rows: list[float]) -> None:
        at = sketch.at(step)
        if at is not None:
            self.plt.scatter([at] * len(rows), rows, marker=sign, color=self._rgb(variable))

    def _gaps(self, sketch: Sketch, width: int) -> None:
        """The word NaN at the foot of each gap, and a wavy line as far as it goes."""
        cell, free = 1 / max(width - 10, 1), -1.0
        for start, end in sketch.gaps:
            if start < free:
                continue
            left = min(start + cell, 1 - 3 * cell)  # beside the mark that stands where the gap begins
            if end > left + 3 * cell:
                self.plt.plot([left + 3 * cell, end], [0.0, 0.0], marker="~", color=self._rgb("error"))
            self.plt.text("NaN", left, 0.0, color=self._rgb("error"), background=self._rgb("surface"), alignment="left")
            free = max(end, left + 4 * cell)

    def _rgb(self, variable: str) -> RGB:
        try:
            return Color.parse(self.app.theme_variables.get(variable, "")).rgb
        except ColorParseError:  # a theme that names the terminal's own colours
            return (128, 128, 128)
