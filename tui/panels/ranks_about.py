"""What is known of the chosen rank, in a few lines."""

from __future__ import annotations

from textual.content import Content

from ...agent.telling.views.timeline import Fold, Lane, stretches
from ..text import said

_STATES = {
    "first": "failed first",
    "failed": "failed",
    "silent": "fell silent while others complained",
    "complained": "complained (a watchdog, a lost peer)",
    "unseen": "no line names it, though the logs state a world that has it",
    "done": "its last line says that it came to an end",
    "quiet": "nothing wrong in its lines",
}
_QUOTE = 240


def about(fold: Fold, opened: bool | None) -> Content:
    """Who, where, what it wrote last; of several alike ones, who and how far."""
    if opened is not None:
        return _of_many(fold, opened)
    return _of_one(fold.lead)


def _of_many(fold: Fold, opened: bool) -> Content:
    lane = fold.lead
    ranks = stretches([x.rank for x in fold.lanes if x.rank is not None]) or f"{len(fold.lanes)} logs"
    state = {"complained": "all complained", "quiet": "nothing wrong in their lines", "unseen": "no line names them"}
    lines = [f"{len(fold.lanes):,} alike: {state.get(lane.state, _STATES[lane.state])}"]
    if fold.steps:
        low, high = fold.steps
        lines[0] += f"; last step {low:,}" if low == high else f"; last steps {low:,} to {high:,}"
    key = "folds them" if opened else "unfolds them"
    return Content("\n").join([said(lines[0]), said(f"ranks {ranks}", limit=200), said(f"enter {key}", "$text-muted")])


def _of_one(lane: Lane) -> Content:
    where = [lane.name]
    where += [f"on {lane.host}"] if lane.host and lane.host != lane.name else []
    where += [f"of {lane.variant}"] if lane.variant else []
    where += [f"in attempt {lane.attempt}"] if lane.attempt is not None else []
    place = f"; number {lane.order} in trouble" if lane.order is not None and lane.state != "first" else ""
    lines = [said(f"{' '.join(where)}: {_STATES[lane.state]}{place}")]
    if not lane.file:
        return lines[0]
    if lane.trouble is not None:
        t = lane.trouble
        lines += [said(f"{t.file}:{t.line} (t)"), said(f"  {t.text.strip()}", "$text-muted", limit=_QUOTE)]
    step = f", step {lane.step:,}" if lane.step is not None else ""
    time = f", {lane.last_time}" if lane.last_time else ""
    lines.append(said(f"{lane.file}:{lane.last_line} (enter) last line{step}{time}"))
    lines.append(said(f"  {lane.last_text.strip()}", "$text-muted", limit=_QUOTE))
    return Content("\n").join(lines)
