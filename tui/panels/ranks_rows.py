"""How a rank is drawn: a mark, its name, its bar on the common axis, its last step, a word and its place in failing."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content

from ...agent.telling.views.timeline import Fold, Timeline
from ..text import said
from .hypotheses_fitted import fitted

MARKS = {"first": "X", "failed": "F", "silent": ".", "complained": "w", "unseen": "?", "done": "|", "quiet": " "}
WORDS = {
    "first": "failed first", "failed": "failed", "silent": "fell silent", "complained": "complained",
    "unseen": "no line", "done": "ended", "quiet": "",
}  # fmt: skip
STYLES = {"first": "$text-error bold", "failed": "$text-error", "silent": "$text-warning", "complained": ""}
_WORD, _STEP, _PLACE, _LEAST = 12, 7, 4, 10


def legend(line: Timeline) -> Content:
    """What the marks that occur mean, in words."""
    used = {lane.state for lane in line.lanes}
    parts = [Content.assemble((mark, "bold"), f" {WORDS[state]}") for state, mark in MARKS.items()
             if state in used and WORDS[state]]  # fmt: skip
    barred = [Content.assemble(("━", "bold"), " wrote lines" if line.axis.basis == "time" else " came so far")]
    return Content("  ").join(parts + (barred if line.axis.basis != "none" else []))


@dataclass(frozen=True, slots=True)
class Columns:
    """How the cells of a row are shared out. `bar` is 0 where there is no axis; `worded`: the state as a word too."""

    name: int
    bar: int
    worded: bool

    @classmethod
    def of(cls, line: Timeline, width: int, names: int) -> Columns:
        """For a width; `names` is what the longest name takes."""
        room = width - 4 - (_STEP + 1) - _PLACE
        barred = line.axis.basis != "none"
        worded = not barred or room >= min(names, 12) + 1 + _LEAST + _WORD + 1
        room -= (_WORD + 1) if worded else 0
        if not barred:
            return cls(max(6, room), 0, worded)
        name = max(6, min(names, room - _LEAST - 1))
        return cls(name, max(1, room - name - 1), worded)


def row(fold: Fold, line: Timeline, width: int, names: int, opened: bool | None = None, inner: bool = False) -> Content:
    """One line for one lane or for several that are alike.

    Args:
        names: cells that the longest name takes.
        opened: whether a fold is unfolded; None where it is a single lane.
        inner: it stands under an unfolded one.
    """
    lane, columns = fold.lead, Columns.of(line, width, names)
    style = STYLES.get(lane.state, "")
    sign = " " if opened is None else "-" if opened else "+"
    steps = f"{fold.steps[1]:,}" if fold.steps else ""
    about = "~" if fold.steps and fold.steps[0] != fold.steps[1] else ""
    order = min((x.order for x in fold.lanes if x.order is not None), default=None)
    cells = [Content.styled(MARKS[lane.state], style), Content(f" {sign} "), fitted(title(fold, inner), columns.name)]
    if columns.bar:
        cells += [Content(" "), _bar(fold, line, columns.bar, style)]
    cells += [Content(" "), fitted(Content(about + steps), _STEP, right=True)]
    if columns.worded:
        cells += [Content(" "), fitted(Content.styled(WORDS[lane.state], style), _WORD)]
    cells.append(fitted(Content(f"{order}." if order is not None else ""), _PLACE, right=True))
    return Content("").join(cells)


def title(fold: Fold, inner: bool = False) -> Content:
    """The name, and what sets it apart where there are several attempts or variants."""
    lane = fold.lead
    name = fold.name if lane.variant is None else f"{lane.variant}/{fold.name}"
    name += f" attempt {lane.attempt}" if lane.attempt is not None else ""
    return said((f"  {name}" if inner else name).replace("\t", " "), limit=200)


def heads(line: Timeline, width: int, names: int) -> Content:
    """The words over the columns, the ends of the axis over the bars."""
    columns = Columns.of(line, width, names)
    cells = [Content("    "), fitted(Content(line.noun), columns.name)]
    if columns.bar:
        cells += [Content(" "), _ends(line, columns.bar)]
    cells += [Content(" "), fitted(Content("step"), _STEP, right=True)]
    cells += [Content(" "), fitted(Content("state"), _WORD)] if columns.worded else []
    return Content("").join([*cells, fitted(Content("#"), _PLACE, right=True)]).stylize("$text-muted")


def _ends(line: Timeline, width: int) -> Content:
    start, length, end = line.axis.ends
    gap = width - len(start) - len(end)
    if gap < 1:
        return fitted(Content(end), width, right=True)
    middle = length.center(gap) if len(length) + 2 <= gap else " " * gap
    return fitted(Content(start + middle + end), width)


def _bar(fold: Fold, line: Timeline, width: int, style: str) -> Content:
    """From the first line to the last; dots where it should have written on; marks where it failed or complained."""
    begins = [x.begin for x in fold.lanes if x.begin is not None]
    ends = [x.end for x in fold.lanes if x.end is not None]
    lane = fold.lead
    cells = [" "] * width
    if not begins or not ends:
        if lane.state == "unseen" or not lane.file:
            return Content(" " * width)
        why = "no comparable stamp" if line.axis.basis == "time" else "no step"
        return fitted(Content.styled(why, "$text-muted"), width)

    def cell(value: float) -> int:
        return min(width - 1, round(line.axis.share(value) * (width - 1)))

    first, last = cell(min(begins)), cell(max(ends))
    cells[first : last + 1] = "━" * (last + 1 - first)
    cut_short = lane.state == "silent" or (lane.state == "first" and lane.trouble is None)
    if cut_short and line.axis.basis == "time":
        cells[last + 1 :] = "." * (width - last - 1)
    marks: list[int] = []
    if lane.struck is not None and lane.state in ("first", "failed", "complained"):
        marks.append(cell(lane.struck))
    elif lane.state in ("first", "failed", "complained", "done"):
        marks.append(last)
    for at in marks:
        cells[at] = MARKS[lane.state]
    text = Content("".join(cells)).stylize("$text-muted")
    for at in marks:
        text = text.stylize(style or "bold", at, at + 1)
    return text
