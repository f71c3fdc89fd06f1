"""Everything that went wrong in a run's logs: failures as units, consequences, deaths, and which came first.

found = failures(ws)
found.first          # the initiating failure, or None
found.groups         # one event on many ranks is one group
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cmp_to_key
from typing import TYPE_CHECKING, Any

from ...core.own_files import KNOWLEDGE, read_table
from ..run.clocks import earlier
from ..run.files import RunFile
from ..scan.anchors import cascade_kind, is_harmless, is_progress, patterns, told_harmless
from ..scan.harvest import stated, template
from ..scan.library_notices import notice
from ..scan.logpass import LogPass, logpass
from ..scan.patterns import searcher
from ..scan.windows import close_lines
from .attempts import attempt_at, finished_line
from .tracebacks import Failure, Frame, Parser, Read, error_json, read_block, reads

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# Lines of trouble that are no failure of their own: consequences, exit codes, signals, kills, error lines.


_EXIT = re.compile(
    r"exit ?code *[:=]? *(?P<a>-?\d{1,5})|return code *[:=]? *(?P<b>-?\d{1,5})"
    r"|exit(?:ed)?(?: with)? (?:status|code) *[:=]? *(?P<c>-?\d{1,5})"
    r"|[Ee]xited with exit code (?P<d>\d{1,3})|ExitCode=(?P<e>\d{1,3}):(?P<f>\d{1,2})"
)
_SIGNAL = re.compile(
    r"\bSIG(?:KILL|SEGV|ABRT|BUS|ILL|FPE|TERM|INT|HUP|USR1|USR2|PIPE)\b|[Ss]ignal (?P<n>\d{1,2})\b"
    r"|Killed by signal (?P<m>\d{1,2})"
)
_KILLED = re.compile(
    r"(?:^|[\s:])Killed(?:\s+(?:python|torchrun|accelerate|bash|srun|\S+\.py|\S*python\S*)\b.*)?\.?$|oom[-_]kill(?!_disable|[\s:=]+\d)"
    r"|OOM Killed|OOMKilled|Out of memory: Kill"
)
_ERRORISH = re.compile(
    r"(?i)(?:^|[\s\[(:])(?:fatal|error)s? ?[:!]|\bfatal\b|\bFAILED\b|NCCL WARN|\bpanicked at\b"
    r"|command not found|can't open file|: \d+: \S+: not found$|^\S+: No such file|\bnot enough memory\b"
)
_NAMES = {
    9: "SIGKILL",
    11: "SIGSEGV",
    6: "SIGABRT",
    7: "SIGBUS",
    4: "SIGILL",
    8: "SIGFPE",
    15: "SIGTERM",
    2: "SIGINT",
    1: "SIGHUP",
    10: "SIGUSR1",
}


@dataclass(frozen=True, slots=True)
class Note:
    """A line of trouble that is no failure unit: kind is cascade, exit, killed or error."""

    kind: str
    value: str | int
    file: RunFile
    read: Read

    @property
    def rank(self) -> int | None:
        s = self.read.stripped
        return s.rank if s.rank is not None else self.file.rank


def notes(read: Read, file: RunFile, inside: bool) -> Iterator[Note]:
    """What a line tells beside failures; `inside`: it is part of one."""
    body = read.body
    shown = stated(body[:2000])
    if is_harmless(shown):
        return
    kind = cascade_kind(shown)
    if kind and not (inside and kind in ("worker_gone", "peer_lost")):
        yield Note("cascade", kind, file, read)
    if m := _EXIT.search(shown):
        code = next((g for g in m.groups()[:4] if g), None) or (f"-{m['f']}" if m["f"] and m["f"] != "0" else m["e"])
        if code and int(code):
            yield Note("exit", int(code), file, read)
    if (m := _SIGNAL.search(shown)) and "SIGTERM handler" not in shown:
        number = m["n"] or m["m"]
        name = _NAMES.get(int(number)) if number else m[0]
        if name:
            yield Note("signal", name, file, read)
    if _KILLED.search(shown) and "Killing" not in shown:
        yield Note("killed", "Killed", file, read)
    if inside or kind or shown[:1] in ("{", " ", "\t") or is_progress(shown):
        return
    if (read.stripped.level in ("error", "fatal") or _ERRORISH.search(shown)) and not _no_trouble(read, shown):
        yield Note("error", shown.strip()[:400], file, read)


def _no_trouble(read: Read, shown: str) -> bool:
    """Whether a playbook, or the source of a library, says that a line means nothing."""
    return told_harmless(shown) or notice(shown, read.stripped.level) is not None


# ----------
# Exceptions that a program caught, printed and went on from: an optional package that is not there.
#
# A script whose own import fails makes no step. So an import error of the modules' own level, printed before any
# progress of a log that has progress and then ends in another way, was caught. What is printed from inside functions is
# left alone: it may be the end, with buffered output behind it. What one process printed again and again before it came
# to its end was caught each time, wherever it was raised: nobody dies five times.

AGAIN = 5  # times
_IMPORT = frozenset({"ImportError", "ModuleNotFoundError"})


def survived(found: LogPass, units: list[Failure]) -> list[Failure]:
    """Of these failures, those that ended nothing."""
    caught = [u for u in units if _of_an_import(u) and _followed_by_progress(found, u)]
    kept = [u for u in caught if _another_end(found, u, units, caught)]
    return [*kept, *_raised_again(found, units)]


def _raised_again(found: LogPass, units: list[Failure]) -> list[Failure]:
    """The same exception of one attempt and rank, many times, in a log that then says that the end was reached."""
    alike: dict[tuple[object, ...], list[Failure]] = defaultdict(list)
    for u in units:
        if u.cascade is None and u.file.name in found.files:
            alike[u.file.name, u.attempt, u.rank, u.name, template(u.message[:160])].append(u)
    again = [us for us in alike.values() if len(us) >= AGAIN]
    return [u for us in again if _came_to_the_end(found, us) for u in us]


def _came_to_the_end(found: LogPass, alike: list[Failure]) -> bool:
    """A tracker says that it is through when a process dies as well: its word does not count."""
    summary = found.files[alike[0].file.name]
    line = finished_line(summary, max(u.line.number for u in alike))
    return line is not None and b"wandb" not in line.data


def _of_an_import(unit: Failure) -> bool:
    frames = [f for f in unit.frames if "importlib" not in f.path]
    return unit.name in _IMPORT and bool(frames) and all(f.function == "<module>" for f in frames)


def _followed_by_progress(found: LogPass, unit: Failure) -> bool:
    summary = found.files.get(unit.file.name)
    if summary is None or summary.last_progress is None or summary.last_progress.number < unit.line.number:
        return False
    # what another attempt did later says nothing about this one
    return attempt_at(summary, unit.line.number) == attempt_at(summary, summary.last_progress.number)


def _another_end(found: LogPass, unit: Failure, units: list[Failure], caught: list[Failure]) -> bool:
    """Whether the log ends in another way: by a later failure, or as planned."""
    later = [u for u in units if u.file is unit.file and u.line.number > unit.line.number and u.cascade is None]
    if any(not any(u is c for c in caught) for u in later):
        return True
    last = max([unit.line.number, *(u.line.number for u in later)])
    return finished_line(found.files[unit.file.name], last) is not None


# ----------

RUN_BUDGET, FILE_BUDGET = 12 << 20, 2 << 20  # bytes that are read closely
FILE_SHARE = 8 << 10  # bytes that every troubled file gets, however many there are
NOTES = 400  # lines of one kind that are kept of one file
_FAILURES_KILLED = re.compile(r"SIG(?:KILL|SEGV|BUS|ABRT)")
_CONNECTION = re.compile(r"(?i)connect|refused|timed? ?out|unreachable|no route|resol|not known")
_SERVICE = re.compile(
    r"(?i)urlopen|urllib|https?://|\bHTTPS?(?:Connection|Error)|requests\.exceptions|aiohttp|httpx|httpcore"
    r"|\b(?:wandb|mlflow|comet(?:_ml)?|neptune|clearml|trackio|telemetry|tracking (?:server|ur[il])|sentry|webhook)\b"
)
_CLIENT = re.compile(r"/(?:urllib3?|http|requests|httpx|httpcore|aiohttp|wandb|mlflow|smtplib)(?:/|\.py$)")
UNITS = 1500  # failures that are kept of one file


@dataclass(slots=True)
class Group:
    """One event: the same failure on any number of ranks, told by its earliest unit."""

    lead: Failure
    members: list[Failure] = field(default_factory=list)

    @property
    def ranks(self) -> list[int]:
        return sorted({m.rank for m in self.members if m.rank is not None})


@dataclass(slots=True)
class Failures:
    """All failures of a run. `notes` are in order of file and line."""

    units: list[Failure] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    first: Failure | None = None
    first_known: bool = True  # whether times allow to say which was first
    survived: list[Failure] = field(default_factory=list)  # caught: the program went on; not among `units`

    def is_survived(self, file: str, number: int) -> bool:
        """Whether a line stands in the print of an exception that was caught."""
        return any(s.file.name == file and (s.start or s.line).number <= number <= s.line.number for s in self.survived)

    def is_outside(self, file: str, number: int, body: str) -> bool:
        """Whether a line of a lost connection speaks of a server beside the run: a tracker, a hub, a web address."""
        if not _CONNECTION.search(body):
            return False
        around = [
            u for u in (*self.units, *self.survived)
            if u.file.name == file and (u.start or u.line).number <= number <= u.line.number
        ]  # fmt: skip
        return bool(_SERVICE.search(body)) or any(_CLIENT.search(f.path) for u in around for f in u.frames)

    def noted(self, kind: str) -> list[Note]:
        return [n for n in self.notes if n.kind == kind]


def failures(ws: Workspace) -> Failures:
    """Read closely where the pass saw trouble; made once."""
    return ws.memo("failures", lambda: _make(ws, logpass(ws)))


def _make(ws: Workspace, found: LogPass) -> Failures:
    result = Failures()
    troubled = [summary for summary in found.files.values() if summary.harvest.events]
    # A fair share each: of a thousand ranks that complain, the one that failed may be the last in the list.
    share = min(FILE_BUDGET, max(FILE_SHARE, RUN_BUDGET // max(1, len(troubled))))
    for summary in troubled:
        parser = Parser(summary.file)
        kept: dict[str, int] = {}
        block: dict[str, Read] = {}
        for read in reads(close_lines(ws, summary, share), summary.labels):
            inside = len(parser.failures) < UNITS and parser.feed(read)
            read_block(block, read, summary.file, result.units)
            for note in notes(read, summary.file, inside):
                kept[note.kind] = kept.get(note.kind, 0) + 1
                if kept[note.kind] <= NOTES:
                    result.notes.append(note)
        result.units += [u for u in parser.finish() if not summary.file.good]
    result.units += [u for f in ws.files if f.name.endswith("error.json") and not f.good for u in error_json(ws, f)]
    _place_attempts(found, result)
    result.survived = survived(found, result.units)
    result.units = [u for u in result.units if not any(u is s for s in result.survived)]
    result.groups = _grouped(result.units)
    result.first, result.first_known = _first(result)
    return result


def _place_attempts(found: LogPass, result: Failures) -> None:
    for unit in result.units:
        summary = found.files.get(unit.file.name)
        if summary is not None and unit.attempt is None:
            unit.attempt = attempt_at(summary, unit.line.number)


def _grouped(units: list[Failure]) -> list[Group]:
    """The same failure on many ranks is one event."""
    groups: dict[tuple[object, ...], Group] = {}
    for unit in units:
        key = (unit.name, template(unit.message[:160]), unit.attempt, unit.file.variant, unit.file.run)
        group = groups.setdefault(key, Group(unit))
        group.members.append(unit)
        if earlier(unit.stamp, group.lead.stamp) or (len(unit.frames) > len(group.lead.frames) == 0):
            group.lead = unit
    return list(groups.values())


def _first(result: Failures) -> tuple[Failure | None, bool]:
    """The initiating failure: no consequence, the origin of its chain, the smallest comparable time."""
    candidates = [u.origin for u in result.units if not u.origin.cascade]
    candidates = [u for u in candidates if not _only_ended(u)] or candidates
    candidates = [u for u in candidates if u.name or u.message] or candidates  # others are cut off, or mixed up
    unique = list({id(u): u for u in candidates}.values())
    if not unique:  # a process that was killed leaves no exception, only what its launcher saw
        killed = [u for u in result.units if u.name == "exit" and "SIG" in u.message]
        return (killed[0] if killed else None), True
    known = True

    def order(a: Failure, b: Failure) -> int:
        nonlocal known
        before = earlier(a.stamp, b.stamp)
        if before is None:
            if a.file.name != b.file.name and (a.stamp is None or b.stamp is None or a.stamp.kind != b.stamp.kind):
                known = False
            same = a.file.name == b.file.name
            return (a.line.number - b.line.number) if same else _weight(b) - _weight(a)
        return -1 if before else 1

    first = sorted(unique, key=cmp_to_key(order))[0]
    killed = next((u for u in result.units if u.name == "exit" and _FAILURES_KILLED.search(u.message)), None)
    if killed is not None and _is_before(killed, first, unique):
        return killed, True
    return first, known


def _is_before(killed: Failure, first: Failure, unique: list[Failure]) -> bool:
    """Whether the launcher had reported a kill before any exception, itself or its copy, stood in the same log."""
    here = [u for u in unique if u.file is killed.file]
    copied = any((u.name, u.message) == (first.name, first.message) for u in here)
    return copied and all(u.line.number > killed.line.number for u in here)


def _only_ended(unit: Failure) -> bool:
    return unit.name in ("SystemExit", "KeyboardInterrupt", "StopIteration")


def _weight(unit: Failure) -> int:
    return 2 * (unit.kind == "python") + (unit.kind == "native") + bool(unit.frames)


# ----------
# What a run was doing when it failed, from the frames of a traceback and `phases.yaml`.

_LIBRARY = re.compile(r"(?:site|dist)-packages/([A-Za-z_]\w*)|/lib/python3(?:\.\d+)?/(?!site-|dist-)([A-Za-z_]\w*)")
_FOREIGN = re.compile(
    r"site-packages|dist-packages|/lib/python\d|^<frozen|^<string>|<unknown>|<native>|^[\w.+\-]+\.(?:so|dylib)"
)


_ENVIRONMENT = re.compile(r"^<frozen os>$|/lib/python[\d.]+/os\.py$")
_TOLD_BY_PATH = frozenset({"collective", "checkpoint", "compile", "dataloader", "sync", "generate"})
_ENTRY = re.compile(r"(?:^|[/\\])(?:bin|Scripts)[/\\][\w.+-]+$")


@dataclass(frozen=True, slots=True)
class _Phase:
    name: str
    functions: frozenset[str]
    paths: tuple[str, ...]
    code: tuple[Any, ...]
    exceptions: frozenset[str]


@cache
def _phases() -> tuple[_Phase, ...]:
    raw = read_table(KNOWLEDGE / "phases.yaml")
    return tuple(
        _Phase(
            name,
            frozenset(map(str, row.get("function", ()))),
            tuple(row.get("path", ())),
            tuple(p for p in map(searcher, row.get("code", ())) if p is not None),
            frozenset(row.get("exception", ())),
        )
        for name, row in raw.items()
    )


def phases_of(failure: Failure) -> list[tuple[str, Frame | None]]:
    """The phases that a failure's frames tell, innermost first, each with the frame that tells it.

    A frame's function tells more than its code, and its code more than where its file lies.
    """
    told: dict[str, Frame | None] = {}
    for frame in reversed(failure.frames):
        for name in _of_frame(frame):
            told.setdefault(name, frame)
    if failure.name:
        for phase in _phases():
            if failure.name in phase.exceptions:
                told.setdefault(phase.name, None)
    return list(told.items())


def _of_frame(frame: Frame) -> Iterator[str]:
    if _ENVIRONMENT.search(frame.path) or _CLIENT.search(frame.path):
        return  # a variable that is looked up is no record of a data set, a call to a web server no collective
    function = frame.function.rpartition(".")[2]
    for phase in _phases():
        if function in phase.functions:
            yield phase.name
            return
    for phase in _phases():
        if any(p.search(frame.code) for p in phase.code):
            yield phase.name
            return
    path = frame.path.replace("\\", "/")
    for phase in _phases():
        if any(part in path for part in phase.paths):
            yield phase.name
            return


def library_of(failure: Failure) -> tuple[str, Frame] | None:
    """The package of the innermost frame that lies in a library."""
    for frame in reversed(failure.frames):
        if m := _LIBRARY.search(frame.path):
            return (m[1] or m[2]), frame
    return None


def user_frame(failure: Failure) -> Frame | None:
    """The innermost frame in the user's own code."""
    return next((f for f in reversed(failure.frames) if not (_FOREIGN.search(f.path) or _is_entry(f))), None)


def _is_entry(frame: Frame) -> bool:
    """Whether a frame is the console script that an installed package puts into bin/."""
    return bool(_ENTRY.search(frame.path)) and frame.code.startswith(
        ("sys.exit(", "raise SystemExit(", "load_entry_point(")
    )


def stood_at(frames: Sequence[Frame]) -> tuple[str, Frame] | None:
    """What a process was in when somebody ended it by hand, and the frame that tells it; None where no frame does.

    Args:
        frames: of the traceback that the interrupt left, from the outermost to the innermost.
    """
    for frame in reversed(frames):
        shown = f"{frame.function} ({frame.path}:{frame.number})"
        for name, pattern in patterns("stacks"):
            if name in _TOLD_BY_PATH and pattern.search(shown):
                return name, frame
    return None
