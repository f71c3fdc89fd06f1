"""One pass over all logs of a run for all signatures of all playbooks and the anchors of everything else.

    found = logpass(ws)             # made once, kept on the workspace
    found.hits["sig.memory.x"]      # [Hit, ...]: file, line, named captures, rank
    found.files["train.log"]        # FileSummary: lines, ranks, first and last line and time, last progress

Memory stays bounded: of each pattern, file and rank the first and last hits are kept, all are counted.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.deadline import stopper
from ...core.errors import ParseError
from ...core.playbook import Playbook
from ..run.clocks import Stamp, stamp_of
from ..run.files import LINE_LIMIT, Line, RunFile, blocks, open_regular, packing_of, part, raw_blocks, utf16
from ..run.lines import labelled, segments, strip
from .anchors import anchor_patterns, is_progress
from .harvest import Found, Harvest, Stretch
from .library_notices import counting
from .patterns import Pattern, Scanner, scanner

if TYPE_CHECKING:
    from ..run.workspace import Spread, Workspace


# ----------
# One log file as a whole: its lines, its ranks, how it begins and how it ends.


_STEP_BACK, _STEPS_BACK = 1 << 20, 64  # bytes of one step back for the start of a line, and how many


@dataclass(slots=True)
class FileSummary:
    """What the pass knows of one file as a whole.

    `ranks` maps each rank that labels lines to where it spoke; `events` counts lines that look like trouble,
    `anchors` places some of them as `(offset, line)`.
    """

    file: RunFile
    harvest: Harvest
    labels: bool = False
    first_line: Line | None = None
    last_line: Line | None = None
    last_progress: Line | None = None
    first_stamp: Stamp | None = None
    last_stamp: Stamp | None = None
    restarts: list[tuple[Line, int]] | None = None  # where attempts begin, once asked for

    @property
    def lines(self) -> int:
        return self.harvest.lines + (1 if self.harvest.unterminated else 0)

    @property
    def anchors(self) -> list[tuple[int, int]]:
        return [*self.harvest.anchors, *self.harvest.late_anchors]


def summarize(summary: FileSummary) -> None:
    """First and last lines and times, and the last line of progress, from the ends of the file."""
    h = summary.harvest
    head = h.head.split(b"\n")
    offset = 0
    for number, data in enumerate(head, 1):
        if data.strip():
            summary.first_line = summary.first_line or Line(number, offset, data)
            summary.first_stamp = summary.first_stamp or stamp_of(data[:400].decode(errors="replace"))
            if summary.first_stamp:
                break
        offset += len(data) + 1
    end = len(h.tail)
    number = h.tail_line + h.tail.count(b"\n") + 1
    while end >= 0 and not (summary.last_line and summary.last_progress and summary.last_stamp):
        start = h.tail.rfind(b"\n", 0, end) + 1
        data, offset = h.tail[start:end], h.tail_offset + start
        if start == 0 and h.tail_offset:  # what is kept of the file's end begins amid a line
            offset, data = _whole(summary.file, offset, data)
        if data.strip():
            _note_late(summary, Line(number, offset, data, len(data) >= LINE_LIMIT))
        number -= 1
        end = start - 1


def _whole(file: RunFile, offset: int, data: bytes) -> tuple[int, bytes]:
    """Where a long line really begins, and its start; nothing for a packed file, or where the search is too long."""
    with open_regular(file.path) as raw:
        if packing_of(raw.read(16) or b""):
            return offset, b""
        for _ in range(_STEPS_BACK):
            before = max(0, offset - _STEP_BACK)
            raw.seek(before)
            at = (raw.read(offset - before) or b"").rfind(b"\n")
            offset = before + at + 1
            if at >= 0 or before == 0:
                raw.seek(offset)
                return offset, (raw.read(LINE_LIMIT) or b"").split(b"\n", 1)[0]
    return offset, b""


def _note_late(summary: FileSummary, line: Line) -> None:
    summary.last_line = summary.last_line or line
    shown = segments(line.data[-8192:])[-1][1]
    text = shown.decode(errors="replace")
    summary.last_stamp = summary.last_stamp or stamp_of(text)
    if summary.last_progress is None and is_progress(strip(text, summary.labels).body):
        summary.last_progress = line


# ----------

Job = tuple[RunFile, int, int]  # a file, and from where to where its lines are read
Read = tuple[RunFile, Harvest, bool]  # what was kept of it, and whether its lines are labelled

SCANNED_ROLES = ("log", "capture", "environment")
STRETCH = 64 << 20  # bytes of one large file that a worker takes at a time
WHOLE = 1 << 62  # the end of a file, wherever it is
_TEXT_SUFFIXES = (".txt", ".text", ".md", "")
_WRITTEN = (".jinja", ".jinja2", ".j2", ".tmpl", ".tpl", ".lock")  # text that somebody wrote, and no program printed


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that a pattern matches. `count` is how many lines of this file and rank it matches in all."""

    name: str
    number: int
    file: RunFile
    line: Line
    body: str
    captures: dict[str, str]
    rank: int | None
    host: str | None
    time: str | None
    count: int


