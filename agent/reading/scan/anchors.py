"""The lines that the log pass looks for beside signatures, and how they are told apart. From `cascades.yaml`."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from ...core.errors import KnowledgeError, ParseError
from ...core.own_files import KNOWLEDGE, read_table
from ..run.files import LINE_LIMIT, Line, RunFile, open_regular
from .literals import scanner_of
from .patterns import Pattern, searcher

if TYPE_CHECKING:
    from ...core.types import Evidence
    from ..run.workspace import Workspace

EVENT = "anchor.event"  # something failed hereabouts: look closely
FRAME = "anchor.frame"  # a line of a traceback
WARNING = "anchor.warning"
RESTART = "anchor.restart"
RANKS = "anchor.ranks"  # whether rank labels occur in a block at all

_EVENTS = (
    r"Traceback \(most recent call last\)",
    r"\w(?:Error|Exception)\b",
    r"\bError: ",
    r"\bException: ",
    r"\b(?:ERROR|FATAL|CRITICAL)\b",
    r"(?i)\b(?:fatal|error) *: ",
    r"[\[: ]E\d{3,4} \d\d:\d\d:\d\d",
    r"(?i)segmentation fault|segfault|SIGSEGV|core dumped|bus error \(|illegal instruction",
    r"terminate called|what\(\):|Fatal Python error|\*\*\* Aborted|Assertion .{0,200} failed|double free",
    r"corrupted size",
    r"stop reason = |SIGABRT|SIGBUS|SIGKILL|SIGTERM|SIGILL|SIGFPE",
    r"(?:exit ?code|return code|exit status|exited with)\b.{0,12}-?\d",
    r"\bKilled\b|Killing subprocess|oom[-_]kill|OOM[- ]?[Kk]ill|Out of memory: ",
    r"NCCL WARN",
    r"Check failed: |command not found|No such file or directory|can't open file|: not found$",
    r"\bfrom user code:|\bnot enough memory\b",
    r"[Uu]ncaught |panicked at |Aborted\b",
)
_FRAMES = (r'File "[^"]{1,400}", line \d+', r"--> ?\d+ ")
_RANKS = r"\[(?:rank|Rank |RANK |rank: |default)\d|\brank=\d|\.py:\d{1,6}\] \(\d{1,4}/\d{1,4}\) "
_WARNINGS = (r"\b(?:WARNING|Warning|WARN)\b", r"[A-Za-z]Warning: ", r"[\[: ]W\d{3,4} \d\d:\d\d:\d\d")


@dataclass(frozen=True, slots=True)
class Table:
    """Compiled patterns of `cascades.yaml`: each list as one pattern, consequences also one by one."""

    cascade: tuple[tuple[str, Any], ...]
    any_cascade: Any
    harmless: Any
    progress: Any
    telling: Any
    finished: tuple[Any, ...]
    group_failed: Any
    gave_up: Any


@cache
def _raw() -> dict[str, Any]:
    return read_table(KNOWLEDGE / "cascades.yaml")


@cache
def table() -> Table:
    """The table, read once."""
    raw = _raw()

    def one(texts: list[str]) -> Any:
        return searcher("|".join(f"(?:{t})" for t in texts))

    each = [(kind, text) for kind, texts in raw["cascade"].items() for text in texts]
    return Table(
        tuple((kind, searcher(text)) for kind, text in each),
        one([text for _, text in each]),
        one(raw["harmless"]),
        one(raw["progress"]),
        one(raw["telling"]),
        tuple(searcher(text) for text in raw["finished"]),
        searcher(raw["group_failed"]),
        searcher(raw["gave_up"]),
    )


@cache
def anchor_patterns() -> tuple[Pattern, ...]:
    """What goes into the pass beside the signatures. Hits are not looked at twice: the readers of them decide."""
    raw = _raw()
    events = [*_EVENTS, *(t for texts in raw["cascade"].values() for t in texts)]
    return (
        Pattern(RANKS, _RANKS, verify=False, once=True),
        *(
            Pattern(name, regex, verify=False, number=i)
            for name, regexes in (
                (EVENT, events),
                (FRAME, _FRAMES),
                (WARNING, _WARNINGS),
                (RESTART, raw["restarted"]),
            )
            for i, regex in enumerate(regexes)
        ),
    )


def cascade_kind(body: str) -> str | None:
    """The kind of consequence a line is, or None."""
    if table().any_cascade.search(body) is None:
        return None
    return next((kind for kind, p in table().cascade if p.search(body)), None)


def is_harmless(body: str) -> bool:
    """Whether a line only looks like trouble."""
    return table().harmless.search(body) is not None


@cache
def _playbooks_harmless() -> Any:
    from ...core.playbook import playbooks

    usable = [s.pattern for p in playbooks() for s in p.signatures if s.harmless and searcher(s.pattern) is not None]
    return searcher("|".join(f"(?:{re.sub(r'[(][?]P<[^>]*>', '(?:', t)})" for t in usable)) if usable else None


def told_harmless(body: str) -> bool:
    """Whether a playbook says that a line means nothing."""
    known = _playbooks_harmless()
    return known is not None and known.search(body) is not None


def is_progress(body: str) -> bool:
    """Whether a line is what a living run prints again and again."""
    return table().progress.search(body) is not None


def is_telling(body: str) -> bool:
    """Whether a line behind an exception says what happened."""
    return table().telling.search(body) is not None


# ----------
# The tables of `knowledge/captures.yaml`, read once.


@cache
def _raw_tables() -> dict[str, Any]:
    return read_table(KNOWLEDGE / "captures.yaml")


def anchor_words() -> dict[str, list[str]]:
    """Literals by topic."""
    return _raw_tables()["anchors"]


@cache
def patterns(table: str, ignore_case: bool = True) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """`(name, pattern)` rows of one table, in its order.

    Raises:
        KnowledgeError: a row holds no valid pattern.
    """
    rows = []
    for name, pattern in _raw_tables()[table]:
        try:
            rows.append((name, re.compile(pattern, re.IGNORECASE if ignore_case else 0)))
        except re.error as e:
            raise KnowledgeError(f"captures.yaml: {table}: {name}: {e}") from None
    return tuple(rows)


# ----------
# One pass over a run's text for the literals that captures hang on: OOM messages, NCCL, kernel, dumps.
#
# A file of a gigabyte holds a handful of lines that matter to these readers. One hyperscan database of plain
# literals finds them in blocks; only the lines that hold one are kept, with number and offset, so that the
# parsers behind it work on few lines and memory stays constant.

FIRST, LAST = 3000, 300  # hits kept of one topic in one file, from its start and from its end
PARSED = 3 << 10  # a quarter of what is parsed of one line
KEEP_BYTES = 24 << 20  # of one file's hit lines; beyond that a line keeps its first 4 KiB
WHOLE_FILE_LIMIT = 8 << 20  # files that only a whole parse can use (JSON, CSV) are looked at up to this size
LOOKED_AT = ("log", "capture", "environment", "other")
SMALL_ONLY = {"metrics": (".csv", ".tsv"), "config": (".json", ".xml"), "data": (".csv", ".tsv")}
PROSE = {".md", ".rst", ".html", ".py", ".sh", ".ipynb"}

RANK = re.compile(
    rb"\[\s{0,2}[Rr]ank\s?(\d{1,6})\]|\[default(\d{1,5})\]:|\bRank (\d{1,6})\]|^(\d{1,5}): |\[rank=(\d{1,6})[\],]|"
    rb"\brank=(\d{1,6})\b"
)


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that holds a literal of `topic`."""

    file: RunFile
    line: Line
    topic: str

    @property
    def text(self) -> str:
        """The line as parsers see it: of a very long one its start and its end."""
        data = self.line.data
        if len(data) > 4 * PARSED:
            data = data[: 3 * PARSED] + b" ... " + data[-PARSED:]
        return data.decode(errors="replace")

    @property
    def rank(self) -> int | None:
        """Rank by the line's own prefix, else by its file."""
        return rank_of(self.line.data, self.file.rank)

    def cite(self, ws: Workspace, key: str, value: Any = True, **more: Any) -> Evidence:
        """Evidence that quotes the line, of the rank that it names."""
        return ws.cite(self.file, self.line, key, value, **{"rank": self.rank, **more})


