"""One pass over a run's text for the literals that captures hang on: OOM messages, NCCL, kernel, dumps.

A file of a gigabyte holds a handful of lines that matter to these readers. One hyperscan database of plain
literals finds them in blocks; only the lines that hold one are kept, with number and offset, so that the
parsers behind it work on few lines and memory stays constant.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .anchor_scanner import scanner_of
from .capture_tables import anchor_words
from .files import LINE_LIMIT, Line, RunFile

if TYPE_CHECKING:
    from ..workspace import Workspace

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
