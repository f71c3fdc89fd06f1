"""One run that is followed: what each look at its files brings, in constant memory."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from ...core.errors import ParseError
from ...core.own_files import small_file
from ...reading.run.discover import places
from ...reading.run.files import RunFile
from ...reading.run.lines import segments, strip
from ...reading.scan.anchors import table
from ..growing import Reader, Tail, patience
from .alarm import LIMITS, Alarm, Found, Voice, placed
from .point_readers import EventReader, Point, Shared, StateReader, TableReader, TextReader
from .trouble import Disk, KernelLog, Process, Steps, Trouble
from .watched_curves import Curves
from .watched_folder import Checkpoints, Folder

# ----------
# Whether the last lines of a log say that the end was reached.


_BAR_LEAST = 5  # steps; a shorter bar counts other things


def says_end(lines: Iterable[bytes]) -> str:
    """The last line that says so; empty where none does."""
    for data in reversed(list(lines)):
        body = strip(segments(data)[-1][1].decode(errors="replace")).body
        for pattern in table().finished:
            m = pattern.search(body)
            if m is None:
                continue
            counts = m.groups()
            if counts and counts[0] is not None and not (counts[0] == counts[1] and int(counts[0]) >= _BAR_LEAST):
                continue
            return body.strip()[:160]
    return ""


# ----------

_LOOK = 0.5  # seconds of reading after which a look ends; what is left is read at the next
_LONGEST = 120.0  # seconds that a line of trouble waits for progress at most


@dataclass(frozen=True, slots=True)
class State:
    """How the run stands, for who asks in between."""

    step: float | None = None
    loss: float | None = None
    quiet: float | None = None  # seconds without a new step
    step_seconds: float | None = None
    files: int = 0
    free: int = 0
    total: int = 0
    there: bool = False
    ended: bool = False


class Run:
    """Follows the run in one folder (or one file). Not for two threads at once."""

    def __init__(
        self, root: Path, kinds: frozenset[str], stall: float = LIMITS.stall, pids: tuple[int, ...] = ()
    ) -> None:
        self.root = root
        self.state = State()
        self.more = True  # there is something that was not read yet
        self.moved = -math.inf  # when a file last gained something
        self.ended = False
        self._folder = Folder(root, self._reader)
        self._voice = Voice(str(root), kinds)
        self._shared, self._seen = Shared(), dict[str, float]()
        self._pace, self._curves, self._checkpoints = Steps(stall), Curves(), Checkpoints()
        self._troubles: dict[str, Trouble] = {}
        self._steps: dict[str, float] = {}  # the last of each file
        self._after: dict[str, int] = {}  # new steps since a line of trouble, by file
        self._disks: dict[int, Disk] = {}  # by device; asked of nothing before the first look: it may hang
        self._kernel, self._processes = KernelLog(), [Process(p) for p in pids]
        self._record: tuple[str, float] = ("", 0.0)
        self._found: list[tuple[Found, bool]] = []
        self._now = self._when = time.monotonic()
        self._old = False
        self.began = self._now

    @property
    def followed(self) -> int:
        """How many files are."""
        return len(self._folder.tails)

    def look(self, last: bool = False) -> list[Alarm]:
        """Look once. `last`: nothing more will come, so that what is pending is judged as it stands."""
        self._found, self._now = [], time.monotonic()
        self.more = False
        for tail in self._folder.changed():
            self._read(tail, last)
        if self._folder.walked is not None:
            self._walked()
        if self._folder.there:
            self._judge(last)
        p, disk = self._pace, next(iter(self._disks.values()), None)
        room = (disk.free, disk.total) if disk is not None else (0, 0)
        quiet = None if p.at is None else max(0.0, time.monotonic() - p.at)
        self.state = State(
            p.step, self._curves.loss, quiet, p.gap or None, self.followed, *room, self._folder.there, self.ended
        )
        return self._voice.say(self._found)

    def search(self) -> None:
        """Look for new files at the next look, not only now and then."""
        self._folder.search()

    def close(self) -> None:
        """Give back what is open."""
        self._kernel.close()

    def _reader(self, name: str, path: Path, role: str) -> Reader | None:
        base = PurePath(name).name
        place = places([(name, "log")])[name]
        rank = place.rank
        file = RunFile(name, path, role, 0, rank=rank)

        def point(p: Point) -> None:
            self._point(p if p.rank is not None or rank is None else replace(p, rank=rank), name)

        if base.startswith("events.out.tfevents"):
            return EventReader(point)
        if base == "trainer_state.json":
            return StateReader(path, point, self._seen)
        if base.endswith((".csv", ".tsv")):
            return TableReader(point)
        if base.endswith((".json", ".wandb", ".db", ".sqlite")) and base not in ("stdout.json", "stderr.json"):
            return None  # written whole, or no text
        trouble = self._troubles.setdefault(name, Trouble(file))

        def other(text: bytes, line: int | None, of: int | None) -> None:
            for found in trouble.take(text, line, of if of is not None else rank, self._when):
                self._troubled(found, name)

        return TextReader(self._shared, point, other, lambda step, of: self._stepped(step, of, rank, name))

    def _read(self, tail: Tail, last: bool) -> None:
        left = 1
        try:
            while left and time.monotonic() - self._now < _LOOK:
                self._old = tail.old
                written = tail.written or tail.path.stat().st_mtime
                age = max(0.0, time.time() - written) if self._old else 0.0
                self._when = time.monotonic() - age
                before = tail.offset
                quiet = last or (time.monotonic() - self.moved > LIMITS.caught and not tail.old)
                left = tail.read(quiet)
                if tail.offset != before:
                    self.moved = max(self.moved, self._when)
        except (ParseError, OSError, ValueError):
            return  # gone or no file any more: the next walk tells
        self.more |= bool(left)

    def _stepped(self, step: float, label: int | None, own: int | None, name: str) -> None:
        rank = label if label is not None else own
        self._pace.step_of(step, self._when, self._old, rank, name)
        if step == self._steps.get(name):
            return
        stride = step - self._steps.get(name, step)
        self._steps[name] = step
        if rank is not None and not self._old and stride > 0:
            self._pace.lag(rank, stride)
        self._survived(name, step, own)

    def _survived(self, name: str, step: float, rank: int | None) -> None:
        """A new step: trouble was got over by two of them in the same file, or where that has none of its own.

        So it was by two in another log that go further than the steps of its own: another attempt.
        """
        for other, trouble in self._troubles.items():
            if trouble.pending is None:
                continue
            own = self._steps.get(other)
            if other != name and own is not None and (rank is not None or step <= own + 1):
                continue
            self._after[other] = self._after.get(other, 0) + 1
            if self._after[other] >= 2:
                self._after.pop(other)
                self._tell(trouble.progressed(), self._old, file=other)

    def _point(self, point: Point, name: str) -> None:
        if point.step is not None and name not in self._troubles:  # tables and TensorBoard name steps here alone
            self._stepped(point.step, point.rank, None, name)
        step = point.step if point.step is not None else self._steps.get(name)
        if point.rank is not None and point.metric in ("step_time", "compute_time"):
            self._pace.rank(point.rank).times.add(point.value)
        where = {"step": step, "rank": point.rank, "file": name, "line": point.line}
        self._tell(self._curves.take(point, name), self._old, **where)

    def _troubled(self, found: Found, name: str) -> None:
        new: Iterable[Found] = (found,)
        if found.kind == "steps_skipped":
            new = self._curves.scale.skip()
        elif found.kind == "scale_floor":
            new = self._curves.scale.at_floor(found.text)
        self._tell(new, self._old, file=name, step=self._steps.get(name), line=found.line, rank=found.rank)

    def _walked(self) -> None:
        walked, self._folder.walked = self._folder.walked or [], None
        going = self._pace.live and not self.ended
        self._tell(self._checkpoints.look(walked, time.time(), self._pace.step, going))
        records = sorted(
            (s for s in walked if PurePath(s.name).match("try_*/record.json")), key=lambda s: s.written, reverse=True
        )
        if records and (records[0].name, records[0].written) != self._record:
            self._record = (records[0].name, records[0].written)
            self._supervised(records[0].name)

    def _supervised(self, name: str) -> None:
        """A run that `doctor run` supervises: its record says whether it ended, and how."""
        try:
            record = json.loads(small_file(self.root / name, 1 << 20)[0])
            state, code = record["state"], record["exit"]["code"] if record["state"] == "ended" else 0
        except (OSError, ValueError, KeyError, TypeError):
            return
        if state != "ended":
            self.ended = False
        elif not self.ended:
            self._end(code == 0, f"the job ended with exit code {code}", name)

    def _judge(self, last: bool) -> None:
        waits = min(_LONGEST, patience(LIMITS.caught, (1.5, self._pace.gap)))
        now = time.monotonic()
        badly = None
        for name, trouble in self._troubles.items():
            held = trouble.pending
            if held is None:
                continue
            if last or now - held.since >= waits:
                if not self.more and trouble.told is not held:
                    trouble.told = held
                    where = {"file": name, "line": held.line, "step": self._steps.get(name)}
                    self._tell([held.found], held.since < self.began, **where)
                badly = held
        for device, path in self._folder.places.items():
            self._tell(self._disks.setdefault(device, Disk(path)).look(now))
        self._tell(self._kernel.look())
        for process in self._processes:
            self._tell(process.look())
        self._over(badly is not None, now, last)
        if not self.more:
            self._tell(self._pace.judge(now, self.ended or (last and self._pace.live)))

    def _over(self, badly: bool, now: float, last: bool) -> None:
        """Whether the run has ended: by its processes, else by what its logs say and that nothing follows."""
        quiet = now - max(self.moved, self._pace.at or self.moved)
        if self.ended:
            if quiet < 1.0 and self._pace.live and not self._record[0]:
                self.ended = False  # it goes on, or another attempt began
            return
        gone = self._processes and not any(p.alive for p in self._processes)
        over = quiet >= patience(LIMITS.over, (LIMITS.stall_times, self._pace.gap))
        if self.more or not (last or gone or over):
            return
        if badly:
            self._end(False, "the run ended badly")
            return
        for tail in self._folder.tails.values():
            if isinstance(tail.reader, TextReader) and (line := says_end(tail.reader.ending)):
                self._end(True, f"the run ended: {line}", tail.name)
                return
        if gone:
            self._end(True, "its processes ended, and no log says how")

    def _end(self, well: bool, text: str, file: str = "") -> None:
        self.ended = True
        severity = None if well else "alarm"
        self._tell(
            [Found("run_ended", text, severity=severity, step=self._pace.step, file=file)], self.moved < self.began
        )

    def _tell(self, found: Iterable[Found], earlier: bool = False, **where: Any) -> None:
        """At the end of this look; `earlier`: what they stand on was there before the watch."""
        self._found += [(placed(f, **where), earlier) for f in found]