@dataclass(slots=True)
class Anchored:
    """Hit lines by topic, in file order, and what was looked at."""

    hits: dict[str, list[Hit]] = field(default_factory=dict)
    looked: list[RunFile] = field(default_factory=list)
    dropped: dict[tuple[str, str], int] = field(default_factory=dict)

    def of(self, topic: str, *, good: bool = False) -> list[Hit]:
        """Hits of a topic in the diagnosed runs; in the healthy run named for comparison only if asked."""
        return [h for h in self.hits.get(topic, []) if good or not h.file.good]

    def files(self, topic: str, *, good: bool = False) -> list[RunFile]:
        """Files with at least one hit of the topic, in order."""
        return list({h.file.name: h.file for h in self.of(topic, good=good)}.values())


def rank_of(data: bytes, default: int | None = None) -> int | None:
    """The rank a line names in its prefix (`[rank3]:`, `[Rank 3]`, `[default0]:`, `3: `), else `default`."""
    if (m := RANK.search(data[:400])) is None:
        return default
    return int(next(g for g in m.groups() if g is not None))


def anchored(ws: Workspace) -> Anchored:
    """The pass over all text of the run, made once."""
    return ws.memo("anchor_lines", lambda: _pass(ws))


def eligible(file: RunFile) -> bool:
    """Whether a file's role and size let it hold a capture; prose and code only quote messages."""
    suffix = file.path.suffix.lower()
    if file.role in SMALL_ONLY:
        return suffix in SMALL_ONLY[file.role] and file.size <= WHOLE_FILE_LIMIT
    return file.role in LOOKED_AT and suffix not in PROSE


