"""What a run was asked for and, by its own account, did not do: epochs that never came, a warm-up that never was."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..curves.curves import curves, line_at
from ..run.files import Line, RunFile
from ..run.lines import beginnings
from ..scan.logpass import logpass
from ..settings.settings import Setting, read_settings
from .failures import failures
from .tracebacks import Failure

if TYPE_CHECKING:
    from ..run.workspace import Workspace

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


# ----------
# Time limits that somebody set, against the limits that errors say were in force.
#
# A variable that never reaches the process (a worker that another daemon starts, a step with its own environment)
# leaves no trace but this: the message names another number than the one that was set.

_LIMIT = re.compile(r"(?i)time_?-?out|deadline|max_?wait|wait_?time|grace")
_TOLD = re.compile(
    r"(?i)\b(?:in|within|after|for|of|exceeded|waited|timeout[ =:]{1,3})\s?\(?(?P<n>\d{1,7}(?:\.\d+)?)\s?"
    r"(?P<unit>ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b"
)
_VALUE = re.compile(r"(?P<n>\d{1,9}(?:\.\d+)?)\s?(?P<unit>ms|s|sec|m|min|h)?")
_SECONDS = {"ms": 0.001, "mi": 60.0, "m": 60.0, "h": 3600.0, "s": 1.0}
# Words of names and sentences that say nothing about whose limit it is.
_COMMON = frozenset({
    "timeout", "time", "out", "in", "sec", "secs", "seconds", "ms", "min", "minutes", "max", "wait", "limit",
    "deadline", "default", "the", "to", "of", "with", "for", "and", "not", "python", "lib", "site", "packages",
    "init", "main", "utils", "util", "run", "error", "runtime", "py", "data", "opt", "home", "get", "set", "is",
    "was", "after", "within", "train", "training", "trainer", "src", "core", "job", "start", "grace", "period",
    "torch", "nccl", "distributed", "process", "group",
})  # fmt: skip
SHARED, NEAR = 2, 0.03  # words in common; an error comes a little after its limit
FRAMES = 4


@dataclass(frozen=True, slots=True)
class NotApplied:
    """A limit that was set and the message that names another one."""

    setting: Setting
    asked: str
    told: str
    failure: Failure


def times_not_applied(ws: Workspace) -> Iterator[NotApplied]:
    """Each limit that was set, whose name shares its words with a failure that tells of another limit."""
    asked = [s for s in read_settings(ws).all if not s.used and not s.default and _LIMIT.search(s.key)]
    values = [(s, seconds) for s in asked if (seconds := _asked(s.value))]
    for group in failures(ws).groups:
        failure = group.lead
        told = {round(_seconds(m["n"], m["unit"]), 3): m[0] for m in _TOLD.finditer(failure.message[:2000])}
        if not told:
            continue
        words = _words(
            f"{failure.message[:2000]} " + " ".join(f"{f.path} {f.function}" for f in failure.frames[-FRAMES:])
        )
        for setting, possible in values:
            own = _words(setting.key) - _COMMON
            if len(own & words) >= SHARED and not any(0 <= t - p <= NEAR * p for t in told for p in possible):
                yield NotApplied(setting, f"{setting.key} = {setting.value}", next(iter(told.values())), failure)


def _asked(value: object) -> set[float]:
    """The seconds a value may mean: without a unit it can be seconds, milliseconds or minutes."""
    m = _VALUE.fullmatch(str(value).strip().strip("\"'"))
    if m is None:
        return set()
    if m["unit"]:
        return {round(_seconds(m["n"], m["unit"]), 3)}
    n = float(m["n"])
    return {n, round(n / 1000, 3), n * 60} if n else set()


def _seconds(number: str, unit: str) -> float:
    unit = unit.lower()
    return float(number) * _SECONDS["ms" if unit.startswith(("ms", "milli")) else unit[:1]]


def _words(text: str) -> set[str]:
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return {w.lower() for w in re.split(r"[^A-Za-z]+", split) if len(w) > 1}


# ----------
# Limits that the run's own scripts put on it: a command that ends it after a time, a loop that kills what is quiet.

MOST = 256 << 10  # bytes of a script that are read
SAID_BEFORE = 6  # lines above a kill in which the script says what it is about to do
TIMEOUT = re.compile(
    r"(?:^|[\s;&|(`\"'/])timeout\s+(?:(?:-[sk]|--signal|--kill-after)[ =]?\s*\S+\s+|-{1,2}[\w-]+(?:=\S+)?\s+)*[\"']?"
    r"(?P<limit>\$\{?\w+\}?|\d+(?:\.\d+)?[smhd]?)[\"']?\s+(?P<command>\S.*)$"
)
LAUNCHES = re.compile(
    r"python|torchrun|accelerate|deepspeed|srun|mpirun|composer|\.py\b|\.sh\b|\$[{(]?\w*(?:cmd|command)", re.I
)
ENDED_124 = re.compile(r"(?i)(?:status|code|rc|exit\w*|with|returned|ended)\W{0,4}(?:status|code)?\W{0,3}\b124\b(?!\w)")
KILLS = re.compile(
    r"(?:^|[\s;&|(])(?:kill|pkill|killall)\s+(?!-0\b)\S|\bscancel\s+\S|os\.kill(?:pg)?\(|\.(?:kill|terminate|send_signal)\(|"
    r"kubectl delete pod"
)
TRIED = re.compile(r"kill\s+-0\b|,\s*0\s*\)")  # looks whether a process is there
SAYS = re.compile(
    r"\b(?:echo|printf|logger|print|log(?:ger|ging)?\.\w+)\b[^\"']{0,20}(?P<q>[\"'])(?P<text>.+?)(?P=q)\s*\)?\s*(?:>|$)"
)
FILLED = re.compile(r"\$\([^()]*(?:\([^()]*\)[^()]*)*\)|\$\{[^}]*\}|\$\w+|\{[^{}]*\}|%[-\d.]*[sdf]|\\[nt]")
LOOPS = re.compile(r"(?m)^\s*(?:while|until|for)\b")
LEAST = 8  # letters of a sentence that tell it from others


@dataclass(frozen=True, slots=True)
class Ended:
    """What a script of the run did to it: the line of a log that tells, and the line of the script that did it."""

    what: str
    log: tuple[RunFile, Line]
    script: tuple[RunFile, Line]


def timeouts(ws: Workspace) -> Iterator[Ended]:
    """A status of 124 beside a launch under `timeout`: the limit ran out."""
    told = next(_log_lines(ws, ENDED_124), None)
    if told is None:
        return
    for file, lines in _scripts(ws):
        for line in lines:
            m = TIMEOUT.search(line.text)
            if m and not line.text.lstrip().startswith("#") and LAUNCHES.search(m["command"]):
                yield Ended(f"timeout {m['limit']}", told, (file, line))
                return


def watchers(ws: Workspace) -> Iterator[Ended]:
    """A loop that kills, and in a log the very sentence that it says before."""
    for file, lines in _scripts(ws):
        text = "\n".join(x.text for x in lines)
        if not (LOOPS.search(text) and "sleep" in text):
            continue
        for i, line in enumerate(lines):
            if line.text.lstrip().startswith(("#", "trap ")) or not KILLS.search(line.text) or TRIED.search(line.text):
                continue
            for said in lines[max(0, i - SAID_BEFORE) : i + 1]:
                pattern = _sentence(said.text)
                told = next(_log_lines(ws, pattern), None) if pattern else None
                if told is not None:
                    yield Ended(line.text.strip()[:120], told, (file, line))
                    return


def _sentence(text: str) -> re.Pattern[str] | None:
    """What a line of a script prints, with anything where values are filled in; None where it says too little."""
    m = SAYS.search(text)
    if m is None:
        return None
    fixed = FILLED.split(m["text"])
    if sum(c.isalpha() for part in fixed for c in part) < LEAST:
        return None
    return re.compile(".{0,80}".join(re.escape(part) for part in fixed))


def _scripts(ws: Workspace) -> Iterator[tuple[RunFile, list[Line]]]:
    for file in ws.by_role("code", "config", "other"):
        if (
            file.path.suffix in (".sh", ".bash", ".py", ".sbatch", ".slurm", "")
            and 0 < file.size <= MOST
            and not file.good
        ):
            yield file, list(ws.lines(file))


def _log_lines(ws: Workspace, pattern: re.Pattern[str]) -> Iterator[tuple[RunFile, Line]]:
    """Lines at the end of the logs that match, last first."""
    for summary in logpass(ws).files.values():
        h = summary.harvest
        if summary.file.role != "log" or summary.file.good or not pattern.search(h.tail.decode(errors="replace")):
            continue
        rows = h.tail.split(b"\n")
        end = h.tail_offset + len(h.tail)
        for back, data in enumerate(reversed(rows)):
            begin = end - len(data)
            if pattern.search(data[:2000].decode(errors="replace")):
                yield summary.file, Line(h.tail_line + len(rows) - back, begin, data)
            end = begin - 1
