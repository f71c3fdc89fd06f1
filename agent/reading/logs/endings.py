"""How a run and each of its logs end: died, hung, finished, still running, or simply no more lines."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ..curves.curves import curves, line_at
from ..curves.series import Series
from ..run.clocks import earlier
from ..run.files import Line, RunFile
from ..scan.logpass import FileSummary, LogPass
from ..settings.settings import Settings, read_settings
from .attempts import Flow, body_of, finished_line, past_its_loop, restarts
from .failures import Failures, Note
from .job_record import JobRecord, last_records
from .tracebacks import Failure

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# Whether a log's last progress stands where the run was to end: its own counter, or the steps and epochs asked for.


_STEP = re.compile(
    r"(?i)\b(?:global[_ ]?|train(?:ing)?[_ ]?)?(?:step|iter|iteration)s?\b\s{0,2}[:=\[#(]{0,2}\s{0,6}(\d{1,9})"
    r"(?:\s{0,2}(?:/|of)\s{0,6}(\d{1,9}))?"
)
_EPOCH = re.compile(
    r"(?i)\bep(?:och)?\b[\s:=\[#(]{0,6}(\d{1,6})\]?(?:\s{0,2}(?:/|of)\s{0,6}(\d{1,6}))?"
    r"(?:.{0,4}\[\s{0,6}(\d{1,9})\s{0,2}/\s{0,6}(\d{1,9}))?"
)
_WITHIN = re.compile(r"(?i)\b(?:step|iter|iteration|batch)s?\b[\s:=\[#(]{0,6}\d{1,9}(?:\s{0,2}(?:/|of)\s{0,6}\d{1,9})?")
_OTHER = re.compile(
    r"(?i)(?<![a-z0-9_])(?:eval(?:uat\w{1,4})?|valid(?:at\w{1,4})?|val|test(?:ing)?)\b"
    r"(?!\s(?:loss|acc|ppl|perp|bpb|err|f1|score)|[\s:=]{1,3}\d{1,9}\.\d)"
)
_OPENS = re.compile(
    r"(?i)\b(?:saving|validating|evaluating|testing|uploading|exporting|merging|writing|validation|evaluation|"
    r"(?:begin|start|run)\w{0,4} (?:eval|valid|test|sav)\w{0,8})\b"
)
_CLOSES = re.compile(r"(?i)\b(?:saved|wrote|written|done|complete[d]?|finished|uploaded|exported)\b")
_OF_ALL = re.compile(r"(?<![\d/])(\d{1,9})/(\d{1,9})(?![\d/])")
_LOGGED = 0.03  # of the way, by which the last line that is logged may stand before the end
_FEWEST = 5  # steps; a shorter count is one of other things


def at_planned_end(body: str, settings: Settings, log: RunFile | None = None) -> bool:
    """Whether a line of progress is of the last step, or near the end of the last epoch, that was asked for."""
    if _OTHER.search(body):
        return False
    steps, epochs = _asked(settings, "max_steps", log), _asked(settings, "epochs", log)
    epoch, step = _EPOCH.search(body), _STEP.search(body)
    if epoch is None:
        return _reached(step, steps)
    number, count = int(epoch[1]), int(epoch[2] or epochs or 0)
    if count < 2 or number not in (count, count - 1) or (epoch[2] and number != count):
        # a count within an epoch that is not the last says nothing of the whole, the steps asked for do
        return step is not None and steps is not None and _near(int(step[1]), steps)
    if epoch[3]:
        return int(epoch[3]) >= 0.8 * int(epoch[4])
    return _reached(step, steps) if step or _WITHIN.search(body) else number == count or epoch[2] is None


def _last_from_nought(body: str, ws: Workspace, log: RunFile) -> bool:
    """Whether a line is of the last epoch and its last batch as a count from 0 has them: `Epoch 24/25, Batch 15/16`."""
    pairs = [(int(m[1]), int(m[2])) for m in _OF_ALL.finditer(body)]
    epoch = _EPOCH.search(body)
    if len(pairs) < 2 or epoch is None or not epoch[2] or _OTHER.search(body):
        return False
    if any(count < 2 or number < count - 1 for number, count in pairs[:2]):
        return False
    opening = next((m for line in ws.lines(log) if (m := _EPOCH.search(line.text)) and m[2] == epoch[2]), None)
    return opening is not None and int(opening[1]) == 0


def of_the_whole(body: str, texts: Iterable[str], settings: Settings, log: RunFile | None = None) -> bool:
    """Whether the counter of the log's last progress is one of the run: it never began anew, the epoch is the last.

    Args:
        texts: the lines of the log, in their order.
    """
    step = _STEP.search(body)
    total = int(step[2]) if step and step[2] else 0
    asked = int(_asked(settings, "epochs", log) or 0)
    highest, fell, first, last, count = 0, False, 1, None, 0
    for text in texts:
        if "tep" not in text and "iter" not in text and "po" not in text.lower():
            continue
        if _OTHER.search(text):
            continue
        for m in _STEP.finditer(text):
            if total and m[2] and int(m[2]) == total:
                fell = fell or int(m[1]) < highest - total / 2
                highest = max(highest, int(m[1]))
        if m := _EPOCH.search(text):
            first, last, count = min(first, int(m[1])), int(m[1]), int(m[2] or asked)
    if last is not None and count >= 2 and last < count - (first == 0):
        steps = _asked(settings, "max_steps", log)
        return step is not None and steps is not None and _near(int(step[1]), steps) and not fell
    # in the last epoch a count may have begun anew with each epoch
    return not fell or (last is not None and count >= 2)


def phase_opened(texts: Iterable[str]) -> bool:
    """Whether the lines after the last progress begin something (a save, a validation) and do not say that it ended."""
    opened = False
    for text in texts:
        opened = not _CLOSES.search(text) and (opened or _OPENS.search(text) is not None)
    return opened


def _near(number: int, count: float) -> bool:
    return count >= _FEWEST and (1 - _LOGGED) * count <= number <= count + 1


def _reached(step: re.Match[str] | None, asked: float | None) -> bool:
    if step is None:
        return False
    return _near(int(step[1]), float(step[2]) if step[2] else asked or 0.0)


def _asked(settings: Settings, name: str, log: RunFile | None) -> float | None:
    """What a log prints of itself, else the largest number that anything gives; a default where there is none."""
    found = [
        s for s in (*settings.used(name), *settings.asked(name))
        if isinstance(s.value, int | float) and s.value > 0 and not s.file.good
    ]  # fmt: skip
    found = [s for s in found if log is not None and s.file.name == log.name] or found
    return max((float(s.value) for s in found if not s.default or all(f.default for f in found)), default=None)


# ----------

State = Literal["died", "hung", "running", "finished", "unknown"]
FRESH = 600.0  # seconds since the last write within which a log counts as still being written
COUNTED = 256 << 20  # bytes of a log whose counters are followed from the start
_BEHIND = 40  # lines behind the last progress that are looked at
_DEADLY = ("exit", "killed", "signal")


@dataclass(frozen=True, slots=True)
class Ending:
    """How one log ends. `silent`: it stops in normal progress, with no error and no end."""

    file: RunFile
    state: State
    last: Line | None
    finished: Line | None = None
    silent: bool = False


@dataclass(slots=True)
class Endings:
    """How the run ends: its state, the line that decides it, and each log."""

    state: State = "unknown"
    files: list[Ending] = field(default_factory=list)
    decides: tuple[RunFile, Line] | None = None
    healthy: bool = False
    recovered: bool = False  # an attempt failed, and a later one reached the end


def endings(ws: Workspace, found: LogPass, wrong: Failures) -> Endings:
    """Judge every log file (captures and lists have no end) and the run as a whole; made once."""
    return ws.memo("endings", lambda: _judge(ws, found, wrong))


def _judge(ws: Workspace, found: LogPass, wrong: Failures) -> Endings:
    result = Endings()
    units: dict[str, list[Failure]] = defaultdict(list)
    notes: dict[str, list[Note]] = defaultdict(list)
    for unit in wrong.units:
        units[unit.file.name].append(unit)
    for note in wrong.notes:
        notes[note.file.name].append(note)
    for name, summary in found.files.items():
        if summary.file.role == "log" and not summary.file.good:
            ending = _ending(summary, units[name], notes[name])
            if ending.state == "unknown":
                ending = _reached_end(ws, summary, ending)
            result.files.append(ending)
    result.files = _telling(ws, result.files, found, wrong)
    records = last_records(ws)
    past = _past(result.files, found) | (_overtaken(result.files) if _ended_well(records) else set())
    result.state = _recorded(_state([f for f in result.files if f.file.name not in past], wrong), records)
    result.decides = _deciding(result, wrong)
    trouble = any(not u.cascade for u in wrong.units) or any(
        n.kind != "error" and n.value != "teardown" for n in wrong.notes
    )
    result.healthy = result.state == "finished" and not trouble
    again = bool(past) or any(restarts(s) for s in found.files.values() if s.file.role == "log")
    again = again or _ended_well(records)
    result.recovered = result.state == "finished" and bool(wrong.units) and again
    return result


def _reached_end(ws: Workspace, summary: FileSummary, ending: Ending) -> Ending:
    """The end of a log without a word for it: past the loop of its training, or at the step where it was to end."""
    trained, progress = _last_point(ws, summary), summary.last_progress
    for place in (p for p in (trained, progress) if p is not None):
        if (behind := _behind(ws, summary, place)) is not None:
            return Ending(ending.file, "finished", ending.last, behind)
    place = max((p for p in (trained, progress) if p is not None), key=lambda p: p.number, default=None)
    if place is None:
        return ending
    silent = ending.silent or (ending.last is not None and ending.last.number == place.number)
    if silent and _planned(ws, summary, place):
        return Ending(ending.file, "finished", ending.last, place)
    return replace(ending, silent=False) if ending.silent and _is_done(summary) else ending


def _behind(ws: Workspace, summary: FileSummary, place: Line) -> Line | None:
    """The line behind a place that the program printed once it was past the loop which printed the place."""
    h = summary.harvest
    after = h.tail[max(0, place.offset + len(place.data) - h.tail_offset) :].split(b"\n")
    bodies = [body_of(data, summary) for data in after[1 : _BEHIND + 1]]
    flow = ws.memo("flow", lambda: Flow(ws.ran))
    at = past_its_loop(ws.ran, flow, summary.file, body_of(place.data, summary), bodies)
    if at is None or phase_opened(bodies[at:]):
        return None
    offset = place.offset + len(place.data) + 1 + sum(len(x) + 1 for x in after[1 : at + 1])
    return Line(place.number + at + 1, offset, after[at + 1])


def _last_point(ws: Workspace, summary: FileSummary) -> Line | None:
    """The last line of a log that a curve has a point on."""
    own = ws.memo("series by file", lambda: _by_file(ws)).get(summary.file.name, [])
    own = [s for s in own if not s.metric.startswith("eval")] or own
    last = max(own, key=lambda s: int(s.offsets[-1]), default=None)
    return line_at(last, -1) if last is not None else None


def _by_file(ws: Workspace) -> dict[str, list[Series]]:
    found: dict[str, list[Series]] = defaultdict(list)
    for s in curves(ws).series:
        if s.known and len(s):
            found[s.file.name].append(s)
    return found


def _telling(ws: Workspace, files: list[Ending], found: LogPass, wrong: Failures) -> list[Ending]:
    """Ends that say something: not of files that count nothing and fail nowhere, nor of what another log repeats."""
    spoke = {u.file.name for u in wrong.units} | {n.file.name for n in wrong.notes}
    lived = {f.file.name for f in files if f.state != "unknown" or f.silent or found.files[f.file.name].last_progress}
    copies = {s.file.name for s in curves(ws).series if s.copy_of is not None and s.copy_of.file.role == "log"}
    kept = [f for f in files if f.file.name in spoke or (f.file.name in lived and not _is_cut_copy(f, copies))]
    return kept or files


def _is_cut_copy(ending: Ending, copies: set[str]) -> bool:
    """Whether a log repeats another one, and says less of the end."""
    return ending.state == "unknown" and ending.file.name in copies


def _ended_well(records: list[JobRecord]) -> bool:
    return bool(records) and all(r.over and r.code == 0 for r in records)


def _recorded(state: State, records: list[JobRecord]) -> State:
    """The state, with what a supervisor saw: an exit code says more than how a log sounds, except of what was raised.

    A command line can swallow a failure (`train.py || true`), so code 0 makes up for no traceback.
    """
    if any(r.hung for r in records):
        return "hung"
    if any(r.failed for r in records):
        return "died"
    if _ended_well(records) and state in ("unknown", "running"):
        return "finished"
    alive = any(not r.over and r.state == "running" for r in records)
    return "running" if alive and state in ("unknown", "finished") else state


def _planned(ws: Workspace, summary: FileSummary, place: Line) -> bool:
    """Whether the last progress is where the run was to end, by its line, by the log before and by what follows."""
    body, h, settings = body_of(place.data, summary), summary.harvest, read_settings(ws)
    if summary.file.size > COUNTED:
        return False
    if not at_planned_end(body, settings, summary.file) and not _last_from_nought(body, ws, summary.file):
        return False
    after = h.tail[max(0, place.offset + len(place.data) - h.tail_offset) :].decode(errors="replace")
    if phase_opened(after.split("\n")):
        return False
    return of_the_whole(body, (line.text for line in ws.lines(summary.file)), settings, summary.file)


def _past(files: list[Ending], found: LogPass) -> set[str]:
    """Logs of attempts that died before another one began that reached the end."""
    ended = [found.files[f.file.name] for f in files if f.state == "finished"]
    return {
        f.file.name
        for f in files
        if f.state in ("died", "hung")
        and any(
            s.file.run == f.file.run
            and s.file.variant == f.file.variant
            and earlier(found.files[f.file.name].last_stamp, s.first_stamp)
            for s in ended
        )
    }


def _overtaken(files: list[Ending]) -> set[str]:
    """Logs of earlier attempts than the last one; of a job that ended well what broke off there is past.

    A log that all attempts share is one of the last.
    """
    last = max((f.file.attempt or 0 for f in files), default=0)
    return {f.file.name for f in files if f.file.rank is not None and (f.file.attempt or 0) < last}


def _ending(summary: FileSummary, units: list[Failure], notes: list[Note]) -> Ending:
    file = summary.file
    finished = finished_line(summary, max((u.line.number for u in units), default=0))
    last = summary.last_line
    if finished is not None:
        return Ending(file, "finished", last, finished)
    if units or any(n.kind in _DEADLY for n in notes):
        hung = all(u.cascade not in (None, "peer_lost") for u in units) and any(map(_timed_out, notes))
        return Ending(file, "hung" if hung else "died", last)
    if any(map(_timed_out, notes)):
        return Ending(file, "hung", last)
    if _fresh(file):
        return Ending(file, "running", last)
    progress = summary.last_progress
    silent = not notes and progress is not None and last is not None and last.number - progress.number <= 3
    return Ending(file, "unknown", last, None, silent)


def _is_done(summary: FileSummary) -> bool:
    """Whether the last bar has come to its end, and a line behind it says that something is done."""
    last, progress = summary.last_line, summary.last_progress
    if last is None or progress is None or last.number <= progress.number:
        return False
    counts = _OF_ALL.findall(progress.text[-2000:])
    whole = bool(counts) and all(int(n) == int(total) > 0 for n, total in counts)
    return whole and _CLOSES.search(body_of(last.data, summary)) is not None


def _timed_out(note: Note) -> bool:
    """A watchdog that saw a collective time out; one that saw it fail tells of a death instead."""
    return note.value == "watchdog" and "time" in note.read.body.lower() and "exception:" not in note.read.body


def _fresh(file: RunFile) -> bool:
    try:
        return 0 <= time.time() - file.path.stat().st_mtime < FRESH and file.size > 1 << 16
    except OSError:
        return False


def _state(files: list[Ending], wrong: Failures) -> State:
    states = {f.state for f in files}
    if wrong.first is not None:
        return "finished" if "finished" in states and "died" not in states else "died"
    for state in ("hung", "died", "finished", "running"):
        if state in states:
            return state  # type: ignore[return-value]
    return "unknown"


def _deciding(result: Endings, wrong: Failures) -> tuple[RunFile, Line] | None:
    if result.state == "died" and wrong.first is not None:
        return wrong.first.file, wrong.first.line
    for end in result.files:
        if end.state == result.state:
            line = end.finished or end.last
            if line is not None:
                return end.file, line
    # what a supervisor saw is in no line: the last one of the last attempt stands for it
    known = [e for e in result.files if e.last is not None and result.state in ("died", "hung", "finished")]
    last = max(known, key=lambda e: e.file.attempt or 0, default=None)
    return (last.file, last.last) if last is not None and last.last is not None else None