def _pass(ws: Workspace) -> Anchored:
    found = Anchored()
    for file in filter(eligible, ws.files):
        kept = _File(file)
        for number, offset, data, topics in _hit_lines(ws.blocks(file)):
            kept.add(number, offset, data, topics)
        found.looked.append(file)
        kept.pour_into(found)
    return found


class _File:
    """The hits of one file while it is read: the first and the last of each topic."""

    def __init__(self, file: RunFile) -> None:
        self.file = file
        self.bytes = 0
        self.first: dict[str, list[Hit]] = {}
        self.last: dict[str, deque[Hit]] = {}
        self.seen: dict[str, int] = {}

    def add(self, number: int, offset: int, data: bytes, topics: set[str]) -> None:
        self.bytes += len(data)
        room = LINE_LIMIT if self.bytes < KEEP_BYTES else 4096
        line = Line(number, offset, data[:room], len(data) > room)
        for topic in topics:
            self.seen[topic] = self.seen.get(topic, 0) + 1
            first = self.first.setdefault(topic, [])
            if len(first) < FIRST:
                first.append(Hit(self.file, line, topic))
            else:
                self.last.setdefault(topic, deque(maxlen=LAST)).append(Hit(self.file, line, topic))

    def pour_into(self, found: Anchored) -> None:
        for topic, first in self.first.items():
            kept = [*first, *self.last.get(topic, ())]
            found.hits.setdefault(topic, []).extend(kept)
            if self.seen[topic] > len(kept):
                found.dropped[self.file.name, topic] = self.seen[topic] - len(kept)


