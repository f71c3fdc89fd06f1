"""What a run was asked for and, by its own account, did not do: epochs that never came, a warm-up that never was."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .beginnings import beginnings
from .curves import curves, line_at
from .files import Line, RunFile
from .settings import Setting, read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

SHORT = 0.9  # of the epochs asked for, below which a run that ended stopped before them
FULL = 0.97  # of the highest rate, from which the first one that is logged was not warmed up
FEWEST = 5  # steps of a warm-up that a log can show
LOG_LIMIT = 64 << 20
CUTS = (256, 512, 1024, 2048, 4096, 8192)  # lengths at which libraries cut where nobody is heard
_SUMMARY = re.compile(r"""['"]train_runtime['"]:.{0,600}?['"]epoch['"]: ?['"]?(?P<epoch>\d+(?:\.\d+)?)""")
_STOPPED = re.compile(r"Trainer\.fit`? stopped: `?max_steps=(?P<steps>\d+)`? reached")
_EARLY = re.compile(rb"(?i)early[ _-]?stop|signal|interrupt|should_training_stop|time limit")

_LONGEST = re.compile(
    r"(?i)\b(?:longest|max(?:imum|\.)?)\b[^:=|\d]{0,24}\b(?:tokeni[sz]ed|token|tokens|input_ids|sequence|example|sample)\b"
    r"[^:=|\d]{0,24}[:=]\s*(?P<n>\d{3,6})\b(?! ?%)"
)


@dataclass(frozen=True, slots=True)
class NotDone:
    """A wish and what became of it, with the lines of both."""

    name: str
    asked: float
    done: float | None  # None where only the wish's end is told
    places: tuple[tuple[RunFile, Line], ...]


def not_done(ws: Workspace) -> Iterator[NotDone]:
    """Wishes of the run that its own logs contradict. What was asked for in two ways is no wish that is known."""
    yield from _epochs(ws)
    yield from _warmup(ws)
    yield from _length(ws)


def _wish(ws: Workspace, name: str) -> Setting | None:
    """The one value asked for, where it is a positive number."""
    found = [s for s in read_settings(ws).asked(name) if not s.file.good and s.note != "add_argument" and not s.default]
    values = {s.value for s in found}
    value = found[0].value if len(values) == 1 else None
    return found[0] if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _epochs(ws: Workspace) -> Iterator[NotDone]:
    """A run came to its end, and to fewer epochs than were asked for: a number of steps ended it."""
    wish, steps = _wish(ws, "epochs"), _wish(ws, "max_steps")
    if wish is None:
        return
    cause = ((steps.file, steps.line),) if steps is not None else ()
    short: NotDone | None = None
    for file in ws.by_role("log"):
        if file.good or file.size > LOG_LIMIT:
            continue
        last, early = None, False
        for line in ws.lines(file):
            early = early or bool(_EARLY.search(line.data))
            if b"train_runtime" in line.data or b"max_steps=" in line.data:
                last = _done(line) or last
        if last is None or early:
            continue
        done, line = last
        if done is not None and done >= SHORT * wish.value:
            return  # a later start went all the way
        short = short or NotDone("epochs", wish.value, done, ((wish.file, wish.line), *cause, (file, line)))
    if short is not None:
        yield short


def _done(line: Line) -> tuple[float | None, Line] | None:
    """The epochs that a trainer's last words name; none where they say that steps ended it."""
    if m := _SUMMARY.search(line.text[-4000:]):
        return float(m["epoch"]), line
    return (None, line) if _STOPPED.search(line.text[-4000:]) else None


def _warmup(ws: Workspace) -> Iterator[NotDone]:
    """The first rate that is logged, well within the warm-up asked for, is the highest there ever is."""
    wish = _wish(ws, "warmup_steps")
    if wish is None or wish.value < FEWEST:
        return
    for series in curves(ws).of("learning_rate", good=False):
        values, steps = series.values[series.finite], series.steps[series.finite]
        if not series.stepped or len(values) < 3 or steps[0] > 0.5 * wish.value or values.max() <= 0:
            continue
        if values[0] >= FULL * values.max():
            first = (series.file, line_at(series, int(series.finite.argmax())))
            yield NotDone("warmup_steps", wish.value, 0, ((wish.file, wish.line), first))
            return


def _length(ws: Workspace) -> Iterator[NotDone]:
    """The longest sample is as long as libraries cut by default, to the token, and far shorter than what was asked."""
    wish = _wish(ws, "sequence_length")
    if wish is None:
        return
    for file, line in beginnings(ws):
        if b"ongest" not in line.data and b"ax" not in line.data:
            continue
        m = _LONGEST.search(line.text[:2000])
        if m and int(m["n"]) in CUTS and 2 * int(m["n"]) <= wish.value:
            yield NotDone("sequence_length", wish.value, int(m["n"]), ((wish.file, wish.line), (file, line)))
            return
