"""Everything that went wrong in a run's logs: failures as units, consequences, deaths, and which came first.

found = failures(ws)
found.first          # the initiating failure, or None
found.groups         # one event on many ranks is one group
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import TYPE_CHECKING

from .anchors import cascade_kind, is_harmless, is_progress, told_harmless
from .clocks import earlier, from_epoch
from .files import Line, RunFile
from .harvest import template
from .lines import strip
from .logpass import FileSummary, LogPass, logpass
from .tracebacks import Failure, Frame, Parser, Read, reads

if TYPE_CHECKING:
    from ..workspace import Workspace

WHOLE = 1 << 20  # bytes up to which a file with trouble in it is parsed from end to end
BEFORE, BEHIND = 1 << 11, 1 << 14  # bytes around a place of trouble that are parsed in larger files
FILE_BUDGET, RUN_BUDGET = 2 << 20, 12 << 20
NOTES = 400  # lines of one kind that are kept of one file
UNITS = 1500  # failures that are kept of one file

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
    r"(?:^|[\s:])Killed(?:\s+(?:python|torchrun|accelerate|bash|srun|\S+\.py|\S*python\S*)\b.*)?\.?$|oom[-_]kill"
    r"|OOM Killed|OOMKilled|Out of memory: Kill"
)
_ERRORISH = re.compile(
    r"(?i)(?:^|[\s\[(:])(?:fatal|error)s? ?[:!]|\bfatal\b|\bFAILED\b|NCCL WARN|\bpanicked at\b|\bnot enough memory\b"
)
_BLOCK = re.compile(r"^\s*(?P<key>time|host|rank|exitcode|error_file|traceback)\s*: (?P<value>.*)$")
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

    def noted(self, kind: str) -> list[Note]:
        return [n for n in self.notes if n.kind == kind]


def failures(ws: Workspace) -> Failures:
    """Read closely where the pass saw trouble; made once."""
    return ws.memo("failures", lambda: _make(ws, logpass(ws)))


def _make(ws: Workspace, found: LogPass) -> Failures:
    result, budget = Failures(), RUN_BUDGET
    for summary in found.files.values():
        if not summary.harvest.events or budget <= 0:
            continue
        parser = Parser(summary.file)
        kept: dict[str, int] = {}
        block: dict[str, Read] = {}
        for read in reads(_close_lines(ws, summary, min(budget, FILE_BUDGET)), summary.labels):
            budget -= len(read.line.data)
            inside = len(parser.failures) < UNITS and parser.feed(read)
            _block(block, read, summary.file, result)
            for note in _notes(read, summary.file, inside):
                kept[note.kind] = kept.get(note.kind, 0) + 1
                if kept[note.kind] <= NOTES:
                    result.notes.append(note)
        result.units += [u for u in parser.finish() if not summary.file.good]
    result.units += [u for f in ws.files if f.name.endswith("error.json") and not f.good for u in _error_json(ws, f)]
    _place_attempts(found, result)
    result.groups = _grouped(result.units)
    result.first, result.first_known = _first(result)
    return result


def _close_lines(ws: Workspace, summary: FileSummary, budget: int) -> Iterator[Line]:
    """The lines around trouble; all lines of a small file."""
    if summary.harvest.bytes <= min(WHOLE, budget):
        yield from ws.lines(summary.file)
        return
    spans = _spans(summary.anchors, budget)
    at = 0
    for line in _lines_from(ws, summary, spans):
        while at < len(spans) and line.offset > spans[at][1]:
            at += 1
        if at >= len(spans):
            return
        if line.offset >= spans[at][0] - BEFORE:
            yield line


def _spans(anchors: list[tuple[int, int]], budget: int) -> list[tuple[int, int]]:
    """Stretches of bytes around anchors, merged; of too much the first and the last."""
    spans: list[tuple[int, int]] = []
    for offset, _ in sorted(set(anchors)):
        if spans and offset <= spans[-1][1] + BEFORE:
            spans[-1] = (spans[-1][0], offset + BEHIND)
        else:
            spans.append((offset, offset + BEHIND))
    total = sum(b - a for a, b in spans)
    if total <= budget:
        return spans
    return _ends(spans, budget // 2)


def _ends(spans: list[tuple[int, int]], half: int) -> list[tuple[int, int]]:
    head, left = [], half
    for a, b in spans:
        head.append((a, min(b, a + left)))
        left -= b - a
        if left <= 0:
            break
    tail, left = [], half
    for a, b in reversed(spans):
        tail.append((max(a, b - left), b))
        left -= b - a
        if left <= 0:
            break
    return sorted(set(head + tail))


def _lines_from(ws: Workspace, summary: FileSummary, spans: list[tuple[int, int]]) -> Iterator[Line]:
    """Lines in and around the spans: by seeking in a plain file, by reading through a packed one."""
    from .windows import lines_around

    return lines_around(ws, summary.file, spans, dict(summary.anchors), BEFORE)


def _notes(read: Read, file: RunFile, inside: bool) -> Iterator[Note]:
    body = read.body
    shown = body[:2000]
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
    if (read.stripped.level in ("error", "fatal") or _ERRORISH.search(shown)) and not told_harmless(shown):
        yield Note("error", shown.strip()[:400], file, read)


def _block(block: dict[str, Read], read: Read, file: RunFile, result: Failures) -> None:
    """The launcher's summary block names rank, host, time and exit code of what it saw die first."""
    if "Root Cause (first observed failure)" in read.body:
        block.clear()
        block["open"] = read
        return
    if "open" not in block:
        return
    m = _BLOCK.match(read.body)
    if m is None:
        if read.body.startswith("=====") or read.line.number > block["open"].line.number + 20:
            block.clear()
        return
    block[m["key"]] = read
    if m["key"] == "traceback":
        result.units.append(_from_block(block, file))
        block.clear()