def _hit_lines(content: Iterator[bytes]) -> Iterator[tuple[int, int, bytes, set[str]]]:
    scanner = scanner_of(tuple((topic, word) for topic, group in anchor_words().items() for word in group))
    seen: Counter[int] = Counter()
    number, offset, rest = 1, 0, b""
    for n, block in enumerate(content):
        if n == 0 and b"\0" in block[:4096] and not block.startswith((b"\xff\xfe", b"\xfe\xff")):
            return  # binary
        data = rest + block
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) < 4 * LINE_LIMIT:
            rest = data
            continue
        whole, rest = (data[:cut], data[cut:]) if cut else (data, b"")
        yield from _lines_with_hits(whole, number, offset, scanner.scan(whole, seen))
        number += whole.count(b"\n")
        offset += len(whole)
    if rest:
        yield from _lines_with_hits(rest, number, offset, scanner.scan(rest, seen))


def _lines_with_hits(
    data: bytes, number: int, offset: int, hits: list[tuple[int, str]]
) -> Iterator[tuple[int, int, bytes, set[str]]]:
    at, topics, start, end = 0, set[str](), -1, -1
    for where, topic in sorted(hits):
        if where <= end:
            topics.add(topic)
            continue
        if end >= 0:
            yield number, offset + start, data[start:end], topics
        start = data.rfind(b"\n", 0, where - 1) + 1
        end = data.find(b"\n", where - 1)
        end = len(data) if end < 0 else end
        number += data.count(b"\n", at, start)
        at, topics = start, {topic}
    if end >= 0:
        yield number, offset + start, data[start:end], topics


# ----------
# Pieces of a file about a line: what stands before a failure, what follows the head of a dump.

WHOLE = 1 << 20  # files up to this size are read whole
WINDOWS = 48  # places looked at in a larger one


def around(ws: Workspace, hit: Hit, before: int = 24 << 10, after: int = 2 << 10) -> list[Line]:
    """The lines about a hit, itself included, within so many bytes before and after it.

    A plain file is read at the place; one whose offsets count decoded bytes (packed, UTF-16) from its start.
    """
    base = max(0, hit.line.offset - before)
    end = hit.line.offset + len(hit.line.data) + after
    data = _at(hit.file, base, end)
    here = hit.line.offset - base
    if data[here : here + len(hit.line.data)] != hit.line.data:
        data = _decoded(ws, hit.file, base, end)
    return _cut(data, base, hit.line)


def excerpt(ws: Workspace, file: RunFile, topic: str, after: int = 32 << 10) -> list[Line]:
    """A small file whole; of a larger one the pieces from each hit of the topic on, without overlaps."""
    if file.size <= WHOLE:
        return list(ws.lines(file))
    lines: list[Line] = []
    for hit in [h for h in anchored(ws).of(topic, good=True) if h.file.name == file.name][:WINDOWS]:
        if not lines or hit.line.number > lines[-1].number:
            last = lines[-1].number if lines else 0
            lines += [x for x in around(ws, hit, 512, after) if x.number > last]
    return lines


def _at(file: RunFile, base: int, end: int) -> bytes:
    try:
        with open_regular(file.path) as raw:
            raw.seek(base)
            return raw.read(end - base) or b""
    except (OSError, ParseError):  # the file went away since the pass
        return b""


def _decoded(ws: Workspace, file: RunFile, base: int, end: int) -> bytes:
    at, kept = 0, bytearray()
    for block in ws.blocks(file):
        kept += block[max(0, base - at) : max(0, end - at)]
        at += len(block)
        if at >= end:
            break
    return bytes(kept)


def _cut(data: bytes, base: int, at: Line) -> list[Line]:
    parts, offset = data.split(b"\n"), base
    if base:  # the first piece is the end of a line
        offset += len(parts[0]) + 1
        parts = parts[1:]
    lines: list[Line] = []
    for part in parts:
        lines.append(Line(0, offset, part[:LINE_LIMIT], len(part) > LINE_LIMIT))
        offset += len(part) + 1
    index = next((i for i, line in enumerate(lines) if line.offset == at.offset), None)
    if index is None:
        return [at]
    if lines and not lines[-1].data:
        lines.pop()
    return [Line(at.number + i - index, x.offset, x.data, x.cut) for i, x in enumerate(lines)]
