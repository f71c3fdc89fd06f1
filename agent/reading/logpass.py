"""One pass over all logs of a run for all signatures of all playbooks and the anchors of everything else.

    found = logpass(ws)             # made once, kept on the workspace
    found.hits["sig.memory.x"]      # [Hit, ...]: file, line, named captures, rank
    found.files["train.log"]        # FileSummary: lines, ranks, first and last line and time, last progress

Memory stays bounded: of each pattern, file and rank the first and last hits are kept, all are counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..deadline import stopper
from ..errors import ParseError
from ..playbook import Playbook
from .anchors import anchor_patterns
from .files import Line, RunFile, blocks, raw_blocks
from .harvest import Found, Harvest
from .inflate import packing_of, utf16
from .lines import labelled
from .patterns import Pattern, Scanner, scanner
from .pieces import part
from .stretch import Stretch
from .summaries import FileSummary, summarize

if TYPE_CHECKING:
    from ..workspace import Workspace

Job = tuple[RunFile, int, int]  # a file, and from where to where its lines are read
Read = tuple[RunFile, Harvest, bool]  # what was kept of it, and whether its lines are labelled

SCANNED_ROLES = ("log", "capture", "environment")
STRETCH = 64 << 20  # bytes of one large file that a worker takes at a time
WHOLE = 1 << 62  # the end of a file, wherever it is
_TEXT_SUFFIXES = (".txt", ".text", ".md", "")


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
        from ..library import playbooks

        return run_pass(ws, signature_patterns(playbooks()))

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
        if f.role in SCANNED_ROLES
        or (f.path.suffix.lower() == ".txt" and f.role != "record")
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
            from .logpass_ray import read_abroad

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
