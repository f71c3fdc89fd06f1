"""One log line without what its surroundings put around it: ANSI, rank labels, logger headers, progress bars."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from ...core.deadline import check
from .clocks import Stamp, stamp_of
from .files import Line, RunFile


class Files(Protocol):
    """What is asked of a workspace here."""

    def by_role(self, *roles: str) -> list[RunFile]: ...
    def lines(self, file: RunFile) -> Iterator[Line]: ...


SHOWN = 8192  # characters of a line that are parsed

_ESCAPES = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[@-_]")
_LEVELS = {
    **dict.fromkeys(("I", "INFO", "NOTICE"), "info"),
    **dict.fromkeys(("W", "WARN", "WARNING"), "warning"),
    **dict.fromkeys(("E", "ERROR", "ERR"), "error"),
    **dict.fromkeys(("F", "C", "FATAL", "CRITICAL"), "fatal"),
    **dict.fromkeys(("D", "V", "DEBUG", "TRACE"), "debug"),
}
_LEVEL = r"(?P<level>DEBUG|TRACE|INFO|NOTICE|WARN(?:ING)?|ERROR|ERR|CRITICAL|FATAL)"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_DATE = r"\d{4}[-/]\d\d[-/]\d\d[T _]" + _TIME + r"(?:Z|[+-]\d\d:?\d\d)?"
# Every pattern takes off at most one blank behind it: what is indented behind a label stays indented.
_PREFIXES: tuple[re.Pattern[str], ...] = tuple(
    re.compile(p)
    for p in (
        r"\[(?:global_)?rank(?::| )?(?P<rank>\d{1,6})\]:? ?",
        r"\[(?:Rank|RANK|rank:)[ :=]?(?P<rank>\d{1,6})\]:? ?",
        r"\[default(?P<rank>\d{1,6})\]:? ?",
        r"\[\d+,(?P<rank>\d{1,6})\]<std(?:err|out)>:? ?",
        r"\((?=[^)\n]{0,80}(?:pid=|ip=|rank=)|raylet\)|autoscaler)(?P<actor>[A-Za-z_][\w.\-]*)(?:\[rank=(?P<rank>\d+)\])?"
        r"(?:,? rank=(?P<rank2>\d+))?(?:,? ?pid=(?P<pid>\d+))?"
        r"(?:, ?ip=(?P<host>[^)\s]+))?\) ?",
        r"\[?[IWEFVC]\d{3,4} " + _TIME + r"\s+(?:\d+\s+)?[\w./\-]+:\d+\] ?",
        r"\[?" + _DATE + r"(?: (?:DP\d+ ?|TP\d+ ?|PP\d+ ?|EP\d+ ?)+)?\]?(?=[\s\]|:,-]|$) ?",
        r"\[?" + _DATE + r"\]?\s+" + _LEVEL + r"\b\s+(?:[\w./\-]+(?::\d+)? -- ?)?",
        _LEVEL + r" \d\d-\d\d " + _TIME + r" (?:\[[^\]\s]+:\d+\] ?)?",
        r"[IWEFVCD] " + _TIME + r" [\w.\-]+\] ?",
        r"\[NeMo [IWED] " + _DATE + r" [^\]]+\] ?",
        r"\[" + _LEVEL + r"\] ?",
        r"\[" + _LEVEL + r"[|:][\w./\-]+(?::\d+)?\] ?(?:" + _DATE + r" )?(?:>> ?)?",
        r"\[[\w./\-]+\.py:\d+\] \((?P<rank>\d{1,4})/(?P<of>\d{1,4})\) ",
        r"\[[\w./\-]+\.(?:py|cpp|cc|cu|h):\d+(?::\w+)?\] ?",
        r"\[[\w./\-]+:\d+, rank=(?P<rank>\d+)\] ?",
        r"\[titan\] ?",
        r"[|:\-] (?:" + _LEVEL + r"|[\w.]{1,60}) (?=[|\-])",
        r"- (?=\S)|\| (?=\S)",
        _LEVEL + r"\s+(?=\[)",
        _LEVEL + r"(?::[\w.\-]+)?: {0,5}",
        r"\w{3} [ \d]\d " + _TIME + r" (?P<host>[\w.\-]+) [\w.\-/]+(?:\[\d+\])?: ",
        r"\[ *\d{1,9}\.\d{3,9}\] ",
        r"(?P<host>[A-Za-z][\w.\-]*):\d+:\d+ \[\d+\] ",
        r"\(?" + _TIME + r"\)?(?=[\s|]) ?",
        r"std(?:out|err) [FP] ",
    )
)
_LABEL = re.compile(r"(?P<rank>\d{1,5}): ?")
_HOST_LABEL = re.compile(r"(?P<host>[a-z][\w.\-]{1,60}): (?=\S)")
_INNER_RANK = re.compile(
    r"\[(?:Rank|rank|RANK)[ =:]?(\d{1,6})[\]/|]|, rank=(\d{1,6})\]|(?:^| )task (\d{1,6}): |\brank ?[:=] ?(\d{1,6})\b"
)
_TASK_HOST = re.compile(r"srun: error: (?P<host>[\w.\-]+): tasks? (?P<rank>\d+)")
_REPEATED = re.compile(r"\[repeated (\d{1,9})x across (?:cluster|all)[^\]]*\] ?(?:\(Ray deduplicates[^)]*\))?$")
_HEAD_LEVEL = re.compile(r"(?:^|[\s\[|(\-:])(?P<level>DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)(?=[\s\]|:)\-])")
_GLOG_LEVEL = re.compile(r"(?:^|\[|\s|:)([IWEFVC])(?:\d{3,4}| \d\d:\d\d:\d\d)")
_BAR = re.compile(r"\d+%\|[^|]*\||\b\d+/\d+ \[\d*:?\d+:\d\d<|\d+(?:\.\d+)?(?:it/s|s/it)\b|^\s*\d+it \[")


@dataclass(frozen=True, slots=True)
class Stripped:
    """A line and what its prefixes told. `body` is what signatures are matched against."""

    body: str
    rank: int | None = None
    host: str | None = None
    level: str | None = None
    source: str | None = None  # the actor or process that Ray, vLLM or SLURM names
    repeated: int = 1
    header: bool = False  # whether a logger's header was taken off
    labelled: bool = False  # whether a bare rank label was taken off


def without_escapes(data: bytes) -> bytes:
    """A line or block without colour and cursor sequences; newlines always stay."""
    return _ESCAPES.sub(b"", data) if b"\x1b" in data else data


def strip(text: str, labels: bool = False) -> Stripped:
    """Take prefixes off a line.

    Args:
        text: the line without its newline; escapes still in it are taken off.
        labels: whether this file labels its lines (`3: ...` of srun, `node1: ...` of pdsh).
    """
    if "\x1b" in text:
        text = _ESCAPES.sub(b"", text.encode(errors="replace")).decode(errors="replace")
    text = text[:SHOWN].rstrip("\r\n")
    told: dict[str, str] = {}
    at, header, labelled = 0, False, False
    if labels and (m := _LABEL.match(text) or _HOST_LABEL.match(text)):
        told |= {k: v for k, v in m.groupdict().items() if v}
        at, labelled = m.end(), True
    for _ in range(8):
        m = next((m for p in _PREFIXES if (m := p.match(text, at)) and m.end() > at), None)
        if m is None:
            break
        for k, v in m.groupdict().items():
            if v:
                told.setdefault(k, v)
        if not (m.groupdict().get("rank") or m.groupdict().get("actor")):
            header = True
        at = m.end()
    return _told(text, at, told, header, labelled)


def _told(text: str, at: int, told: dict[str, str], header: bool, labelled: bool) -> Stripped:
    body, repeated = text[at:], 1
    if (at := body.rfind("[repeated ")) >= 0 and (m := _REPEATED.match(body.rstrip(), at)):
        body, repeated = body[:at].rstrip(), int(m[1])
    rank = told.get("rank") or told.get("rank2")
    if rank is not None and told.get("of") and int(rank) >= int(told["of"]):
        rank = None  # `(8/8)` counts something else
    host = told.get("host")
    if rank is None and ("ank" in text[:200] or "[RANK" in text[:200] or "task " in text[:200]):
        if m := _TASK_HOST.search(text):
            rank, host = m["rank"], m["host"]
        elif m := _INNER_RANK.search(text[:120]):
            rank = next((g for g in m.groups()[:3] if g), None)
    level = _LEVELS.get(told.get("level", "")) or _level(text)
    pid = told.get("pid")
    source = f"{told['actor']}:{pid or ''}" if "actor" in told else None
    return Stripped(body, int(rank) if rank is not None else None, host, level, source, repeated, header, labelled)


def _level(text: str) -> str | None:
    head = text[:120]
    if m := _GLOG_LEVEL.search(head[:60]):
        return _LEVELS[m[1]]
    m = _HEAD_LEVEL.search(head)
    return _LEVELS[m["level"]] if m else None


def segments(data: bytes) -> list[tuple[int, bytes]]:
    """The parts of a line that a terminal would leave standing, as `(offset in the line, bytes)`.

    A carriage return overwrites: of progress bars only the last counts; what is no bar always stays.
    """
    if b"\r" not in data.rstrip(b"\r"):
        return [(0, data.rstrip(b"\r"))]
    parts, at = [], 0
    for part in data.split(b"\r"):
        if part.strip():
            parts.append((at, part))
        at += len(part) + 1
    last_bar = max((i for i, (_, p) in enumerate(parts) if is_bar(p)), default=-1)
    return [p for i, p in enumerate(parts) if i == last_bar or not is_bar(p[1])] or [(0, b"")]


def is_bar(data: bytes) -> bool:
    """Whether a piece of a line is a progress bar (tqdm and its kin)."""
    return bool(_BAR.search(data[:400].decode(errors="replace")))


def labelled(sample: bytes) -> bool:
    """Whether most lines of a sample start with a bare rank or host label."""
    lines = [line[:80].decode(errors="replace") for line in sample.split(b"\n")[:200] if line.strip()]
    if len(lines) < 3:
        return False
    ranks = sum(1 for line in lines if re.match(r"\d{1,5}: ", line))
    hosts = sum(1 for line in lines if re.match(r"(?=[a-z\-]*\d)[a-z][\w.\-]{1,60}: ", line))
    return max(ranks, hosts) > 0.6 * len(lines)


def stamps(lines: Iterator[str]) -> Iterator[Stamp | None]:
    """The time of each line; a line without a stamp inherits the last one."""
    last: Stamp | None = None
    for text in lines:
        last = stamp_of(text) or last
        yield last


# ----------
# Output of commands as lines.


def output_lines(text: str) -> Iterator[Line]:
    """Lines of what a command printed, numbered from 1; offsets count bytes of the decoded text."""
    offset = 0
    for number, line in enumerate(text.split("\n"), 1):
        data = line.encode(errors="replace")
        yield Line(number, offset, data)
        offset += len(data) + 1


def fact_of(line: Line) -> dict[str, Any]:
    """The JSON object that one of our own probes printed on a line; empty for anything else."""
    try:
        fact = json.loads(line.data)
    except ValueError:
        return {}
    return fact if isinstance(fact, dict) else {}


# ----------
# The first lines of the logs: what a training is told and counts stands there, before its steps.

LINES = 20_000  # of a log


def beginnings(ws: Files) -> Iterator[tuple[RunFile, Line]]:
    """The first lines of each log of the run at hand, with their file; a log of a good run is passed over."""
    for file in ws.by_role("log"):
        if not file.good:
            for line in islice(ws.lines(file), LINES):
                yield file, line


# ----------
# Log templates: lines without their numbers, names and times, so that two runs can be told apart by what they say.

TEMPLATES = 20_000  # of one run
FILE_BYTES = 24 << 20  # of one log that are looked at, from its start
RUN_BYTES = 96 << 20  # of all logs of one run
_LINE = 600  # bytes of a line that make its template
_VARIABLE = re.compile(
    r"""0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|(?:/[\w.@+\-]+){2,}/?|[-+]?\d[\d_.,:e+\-]*\w*|\b(?:nan|inf)\b"""
)
_SPACES = re.compile(r"\s+")


@dataclass(slots=True)
class Template:
    """A kind of line: how often it came, where first and last."""

    text: str
    file: RunFile
    first: Line
    last: Line
    count: int = 1


@dataclass(slots=True)
class Said:
    """Everything one run says. `whole` is false where a log was longer than is looked at, or kinds were too many."""

    templates: dict[str, Template]
    whole: bool = True


def template_of(line: bytes) -> str:
    """The kind of a line; empty for blank lines, progress bars and tables of numbers."""
    if is_bar(line):
        return ""
    body = strip(without_escapes(line[:_LINE]).decode(errors="replace")).body
    kind = _SPACES.sub(" ", _VARIABLE.sub("#", body)).strip()
    return kind if sum(c.isalpha() for c in kind) >= 6 else ""


def said(ws: Files, files: list[RunFile]) -> Said:
    """The kinds of lines in these logs, in the order in which they first came."""
    found, kinds, total = Said({}), {}, 0
    for file in files:
        for line in ws.lines(file):
            if line.offset > FILE_BYTES or total + line.offset > RUN_BYTES:
                found.whole = False
                break
            if not line.number & 1023:
                check()
            _take(found, kinds, file, line)
        total += min(file.size, FILE_BYTES)
    return found


def _take(found: Said, kinds: dict[bytes, str], file: RunFile, line: Line) -> None:
    wording = line.data[:_LINE].translate(None, b"0123456789")  # most lines of a log share theirs with an earlier one
    kind = kinds.get(wording)
    if kind is None:
        kind = template_of(line.data)
        if len(kinds) < 4 * TEMPLATES:
            kinds[wording] = kind
    if not kind:
        return
    held = found.templates.get(kind)
    if held is not None:
        held.count, held.last = held.count + 1, line
    elif len(found.templates) < TEMPLATES:
        found.templates[kind] = Template(kind, file, line, line)
    else:
        found.whole = False


# ----------
# Numbers of ranks in few words.


def spans(numbers: Iterable[int]) -> list[str]:
    """`0-3`, `7` for 0, 1, 2, 3, 7 in any order."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return [str(a) if a == b else f"{a}-{b}" for a, b in runs]


# ----------
# Positions of characters in a text as lines and columns.


class Positions:
    """From a character position to line (from 1) and column (from 0)."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def at(self, position: int) -> int:
        return bisect.bisect_right(self._starts, position)

    def column(self, position: int) -> int:
        return position - self._starts[self.at(position) - 1]

    def start(self, line: int) -> int:
        """Position of the first character of a line."""
        return self._starts[line - 1]

    def place(self, start: int, end: int, line: int) -> tuple[int, int]:
        """Column and width of a stretch, or (0, 0) when it does not stand within the line."""
        inside = self.at(start) == line == self.at(end)
        return (self.column(start), end - start) if inside and end > start else (0, 0)
