"""What stands around a plot in words: the metrics, the part in view, the key to its signs, the marker's values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from ..text import said

if TYPE_CHECKING:
    from ...agent.telling.views.curve_views import Drawing, Figure, Reading, Sketch
    from .curves_window import Window

NAME = 40  # characters of a curve's name
_SIGNS = {"first anomaly": ("!", "error"), "first failure": ("#", "warning")}
_OTHER = (":", "warning")


def sign(mark: str) -> tuple[str, str]:
    """The sign of a mark and its theme variable."""
    return _SIGNS.get(mark, _OTHER)


def choices(found: list[Drawing], at: int, width: int) -> Content:
    """All metrics in one line, the one that is drawn in brackets; those without room left of `<` or right of `>`."""
    titles = [said(d.title, limit=24).plain for d in found]
    words = [f"[{t}]" if i == at else f" {t} " for i, t in enumerate(titles)]
    tail, low, high = f"{at + 1}/{len(found)}", at, at + 1
    room = width - len(tail) - 5
    while low > 0 or high < len(words):
        more = high if high < len(words) else low - 1
        if sum(len(w) + 1 for w in words[low:high]) + len(words[more]) > room:
            break
        low, high = (low, high + 1) if more == high else (low - 1, high)
    parts = [Content("< " if low > 0 else "")]
    for i in range(low, high):
        parts.append(Content.styled(words[i], "bold $accent" if i == at else "$text-muted"))
    return Content("").join([*parts, Content.styled(f"{' >' if high < len(words) else ''}  {tail}", "$text-muted")])


def part(drawing: Drawing, window: Window, sketch: Sketch | None) -> Content:
    """Which steps are in view, of how many, and how values stand."""
    from ...agent.telling.views.curve_views import said_step

    unit = "step" if drawing.figure.stepped else "reading"
    ends = f"{unit}s {said_step(window.low)} to {said_step(window.high)}"
    what = f"all {ends}" if window.whole else f"{ends} of {said_step(window.first)} to {said_step(window.last)}"
    if not window.whole and (window.low, window.high) == window.near:
        what = f"around the event: {what}"
    if drawing.is_bytes:
        what += ", in GiB"
    if sketch is not None and sketch.log:
        what += ", log scale"
        what += f" ({sketch.left_out:,} values at or below 0 not drawn)" if sketch.left_out else ""
    return said(what, "$text-muted")


def key(sketch: Sketch, drawing: Drawing, window: Window, width: int) -> Content:
    """The signs of curves and marks, each with what it stands for, none of them broken over two lines."""
    from .plot import EDGE, KEYS, MARKERS, hue, marker

    figure = drawing.figure
    parts: list[Content] = []
    banded = any(t.kind == "median" for t in sketch.traces)
    if banded:
        many = sum(not c.good for c in figure.curves)
        parts.append(Content.styled(f"{EDGE} least and greatest of {many:,} curves", "$text-muted"))
    for trace in sketch.traces:
        if trace.kind in ("least", "greatest"):
            continue
        look = marker(trace)
        look = KEYS[0] if look == MARKERS[0] else look
        label = "median" if trace.kind == "median" else trace.label
        culprit = any(c.apart and c.label == trace.label for c in figure.curves)
        first = f" ({drawing.apart})" if culprit and len(figure.curves) > 1 else ""
        parts.append(Content.styled(f"{look} ", f"${hue(trace)}") + said(f"{label}{first}", limit=NAME))
    parts += _marks(figure, window)
    if sketch.gaps:
        parts.append(Content.styled("NaN", "$error") + Content(" not finite"))
    return _packed(parts, width)


def _packed(parts: list[Content], width: int) -> Content:
    lines: list[Content] = []
    for one in parts:
        if lines and lines[-1].cell_length + 3 + one.cell_length <= width:
            lines[-1] = lines[-1] + Content("   ") + one
        else:
            lines.append(one)
    return Content("\n").join(lines)


def _marks(figure: Figure, window: Window) -> list[Content]:
    from ...agent.telling.views.curve_views import said_step

    unit = "step" if figure.stepped else "reading"
    found = []
    for name, at in sorted(figure.marks.items(), key=lambda m: m[1]):
        where = " (before this part)" if at < window.low else " (after this part)" if at > window.high else ""
        mark, variable = sign(name)
        words = f" {name} at {unit} {said_step(at)}{where}"
        found.append(Content.styled(mark, f"bold ${variable}") + said(words))
    return found


def values(reading: Reading, stepped: bool) -> Content:
    """What the curves say under the marker."""
    from ...agent.telling.views.curve_views import said_step

    told = [Content.styled(f"| {'step' if stepped else 'reading'} {said_step(reading.step)}", "bold")]
    told += [said(name, "$text-muted", NAME) + said(f" {value}") for name, value in reading.values]
    return Content("   ").join(told)
