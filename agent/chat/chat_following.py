"""A job that is running, followed through its files: how it stands, what is worth telling, fresh readings of it.

Only `stat` is asked at each look; what was appended is read once; the whole is read anew so seldom that all this takes
a tenth of the time at most. Who follows calls `look` in a thread of its own and waits `pulse.wait` seconds in between.
"""

from __future__ import annotations

import math
import stat
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..core.errors import DoctorError, ParseError
from ..jobs.growing import Pace, patience, span
from ..jobs.watching.watched_folder import Seen, seen_in
from ..reading.curves.curves import curves
from ..reading.curves.series import Series
from ..reading.logs.endings import State as Ending
from ..reading.logs.endings import endings
from ..reading.logs.failures import Failures, failures
from ..reading.run.discover import walk
from ..reading.run.workspace import Workspace
from ..reading.scan.logpass import LogPass, logpass
from ..safety.fences import one_line
from ..telling.page.plot import said, said_step
from .following_lines import Lines, News, compared, measured

# ----------
# Whether a job went on after what its logs say went wrong: a failure that was caught is no end.


_LATER = 30.0  # seconds by which a log that did not fail was written after those that did
_ENDS = ("exit", "killed", "signal")


def goes_on(found: LogPass, wrong: Failures) -> bool:
    """Whether every failure is followed by progress: in its own log, or in a log without one that came long after."""
    last: dict[str, int] = defaultdict(int)
    for unit in wrong.units:
        last[unit.file.name] = max(last[unit.file.name], unit.line.number)
    for note in wrong.notes:
        if note.kind in _ENDS or note.value == "watchdog":
            last[note.file.name] = max(last[note.file.name], note.read.line.number)
    if not last:
        return False
    dead = [name for name, number in last.items() if not _progress_after(found, name, number)]
    return not dead or _later_elsewhere(found, dead, set(last) - set(dead))


def _progress_after(found: LogPass, name: str, number: int) -> bool:
    place = found.files[name].last_progress if name in found.files else None
    return place is not None and place.number > number


def _later_elsewhere(found: LogPass, dead: list[str], recovered: set[str]) -> bool:
    written = [t for name in dead if name in found.files and (t := _written(found, name))]
    others = [
        t for name, s in found.files.items()
        if name not in dead and s.file.role == "log" and not s.file.good
        and (s.last_progress is not None or name in recovered) and (t := _written(found, name))
    ]  # fmt: skip
    return bool(written and others) and max(others) > max(written) + _LATER


def _written(found: LogPass, name: str) -> float:
    try:
        return found.files[name].file.path.stat().st_mtime
    except OSError:
        return 0.0


# ----------

State = Literal["waiting", "running", "silent", "hung", "died", "finished", "gone"]

POLL = 2.0  # seconds between two looks
SHARE = 19.0  # seconds of rest for a second of looking, and as many for one of reading: a tenth of the time in all
_LONGEST = 600.0  # seconds between two looks at most, however long one takes
_FRESH = 10.0  # seconds between two whole readings at least
_STALL, _STALL_UNPACED = 120.0, 300.0  # seconds without a line; the second where nobody knows how long a step takes
_SHOWS = 20.0  # seconds from a loss that is not finite to its diagnosis: whether it comes back says much
_TOO_LONG = 300.0  # seconds without a line from which that is trouble: a checkpoint or an evaluation takes minutes
_STEPS, _GAPS = 10.0, 5.0  # and so many steps, and usual times between two lines
_QUIET, _QUIET_UNPACED = 5.0, 30.0  # seconds without a line after which it is read how the logs end
_NAMED = 3  # files that are told by name
_LAGS = 3  # looks in a row from which an earlier step is where the job is
_OVER: dict[Ending, State] = {"died": "died", "hung": "hung"}
_STOPPED: tuple[State, ...] = ("silent", "hung", "died", "finished")


