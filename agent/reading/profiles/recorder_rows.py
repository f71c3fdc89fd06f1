"""What `traindoctor_recorder` left: its events by rank, the step where a value stopped being finite, waits for data.

Rows of steps are read as curves by name; this reads `events_rank_N.jsonl` and the columns no curve is made of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core import deadline
from ..run.files import Line, RunFile
from ..run.records import small_enough

if TYPE_CHECKING:
    from ..run.workspace import Workspace

_EVENTS = re.compile(r"(?:^|/)events_rank_(\d+)(?:\.before)?\.jsonl$")
_STEPS = re.compile(r"(?:^|/)rank_(\d+)\.jsonl$")
_FILE_LIMIT = 512 << 20
_ROWS = 200_000  # events of one file
GREW = 3.0  # weights against those of the start, from which they grew beyond what a training does
RAMP = 10.0  # gradients of the last steps against those before
LEAPT = 100.0  # loss of the last steps against that before


@dataclass(frozen=True, slots=True)
class Event:
    """One line of an events file: its kind, its step, and everything it says."""

    file: RunFile
    line: Line
    rank: int
    kind: str
    step: int | None
    facts: dict[str, Any]

    def number(self, name: str) -> float | None:
        """A fact that is a number."""
        value = self.facts.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def words(self, name: str) -> list[Any]:
        """A fact that is a list; empty where it is not there."""
        value = self.facts.get(name)
        return value if isinstance(value, list) else []

    def word(self, name: str) -> str:
        """A fact that is text; empty where it is not there."""
        value = self.facts.get(name)
        return value if isinstance(value, str) else ""

    @property
    def grew(self) -> bool:
        """Whether weights, gradients or loss had grown before: then the layer that gave way first is no culprit."""
        return (
            (self.number("weights_ratio") or 0) > GREW
            or (self.number("norm_ratio") or 0) > RAMP
            or (self.number("loss_ratio") or 0) > LEAPT
        )


@dataclass(slots=True)
class Waits:
    """Seconds that one rank's steps took, and how much of them it waited for data."""

    file: RunFile
    line: Line
    steps: int = 0
    seconds: float = 0.0
    waited: float = 0.0

    @property
    def share(self) -> float:
        """Waiting of the whole."""
        return self.waited / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True)
class Recording:
    """Everything recorded of a run, over its ranks."""

    events: list[Event] = field(default_factory=list)
    waits: list[Waits] = field(default_factory=list)

    def of(self, kind: str) -> list[Event]:
        """Events of one kind, the earliest step first."""
        found = [e for e in self.events if e.kind == kind]
        return sorted(found, key=lambda e: (e.step if e.step is not None else 1 << 62, e.rank))

    @property
    def trouble(self) -> Event | None:
        """The first step that was not finite; of several ranks the one whose own batch or layer is to blame."""
        found = self.of("nonfinite")
        if not found:
            return None
        first = [e for e in found if e.step == found[0].step]
        return min(first, key=lambda e: (not e.words("batch_nonfinite"), not e.word("layer"), e.rank))


def recording(ws: Workspace) -> Recording:
    """The recorder's files of a run, read on first use."""
    return ws.memo("recorder", lambda: _read(ws))


def _read(ws: Workspace) -> Recording:
    out = Recording()
    for file in ws.files:
        if file.good or not file.name.endswith(".jsonl"):
            continue
        if found := _EVENTS.search(file.name):
            out.events += _events(ws, file, int(found[1]))
        elif _STEPS.search(file.name) and b'"step_time"' in ws.head(file):
            out.waits += _waits(ws, file)
    return out


def _events(ws: Workspace, file: RunFile, rank: int) -> Iterator[Event]:
    if not small_enough(ws, file, _FILE_LIMIT):
        return
    for count, line in enumerate(ws.lines(file)):
        if count >= _ROWS:
            ws.tell(file.name, f"only the first {_ROWS} events are read")
            return
        row = _row(line)
        if row is not None and isinstance(kind := row.get("event"), str):
            step = row.get("step")
            known = isinstance(step, int) and not isinstance(step, bool) and abs(step) < 1 << 53
            yield Event(file, line, rank, kind[:40], step if known else None, row)


def _waits(ws: Workspace, file: RunFile) -> list[Waits]:
    if not small_enough(ws, file, _FILE_LIMIT):
        return []
    out = None
    for line in ws.lines(file):
        row = _row(line)
        if row is None or not isinstance(whole := row.get("step_time"), int | float) or not 0 < whole < 1e6:
            continue
        waited = row.get("data_time", 0.0)
        out = out or Waits(file, line)
        out.line = line
        out.steps += 1
        out.seconds += whole
        out.waited += min(float(waited), whole) if isinstance(waited, int | float) and waited == waited else 0.0
    return [out] if out is not None else []


def _row(line: Line) -> dict[str, Any] | None:
    if line.number % 1024 == 0:
        deadline.check()
    try:
        row = json.loads(line.data)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