def _from_block(block: dict[str, Read], file: RunFile) -> Failure:
    def value(key: str) -> str:
        m = _BLOCK.match(block[key].body) if key in block else None
        return m["value"].strip() if m else ""

    read = block.get("exitcode") or block["traceback"]
    rank = re.match(r"\d+", value("rank"))
    code = re.match(r"-?\d+", value("exitcode"))
    signal = re.search(r"Signal \d+ \((SIG\w+)\)", value("traceback"))
    number = int(code[0]) if code else 0
    return Failure(
        file,
        "exception",
        read.line,
        "exit",
        f"exit code {number}" + (f" ({signal[1]})" if signal else ""),
        rank=int(rank[0]) if rank else None,
        host=value("host") or None,
        stamp=block["time"].stamp if "time" in block else read.stamp,
        cascade="launcher",
        start=block["open"].line,
    )


def _error_json(ws: Workspace, file: RunFile) -> list[Failure]:
    """torchelastic's error.json: message, call stack and time of one rank's exception."""
    line = next(ws.lines(file), None)
    try:
        data = json.loads(ws.text(file, 1 << 20))
        message = data["message"]
        text = message if isinstance(message, str) else message["message"]
        extra = {} if isinstance(message, str) else message.get("extraInfo", {})
        stamp = from_epoch(float(extra["timestamp"])) if "timestamp" in extra else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    if line is None:
        return []
    kind, _, rest = str(text).partition(": ")
    failure = Failure(file, "exception", line, kind, rest, file.rank, file.host, stamp=stamp, attempt=file.attempt)
    stack = str(extra.get("py_callstack", ""))
    for m in re.finditer(r'File "([^"]+)", line (\d+), in (\S+)\n\s+(.*)', stack):
        failure.frames.append(Frame(m[1], m[3], int(m[2]), line, m[4]))
    return [failure]


def _place_attempts(found: LogPass, result: Failures) -> None:
    for unit in result.units:
        summary = found.files.get(unit.file.name)
        if summary is not None and unit.attempt is None:
            unit.attempt = attempt_at(summary, unit.line.number)


def restarts(summary: FileSummary) -> list[tuple[Line, int]]:
    """Where new attempts begin in one log: the line, and the number of the attempt it begins (from 1)."""
    if summary.restarts is not None:
        return summary.restarts
    lived = next(_progress_lines(summary), None) if summary.harvest.restarts else None
    found: list[tuple[Line, int]] = []
    attempt, last = 1, -100
    for f in summary.harvest.restarts:
        if f.number - last > 6 and lived is not None and f.number > lived:
            said = re.search(r"attempt (\d{1,4})", f.stripped.body)
            attempt = int(said[1]) if said else attempt + 1
            found.append((Line(f.number, f.offset, f.data, f.cut), attempt))
        last = f.number
    summary.restarts = found
    return found


def _progress_lines(summary: FileSummary) -> Iterator[int]:
    for number, data in enumerate(summary.harvest.head.split(b"\n")[:2000], 1):
        if is_progress(strip(data[:400].decode(errors="replace"), summary.labels).body):
            yield number
            return


def attempt_at(summary: FileSummary, number: int) -> int | None:
    """The attempt that a line belongs to; None where the log holds only one."""
    begun = restarts(summary)
    if not begun:
        return None
    return next((attempt for line, attempt in reversed(begun) if line.number <= number), 1)


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
    unique = list({id(u): u for u in candidates}.values())
    if not unique:
        return None, True
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

    return sorted(unique, key=cmp_to_key(order))[0], known


def _only_ended(unit: Failure) -> bool:
    return unit.name in ("SystemExit", "KeyboardInterrupt", "StopIteration")


def _weight(unit: Failure) -> int:
    return 2 * (unit.kind == "python") + (unit.kind == "native") + bool(unit.frames)


def in_order(units: Iterable[Failure]) -> list[Failure]:
    """Failures by time where it can be compared, otherwise as they stand."""
    return sorted(units, key=cmp_to_key(lambda a, b: {True: -1, False: 1, None: 0}[earlier(a.stamp, b.stamp)]))
