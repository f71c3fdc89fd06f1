"""An alarm as it is told, and what keeps one event from being told for every file and rank that shows it."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal

from ...safety.fences import one_line
from ...safety.redact import Redactor

# ----------
# Every kind of alarm: how grave it is, what it stands on, what to do next; and the bounds behind them, as data.


Severity = Literal["notice", "alarm"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. `stands_on` is what the documents say of it; `next` the step for whoever is woken by it."""

    name: str
    severity: Severity
    stands_on: str
    next: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a detector draws its line. Counts are points of one curve as it is logged, not steps of the optimizer."""

    recovered: int = 20  # sound points in a row after which the same kind may be told again
    first: int = 8  # points that say at which level a loss began
    warm_up: int = 50  # points before which no spike is told
    spike_ratio: float = 3.0  # of the median: one point as high as this is a spike
    spike_twice: float = 1.3  # two in a row as high as this
    spike_sigmas: float = 12.0  # and so many usual distances from the median
    spike_ratios: float = 6.0  # and so many usual ratios: losses of small numbers are noisy by factors
    share: float = 0.1  # of the first level: how much a loss must rise at all to matter
    diverged_swing: float = 4.0  # and by so many usual distances
    block: int = 8  # points whose median is one level of a loss
    diverged: float = 0.3  # above the best level
    diverged_noise: float = 5.0  # of the usual distance, relative to the level: a noisy loss must rise by more
    plateau_blocks: int = 32  # levels that are flat together
    plateau_level: float = 0.5  # of the first level: below it a flat loss has learned
    decayed: float = 0.3  # of the highest learning rate: below it a flat loss is the end of a schedule
    grown: float = 0.1  # of memory, all along the window
    grown_bytes: float = 64e6
    floor: float = 1.0  # loss scale
    skipped: int = 24  # skipped steps in a row; a scale that starts at 2**32 takes up to 20 to settle
    stall: float = 300.0  # seconds without a new step that are never told
    stall_times: float = 10.0  # usual intervals between two steps seen
    rank_stall: float = 60.0
    slower: float = 1.5  # of the median of the ranks
    lags: int = 5  # times that a rank wrote and was behind
    disk_share: float = 0.05  # free
    disk_hours: float = 1.0
    disk_every: float = 5.0  # seconds
    disk_span: float = 60.0  # seconds over which filling is measured at least
    shrunk: float = 0.7  # of the checkpoints before
    settled: float = 30.0  # seconds after which a checkpoint that does not change is whole
    overdue: float = 3.0  # usual intervals between checkpoints
    caught: float = 3.0  # seconds without progress after which an error line was not survived
    over: float = 30.0  # seconds of silence after which a line that says the end is believed
    unreachable: float = 60.0  # seconds that a look may take


LIMITS = Limits()

KINDS: dict[str, Kind] = {
    k.name: k
    for k in (
        Kind("loss_nan", "alarm", "a training loss that is nan or inf", "stop it: what follows is lost; `doctor ask`"),
        Kind("grad_nan", "alarm", "a gradient norm that is nan or inf; with a loss scaler only when it stays so",
             "look at the loss scale and at the batch of this step"),
        Kind("loss_spike", "alarm", "one loss at 3 times the median, or two in a row at 1.3 times, and 12 usual "
             "distances from it; not in the first 50 points",
             "see whether it comes back, else go back to a checkpoint"),
        Kind("divergence", "alarm", "the level of the loss rises, 30 % above its best",
             "go back to the best checkpoint, with a lower learning rate"),
        Kind("plateau", "notice", "a loss that is flat over 256 points, far from the end of its schedule",
             "check the learning rate, the data order and what is frozen"),
        Kind("stall", "alarm", "no new step for 10 times the usual interval, and for 300 s (`--stall`)",
             "take stacks of all ranks before you kill it: py-spy dump --pid PID"),
        Kind("rank_silent", "alarm", "one rank writes nothing while the others go on",
             "look at its node: dmesg, nvidia-smi, py-spy"),
        Kind("straggler", "alarm", "one rank is behind each time it writes, or its steps take 1.5 times the others'",
             "compare its node with the others: clocks, temperature, links"),
        Kind("memory_growth", "alarm", "memory that grows all along 128 points (or of the process given by --pid)",
             "find what is kept from step to step: losses, graphs, caches, workers"),
        Kind("disk_filling", "alarm", "less than 5 % free, or full within an hour at the rate measured",
             "make room or keep fewer checkpoints before the next save"),
        Kind("xid", "alarm", "an Xid line of the NVIDIA driver in a log or in this machine's kernel log",
             "do what `doctor ask` says of this code; drain the node where it says so"),
        Kind("checkpoint_failed", "alarm", "a line that says a save failed",
             "make the next save succeed: room, rights"),
        Kind("checkpoint_small", "alarm", "a checkpoint much smaller than those before, or with shards missing",
             "check it: doctor tool verify-checkpoint PATH; keep the one before"),
        Kind("checkpoint_overdue", "alarm", "no checkpoint for 3 times the interval that was regular",
             "see whether the save hangs or fails; a crash now loses more than usual"),
        Kind("scale_floor", "alarm", "a loss scale at its floor", "use bf16, or find what overflows"),
        Kind("steps_skipped", "alarm", "24 steps in a row skipped for overflow, or skips counted at 5 reports in a row",
             "use bf16, or find what overflows"),
        Kind("traceback", "alarm", "a traceback that no progress follows; a notice where the run goes on",
             "`doctor ask` reads it together with the other ranks"),
        Kind("fatal", "alarm", "a kill, an exit code, a collective's timeout or a launcher's report, and no progress "
             "after it", "`doctor ask` finds which rank failed first"),
        Kind("run_ended", "notice", "a line that says the end was reached and silence after it; an alarm where it "
             "ended badly", "doctor triage DIR"),
        Kind("unreachable", "alarm", "the folder does not answer for 60 s",
             "look at the mount: the job hangs on it too"),
        Kind("verdict", "notice", "with --diagnose: what the diagnosis of an alarm says", "read the report it names"),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """What a detector found; who follows the file adds where.

    Attributes:
        value: what was measured; None where the finding is a line.
        usual: what is usual, in words.
        severity: where it differs from the kind's.
        again: told before, and recovered since.
    """

    kind: str
    text: str
    value: float | None = None
    usual: str = ""
    severity: Severity | None = None
    again: bool = False
    step: float | None = None
    rank: int | None = None
    file: str = ""
    line: int | None = None


class Told:
    """What was told of one thing: once, and again only after it was over."""

    __slots__ = ("_ever", "_now")

    def __init__(self) -> None:
        self._now: set[str] = set()
        self._ever: set[str] = set()

    def first(self, kind: str) -> bool:
        """Whether it is to be told now; it is from then on."""
        if kind in self._now:
            return False
        self._now.add(kind)
        return True

    def tell(self, found: Found, key: str = "") -> Iterator[Found]:
        """A finding of that kind (or `key`), where it is to be told now: with whether it was before."""
        if self.first(key or found.kind):
            yield replace(found, again=(key or found.kind) in self._ever)
            self._ever.add(key or found.kind)

    def over(self, kind: str) -> None:
        """It recovered."""
        self._now.discard(kind)

    def holds(self, kind: str) -> bool:
        """Whether it was told and is not over."""
        return kind in self._now


# ----------

_REMEMBERED = 256  # alarms that a new one may be an echo of
_NEAR = 0.02  # of the step: so far apart two files may number the same event
_DIGITS = re.compile(r"\d+")
_ONE_EVENT = frozenset(
    ("loss_nan", "grad_nan", "loss_spike", "divergence", "plateau", "memory_growth", "scale_floor", "steps_skipped",
     "checkpoint_failed")
)  # fmt: skip
_BY_TEXT = frozenset(("traceback", "fatal", "xid"))
_SHOWN = 400  # characters of a text


@dataclass(frozen=True, slots=True)
class Alarm:
    """One line of the output. Fields as `--json` has them; see docs/watch.md.

    Attributes:
        also: on how many more ranks or files the same was seen at that look.
        earlier: what it stands on was there when the watch began.
    """

    time: str
    severity: Severity
    kind: str
    step: float | None
    rank: int | None
    file: str
    line: int | None
    value: float | None
    usual: str
    text: str
    run: str
    again: bool = False
    earlier: bool = False
    also: int = 0

    def plain(self) -> dict[str, Any]:
        """As plain data that JSON can say: nan and inf as text."""
        data = asdict(self)
        if self.value is not None and not abs(self.value) < float("inf"):
            data["value"] = str(self.value)
        return data


class Voice:
    """Makes alarms of findings: one for each event, however many files and ranks show it."""

    def __init__(self, run: str, kinds: frozenset[str]) -> None:
        self._run, self._kinds = run, kinds
        self._said: deque[Found] = deque(maxlen=_REMEMBERED)
        self._redactor = Redactor()

    def say(self, found: Iterable[tuple[Found, bool]]) -> list[Alarm]:
        """The alarms of one look, grave ones first; each finding comes with whether it is of before the watch."""
        fresh: list[tuple[Found, bool, int]] = []
        for one, earlier in found:
            if one.kind not in self._kinds:
                continue
            at = next((i for i, (held, _, _) in enumerate(fresh) if _same_event(held, one)), None)
            if at is not None:
                held, old, also = fresh[at]
                fresh[at] = (held, old, also + 1)
            elif not any(_same_event(held, one) for held in self._said):
                fresh.append((one, earlier, 0))
            self._said.append(one)
        alarms = [self._alarm(*f) for f in fresh]
        return sorted(alarms, key=lambda a: a.severity != "alarm")

    def _alarm(self, found: Found, earlier: bool, also: int) -> Alarm:
        text = self._redactor.redact(found.text)[:_SHOWN]
        if also:
            text += f" (and {also} more of the same)"
        return Alarm(
            datetime.now().astimezone().isoformat(timespec="seconds"), found.severity or KINDS[found.kind].severity,
            found.kind, found.step, found.rank, found.file, found.line, found.value, found.usual, text, self._run,
            found.again, earlier, also,
        )  # fmt: skip


def _same_event(a: Found, b: Found) -> bool:
    """Whether two findings show one event: elsewhere, near the same step. At one place each stands for itself."""
    if a.kind != b.kind or (a.severity != b.severity and b.severity is None):
        return False
    if (a.file, a.rank) == (b.file, b.rank):
        return a.kind in _BY_TEXT and _worded(a) == _worded(b) and a.line != b.line and a.kind != "xid"
    if a.kind in _BY_TEXT:
        return _worded(a) == _worded(b)
    if a.kind not in _ONE_EVENT:
        return False
    if a.step is None or b.step is None:
        return True
    return abs(a.step - b.step) <= max(2.0, _NEAR * max(abs(a.step), abs(b.step)))


def _worded(found: Found) -> str:
    return _DIGITS.sub("", found.text)[:120] if found.kind != "xid" else found.text[:160]


def placed(found: Found, **where: Any) -> Found:
    """The same finding with what it does not say itself of where it stands."""
    return replace(found, **{k: v for k, v in where.items() if getattr(found, k) in (None, "") and v is not None})


# ----------
# An alarm in words: one line for people, one object for programs.

_WIDE = 18


def line_of(alarm: Alarm, named: bool) -> str:
    """`18:03:12 alarm  loss_nan  rank 3  step 4012  loss is nan (train.log:812)`; `named`: with the run it is of."""
    grave = "earlier" if alarm.earlier else alarm.severity
    where = [f"rank {alarm.rank}"] if alarm.rank is not None else []
    where += [f"step {alarm.step:.12g}"] if alarm.step is not None else []
    place = alarm.file + (f":{alarm.line}" if alarm.line is not None else "")
    parts = [f"{alarm.time[11:19]} {grave:<7} {alarm.kind:<{_WIDE}}", *where]
    parts.append(alarm.text + (f"; usual: {alarm.usual}" if alarm.usual else "") + (f" ({place})" if place else ""))
    if alarm.again:
        parts.append("again")
    if named:
        parts.insert(1, alarm.run)
    return one_line("  ".join(parts))


def advice_of(alarm: Alarm) -> str:
    """What to do next, for the first alarm of its kind."""
    return f"{'':>9}-> {KINDS[alarm.kind].next}"


def json_of(alarm: Alarm) -> str:
    """The object of `--json`: ASCII, on one line."""
    return json.dumps(alarm.plain(), allow_nan=False)


def summary_of(counts: Counter[tuple[str, str]]) -> str:
    """How it went."""
    alarms = sum(n for (_, severity), n in counts.items() if severity == "alarm")
    notices = sum(counts.values()) - alarms
    kinds = ", ".join(sorted({kind for kind, severity in counts if severity == "alarm"}))
    told = f"{alarms} alarm{'s' if alarms != 1 else ''}" + (f" ({kinds})" if kinds else "")
    return f"{told}, {notices} notice{'s' if notices != 1 else ''}"