@dataclass(frozen=True, slots=True)
class Pulse:
    """How a job stands.

    Attributes:
        state: `waiting`: for its folder, its first line, or for what the ends of its logs say. `silent`: no line for
            far longer than usual, and no log says why. `gone`: its folder is.
        step: the newest that a line names; `loss` is the newest loss, which may not be finite.
        pace: seconds that a step takes; None until two looks have seen steps.
        grown: when a log was written to last, as the clock of `looked` has it; None before the first line.
        wait: seconds until the next look.
        not_finite: the first step seen at which the loss was not finite; NaN where no step was printed with it.
        spike: step and loss of the first jump seen.
    """

    state: State
    looked: float
    wait: float = POLL
    step: float | None = None
    loss: float | None = None
    pace: float | None = None
    grown: float | None = None
    files: int = 0
    not_finite: float | None = None
    spike: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found: each thing worth telling once, a fresh workspace where one is due, why to diagnose.

    Attributes:
        troubles: those of `told` that are trouble; the others are worth knowing, no more.
        workspace: always there where a diagnosis is asked for and the files can be read.
    """

    pulse: Pulse
    told: tuple[str, ...] = ()
    troubles: frozenset[str] = frozenset()
    workspace: Workspace | None = None
    diagnose: str = ""


@dataclass(slots=True)
class Following:
    """Follows the job that writes into some folders or files. Not for two threads at once.

    Attributes:
        now: the clock, in seconds since 1970 as files have it.
        poll: seconds between two looks at least.
        shows: seconds from a loss that is not finite to its diagnosis; an end of the job is diagnosed at once with it.
    """

    roots: list[Path]
    good: list[Path] = field(default_factory=list)
    now: Callable[[], float] = time.time
    poll: float = POLL
    shows: float = _SHOWS
    _seen: dict[str, Seen] | None = None
    _lines: Lines = field(default_factory=Lines)
    _by_lines: bool = False  # lines name steps
    _state: State = "waiting"
    _news: News = field(default_factory=News)
    _growth: Pace = field(default_factory=Pace)  # when lines came
    _steps: Pace = field(default_factory=Pace)
    _behind: int = 0  # looks in a row whose newest step is before that
    _said: list[str] = field(default_factory=list)
    _why: list[str] = field(default_factory=list)
    _whys_later: list[str] = field(default_factory=list)  # what will be diagnosed,
    _later: float = 0.0  # from then on
    _wrong: list[str] = field(default_factory=list)
    _once: set[str] = field(default_factory=set)
    _stale: bool = False  # files have changed since the last workspace
    _due: float = 0.0  # when the next workspace may be made
    _looks: int = 0
    _reading: float = 0.0  # seconds that the whole reading of this look took
    _judged: bool = False  # how the logs end was read since they grew last

    def look(self) -> Look:
        """Look once. May take as long as the disk takes to answer; raises nothing of the run's doing."""
        began = time.perf_counter()
        self._said, self._why, self._wrong, self._reading = [], [], [], 0.0
        now = self.now()
        found = seen_in(self.roots)
        workspace = self._absent() if found is None else self._present(found, now)
        first = self._looks == 0  # it reads the ends of all files, and is the only one that does
        took = 0.0 if first else time.perf_counter() - began - self._reading
        self._looks += 1
        pulse = Pulse(
            self._state, now, min(max(self.poll, SHARE * took), _LONGEST), self._news.step, self._news.loss, self.pace,
            self._growth.at, len(found or ()), self._news.not_finite, self._news.spike,
        )  # fmt: skip
        return Look(pulse, tuple(self._said), frozenset(self._wrong), workspace, "; ".join(self._why))

    @property
    def pace(self) -> float | None:
        """Seconds that a step takes: as it was seen, else as the log says."""
        return self._steps.seconds or self._news.step_time

    @property
    def patience(self) -> float:
        """Seconds without a line that are still nothing special."""
        if self.pace is None:
            return _STALL_UNPACED
        return patience(_STALL, (_STEPS, self.pace), (_GAPS, self._growth.gap))

    def _absent(self) -> None:
        names = ", ".join(one_line(str(r)) for r in self.roots)
        if self._seen is None:
            self._tell("waits", f"waiting for {names}: it is not there yet")
            return
        self._state = "gone"
        stays = "what was read of it stays, and it is looked for again"
        self._tell("gone", f"{names} is not there any more; {stays}", True)

    def _present(self, found: dict[str, Seen], now: float) -> Workspace | None:
        if self._state == "gone":
            self._tell(f"back {now}", "its folder is there again")
            self._once.discard("gone")
            self._state = "running"
        first = self._seen is None
        changes = compared(self._seen or {}, found)
        self._seen = found
        self._stale |= bool(changes)
        if not first:
            self._files_told(changes)
        self._lines.forget([*changes["gone"], *changes["rotated"]])
        changed = {n for what in ("new", "grown", "cut", "rotated") for n in changes[what]}
        written = [f for f in found.values() if f.name in changed and self._lines.of_interest(f)]
        if written:
            news = self._lines.read(written)
            self._by_lines |= news.step is not None
            self._take(news, now, first)
            newest = max(f.written for f in written)
            self._grew(min(newest, now) if first else now, first)
        if self._growth.at is None:
            self._tell("no log", "nothing to follow yet: no log and no metrics in it")
            return None
        if first:  # how it stands is told before the whole is read
            return None
        settled = self._settled(now)
        if self._whys_later and now >= self._later:
            self._why, self._whys_later = [*self._whys_later, *self._why], []
        due = self._why or (self._stale and now >= self._due)  # what is diagnosed must hold what it is diagnosed for
        return self._workspace(now, settled) if settled or due else None

    def _files_told(self, changes: dict[str, list[str]]) -> None:
        for kind, what in (
            ("cut", "cut short; it is read from its start"), ("rotated", "replaced by a new file"), ("gone", "gone")
        ):  # fmt: skip
            fresh = [n for n in changes[kind] if self._lines.follows(n) and f"{what} {n}" not in self._once]
            named = ", ".join(one_line(n) for n in fresh[:_NAMED])
            more = f" and {len(fresh) - _NAMED} more" if len(fresh) > _NAMED else ""
            if fresh:
                self._once.update(f"{what} {n}" for n in fresh)
                self._said.append(f"{named}{more}: {what}")

    def _grew(self, when: float, first: bool) -> None:
        """Lines came: the job lives, whatever was said of it."""
        if self._growth.at is not None and not first and self._state in _STOPPED:
            self._said.append("the job goes on: new lines")
            self._once -= {"over", "silent", "stuck"}
        long_ago = first and self.now() - when > _QUIET_UNPACED
        self._growth.came(0.0, when, old=first)
        self._judged, self._state = False, "waiting" if long_ago else "running"

    def _take(self, news: News, now: float, first: bool) -> None:
        """What the new lines say."""
        held = self._news
        if news.again is not None:
            self._begins_again(*news.again)
        if news.step is not None:
            self._step_to(news.step, now, first)
        for name in ("step", "loss", "step_time"):
            if (value := getattr(news, name)) is not None:
                setattr(held, name, value)
        if news.not_finite is not None and held.not_finite is None:
            held.not_finite = news.not_finite
            when = " at the latest" if first and math.isfinite(news.not_finite) else ""
            if "nan" not in self._once:
                self._whys_later, self._later = [f"the loss is not finite{at_step(news.not_finite)}"], now + self.shows
            self._tell("nan", f"the loss is not finite{at_step(news.not_finite)}{when}", True)
        if news.spike is not None and held.spike is None:
            held.spike = news.spike
            self._tell("spike", f"the loss jumps to {said(news.spike[1])} at step {said_step(news.spike[0])}", True)
        if news.traceback and not first:
            self._tell("traceback", f"{one_line(news.traceback)} has a traceback")

    def _step_to(self, step: float, now: float, first: bool) -> None:
        """The newest step: how long those since the last look took. A rank that lags behind says nothing about that."""
        if self._steps.at is not None and step < self._steps.value:
            self._behind += 1
            if self._behind < _LAGS:
                return
            self._steps = Pace()
        self._behind = 0
        if self._steps.at is None or step != self._steps.value:
            self._steps.came(step, now, old=first)

    def _begins_again(self, before: float, step: float) -> None:
        """A log goes on from an earlier step. Some count anew in each epoch: only after an end is all told again."""
        if self._state in _STOPPED or "again" not in self._once:
            self._once -= {"nan", "spike", "traceback"}
            self._news.not_finite = self._news.spike = None
        self._steps, self._behind = Pace(), 0
        went = f"the steps go on from {said_step(step)} after {said_step(before)}"
        self._tell("again", f"{went}: started or counted again")

    def _settled(self, now: float) -> bool:
        """Whether it is time to read how the logs end; says so where nothing has come for too long."""
        quiet = now - (self._growth.at or now)
        paced = self._growth.gaps or self.pace is not None
        least = patience(_QUIET, (3.0, self._growth.gap), (3.0, self.pace))
        if self._state in ("running", "silent") and quiet >= self.patience and self._judged:
            takes = f"a step takes {span(self.pace)}" if self.pace else "how long a step takes is not known"
            if quiet >= max(_TOO_LONG, 2 * self.patience):
                self._trouble("stuck", f"it hangs or was killed: no new line for {span(quiet)}; {takes}")
            elif self._state == "running":
                self._tell("silent", f"no new line for {span(quiet)}; {takes}")
            self._state = "silent"
        return not self._judged and quiet >= (least if paced else max(_QUIET_UNPACED, least))

    def _workspace(self, now: float, settled: bool) -> Workspace | None:
        """A fresh workspace with its curves read; where the logs are quiet, how they end."""
        began = time.perf_counter()
        try:
            workspace = Workspace(self.roots, good=self.good)
            self._take_measured(curves(workspace).series, now)
            if settled:
                self._judge(workspace)
        except (DoctorError, ParseError, OSError) as e:  # it went away or changed under our hands: the next look tells
            self._tell(f"unread {type(e).__name__}", f"it could not be read: {one_line(str(e))}")
            workspace = None
        self._stale = workspace is None
        self._reading = time.perf_counter() - began
        self._due = now + max(_FRESH, (SHARE + 1) * self._reading)
        return workspace

    def _take_measured(self, series: list[Series], now: float) -> None:
        """Step and loss of metrics that are not lines, such as TensorBoard's, where no line names any."""
        if not self._by_lines and (news := measured(series)) is not None:
            self._take(news, now, first=self._steps.at is None)

    def _judge(self, workspace: Workspace) -> None:
        """What the ends of the logs say, once lines stopped coming."""
        self._judged = True
        found, wrong = logpass(workspace), failures(workspace)
        ended = endings(workspace, found, wrong)
        if ended.state in ("died", "hung") and not goes_on(found, wrong):
            self._state = _OVER[ended.state]
            self._trouble("over", {"died": "the job died", "hung": "the job hangs"}[ended.state])
        elif ended.state == "finished":
            self._state = "finished"
            bad = self._news.not_finite
            lost = f"; its loss was not finite{at_step(bad)}" if bad is not None else ""
            more = lost or ("" if ended.healthy else "; its logs hold trouble: ask what went wrong")
            self._tell("over", f"the job came to its end{more}", bool(more))
        elif self._state == "waiting":
            self._state = "running"

    def _tell(self, key: str, text: str, wrong: bool = False) -> None:
        if key not in self._once:
            self._once.add(key)
            self._said.append(text)
            self._wrong += [text] if wrong else []

    def _trouble(self, key: str, text: str) -> None:
        """Worth a line and a diagnosis, once."""
        if key not in self._once:
            self._why, self._whys_later = [*self._whys_later, *self._why, text], []
        self._tell(key, text, True)


def at_step(step: float) -> str:
    """` at step 7`; nothing where it is not known."""
    return f" at step {said_step(step)}" if math.isfinite(step) else ""


# ----------
# Whether a run that has not begun yet is there: its folder, with a file in it.


def arrived(roots: list[Path]) -> bool:
    """Whether each of the named folders and files is there and none of the folders is empty. May hang as a disk may."""
    return all(_there(root) for root in roots)


def _there(root: Path) -> bool:
    try:
        if not stat.S_ISDIR(root.stat().st_mode):
            return True
        return next(iter(walk(root, [root.resolve()], lambda _name, _why: None)), None) is not None
    except (OSError, ValueError, RuntimeError):
        return False