@dataclass(slots=True)
class LogPass:
    """What one pass found. `refused` names patterns that neither engine takes."""

    files: dict[str, FileSummary] = field(default_factory=dict)
    hits: dict[str, list[Hit]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(s.harvest.bytes for s in self.files.values())


def logpass(ws: Workspace) -> LogPass:
    """The pass over this workspace, with the built-in playbooks and the team's own; made once."""

    def make() -> LogPass:
        from ...core.playbook import playbooks

        known = playbooks()
        found = run_pass(ws, signature_patterns(known))
        found.hits = counting(ws, found.hits, known)
        return found

    return ws.memo("logpass", make)


def signature_patterns(playbooks: Iterable[Playbook]) -> list[Pattern]:
    """Every signature that can count; a harmless one is asked only about lines that something else hit."""
    return [
        Pattern(p.key, s.pattern, number=number)
        for p in playbooks
        for number, s in enumerate(p.signatures)
        if not s.harmless
    ]


def scanned_files(ws: Workspace) -> list[RunFile]:
    """The files that the pass reads: logs, captures, version lists, and any other text."""
    return [
        f
        for f in ws.files
        if (f.role in SCANNED_ROLES and (f.role != "log" or f.path.suffix.lower() not in _WRITTEN))
        or (f.path.suffix.lower() == ".txt" and f.role not in ("record", "data"))
        or (f.role == "other" and f.path.suffix.lower() in _TEXT_SUFFIXES and b"\0" not in ws.read(f, 4096))
    ]


def run_pass(ws: Workspace, patterns: list[Pattern], engine: str = "") -> LogPass:
    """Scan every log-like file, several stretches at once.

    Args:
        engine: `"re2"` to do without hyperscan.
    """
    known = [*patterns, *anchor_patterns()]
    scan = scanner(known, engine)
    jobs = [(f, start, end) for f in scanned_files(ws) for start, end in _stretches(ws, f)]
    workers = min(len(jobs), os.cpu_count() or 1, 8)
    done: dict[str, FileSummary] = {}

    stopped = stopper()

    def work(job: Job) -> Read:
        file, start, end = job
        counted = partial(ws.progress.counted, stopped=stopped)
        return file, *read_stretch(file.path, known, scan, start, end, partial(ws.tell, file.name), counted)

    ws.progress.begin("reading logs", sum({f.name: f.size for f, _, _ in jobs}.values()))
    try:
        if ws.spread is not None and jobs:
            pass

            _collect(read_abroad(ws, ws.spread, known, engine, jobs, work), done)
            scan.scan(b"\n")  # also where nothing was read here: it says what is refused
        elif workers > 1:
            with ThreadPoolExecutor(workers) as pool:
                _collect(pool.map(work, jobs), done)
        else:
            _collect(map(work, jobs), done)
    finally:
        ws.progress.end()
    result = LogPass(refused=sorted({f"{known[i].name}: {r}" for i, r in scan.refused.items()}))
    for summary in done.values():
        summarize(summary)
        result.files[summary.file.name] = summary
        _take_hits(result, summary, known)
    return result


def _collect(read: Iterable[Read], into: dict[str, FileSummary]) -> None:
    for file, harvest, labels in read:
        if file.name in into:
            into[file.name].harvest.append(harvest)
        else:
            into[file.name] = FileSummary(file, harvest, labels)


def _stretches(ws: Workspace, file: RunFile) -> list[tuple[int, int]]:
    """A large plain file in stretches; a packed or re-encoded one can only be read from its start."""
    whole = [(0, WHOLE)]
    if file.size <= 2 * STRETCH:
        return whole
    try:
        head = next(raw_blocks(file.path), b"")[:4096]
    except ParseError:
        return whole
    if packing_of(head) or utf16(head):
        return whole
    starts = list(range(0, file.size, STRETCH))
    return [(s, s + STRETCH) for s in starts[:-1]] + [(starts[-1], WHOLE)]


def read_stretch(
    path: Path,
    patterns: list[Pattern],
    scan: Scanner,
    start: int,
    end: int,
    tell: Callable[[str], None],
    counted: Callable[[Iterable[bytes]], Iterable[bytes]],
) -> tuple[Harvest, bool]:
    """What the pass keeps of the lines of a file that start in `[start, end)`, and whether they are labelled."""
    try:
        head = next(blocks(path), b"")
        labels = labelled(head[: 1 << 15])
        stretch = Stretch(patterns, scan, labels)
        if start:
            stream = raw_blocks(path, start - 1, tell)
        else:
            stream = blocks(path, tell) if end >= WHOLE else raw_blocks(path, 0, tell)
        return stretch.read(part(counted(stream), start, end)), labels
    except ParseError as e:
        tell(str(e))
        return Harvest(), False


def _take_hits(result: LogPass, summary: FileSummary, patterns: list[Pattern]) -> None:
    for (index, rank), slot in sorted(summary.harvest.slots.items(), key=lambda kv: (kv[0][0], kv[0][1] or -1)):
        pattern = patterns[index]
        result.hits.setdefault(pattern.name, []).extend(
            hit(pattern, summary.file, found, slot.count, rank) for found in slot.kept
        )


def hit(pattern: Pattern, file: RunFile, found: Found, count: int, rank: int | None = None) -> Hit:
    """A kept line as a hit of a pattern."""
    s = found.stripped
    known = s.rank if s.rank is not None else rank if rank is not None else file.rank
    return Hit(
        pattern.name,
        pattern.number,
        file,
        Line(found.number, found.offset, found.data, found.cut),
        s.body,
        found.captures,
        known,
        s.host or file.host,
        found.stamp_text or None,
        count,
    )


# ----------
# The log pass spread over workers of another place, with the same result as the one made here.
#
# A worker reads a batch of files (or stretches of large ones) by the same code and sends back what it kept. It takes
# only files that it sees as we do: the same size, time and inode; the rest, and whatever a lost worker leaves, is read
# here. So a cluster that is away costs time and a line in the report, never evidence.

BATCHES = 4  # for each worker, so that a slow one does not keep all others waiting
OPENING = 1 << 16  # bytes that opening a file is worth
_MOST = 2000  # jobs of one batch

Identity = tuple[int, int, int]  # size, time of the last change (ns), inode
Order = tuple[bytes, str, list[tuple[str, Identity, int, int]]]  # patterns, engine, jobs
Kept = tuple[Harvest | None, bool, list[str]]  # None where the worker does not see that file


def read_batch(order: bytes) -> bytes:
    """What a worker does with an order; both are pickled, so that what is in between passes them on unread."""
    packed, engine, jobs = pickle.loads(order)
    patterns, scan = _ready(packed, engine)
    kept: list[Kept] = []
    for name, identity, start, end in jobs:
        told: list[str] = []
        path = Path(name)
        if _identity(path) != identity:
            kept.append((None, False, told))
            continue
        harvest, labels = read_stretch(path, patterns, scan, start, end, told.append, lambda stream: stream)
        same = _identity(path) == identity  # of a file that changed under the pass nothing is known: read anew
        kept.append((harvest if same else None, labels, told))
    return pickle.dumps(kept, pickle.HIGHEST_PROTOCOL)


def read_abroad(
    ws: Workspace,
    spread: Spread,
    patterns: list[Pattern],
    engine: str,
    jobs: list[Job],
    here: Callable[[Job], Read],
) -> Iterator[Read]:
    """All jobs, in order.

    Args:
        here: reads one job on this machine.

    Raises:
        TimeoutError: nobody wants the answer any more.
    """
    stopped = stopper()
    results: list[Kept | None] = [None] * len(jobs)
    workers = spread.workers()
    batches = _batches(jobs, workers) if workers else []
    packed = pickle.dumps(patterns, pickle.HIGHEST_PROTOCOL)
    orders = [
        (_order(packed, engine, [jobs[i] for i in batch]), sum(_weight(jobs[i]) for i in batch)) for batch in batches
    ]
    for number, answer in spread.read(orders) if orders else ():
        if stopped():
            raise TimeoutError("stopped")
        for index, kept in zip(batches[number], _kept(answer, len(batches[number])), strict=True):
            results[index] = kept
            if kept is not None and kept[0] is not None:
                ws.progress.add(kept[0].bytes)
    left = sum(kept is None or kept[0] is None for kept in results)
    if workers and left:
        spread.notes.append(
            f"{left} of {len(jobs)} log files were read here: the workers do not see them as they are here"
        )
    ws.limits.extend(note for note in spread.notes if note not in ws.limits)
    for job, kept in zip(jobs, results, strict=True):
        if kept is None or kept[0] is None:
            yield here(job)
            continue
        for why in kept[2]:
            ws.tell(job[0].name, why)
        yield job[0], kept[0], kept[1]


def _kept(answer: bytes | None, count: int) -> Sequence[Kept | None]:
    """An answer unpacked; what is not one counts as none."""
    if answer is None:
        return [None] * count
    found: Any = pickle.loads(answer)
    return found if isinstance(found, list) and len(found) == count else [None] * count


@lru_cache(maxsize=2)
def _ready(packed: bytes, engine: str) -> tuple[list[Pattern], Scanner]:
    """Patterns compiled once in a worker's life."""
    patterns = pickle.loads(packed)
    return patterns, scanner(patterns, engine)


def _order(packed: bytes, engine: str, jobs: list[Job]) -> bytes:
    listed = [(str(file.path.resolve()), _identity(file.path), start, end) for file, start, end in jobs]
    return pickle.dumps((packed, engine, listed), pickle.HIGHEST_PROTOCOL)


def _identity(path: Path) -> Identity | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - of thousands of files
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _weight(job: Job) -> int:
    file, start, end = job
    return (file.size if end == WHOLE else end) - start + OPENING


def _batches(jobs: list[Job], workers: int) -> list[list[int]]:
    """Jobs in runs of about the same weight, several for each worker, the order kept."""
    whole = sum(map(_weight, jobs))
    enough = max(whole // (workers * BATCHES), 1)
    batches: list[list[int]] = [[]]
    held = 0
    for index, job in enumerate(jobs):
        if held >= enough or len(batches[-1]) >= _MOST:
            batches.append([])
            held = 0
        batches[-1].append(index)
        held += _weight(job)
    return batches
