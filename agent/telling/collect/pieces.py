"""Parts of a long file that are worth keeping, cut at lines, with exact words about what lies between them.

A secret may be told by what stands around it, and a cut may go through a key. So a part is cleaned together with what
stands before and after it, and cut afterwards: cleaning keeps lines, which makes that exact.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ...core.errors import ParseError
from ...reading.run.files import BLOCK as READ_BLOCK
from ...reading.run.files import RunFile, blocks, head, open_regular, packing_of, utf16
from .cleaning import Cleaning

if TYPE_CHECKING:
    from ...core.report import Report
    from ...reading.logs.failures import Failures, Group
    from ...reading.logs.tracebacks import Failure
    from ...reading.run.workspace import Workspace

MARGIN = 8 << 10  # bytes within which a cut finds a line's end, and that are cleaned with a part beyond it
NEAR = 256  # bytes between two stretches that are not worth leaving out
PACKED_LIMIT = 4 << 30  # unpacked bytes that are gone through for the end of a packed file
_NULS = re.compile(rb"\0+")
_CONTROLS = bytes((*range(1, 8), *range(14, 27), *range(28, 32)))  # ESC begins a colour
_FEW_NULS = 200  # bytes of text for each stretch of NUL bytes that a text may have

Span = tuple[int, int]


class NotText(Exception):
    """Secrets could not be taken out of it."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What is kept of a file. `kept` and `size` are bytes before cleaning; `nuls` were taken out."""

    text: str
    kept: int
    size: int
    nuls: int = 0

    @property
    def whole(self) -> bool:
        return self.kept >= self.size


class _Source(Protocol):
    size: int

    def get(self, start: int, end: int) -> bytes: ...


def excerpt(file: RunFile, cleaning: Cleaning, room: int, focus: Iterable[Span] = ()) -> Excerpt:
    """A file whole, or its start, the parts in focus and its end.

    Args:
        room: bytes for start and end together; parts in focus come on top of it.
        focus: stretches of bytes (unpacked) that must be in it.

    Raises:
        ParseError: it cannot be opened any more.
        NotText: it is no text.
    """
    spans = sorted((max(0, a), b) for a, b in focus if b > a)
    with open_regular(file.path) as stream:
        first = stream.read(4096) or b""
        if packing_of(first) or utf16(first):
            return _cut(_Packed(file, room, spans), cleaning, room, spans)
        return _cut(_Plain(stream.fileno()), cleaning, room, spans)


def span(file: RunFile, start: int, end: int) -> bytes:
    """The (unpacked) bytes of a stretch; none where the file is gone."""
    try:
        with open_regular(file.path) as stream:
            first = stream.read(4096) or b""
            if not packing_of(first) and not utf16(first):
                return os.pread(stream.fileno(), end - start, start)
        return head(file.path, end)[start:]
    except (ParseError, OSError):
        return b""


class _Plain:
    """An open file by position. Its size is the one it has now: what a growing log gets later is not of it."""

    def __init__(self, handle: int) -> None:
        self._handle, self.size = handle, os.fstat(handle).st_size

    def get(self, start: int, end: int) -> bytes:
        parts = []
        while start < end and (part := os.pread(self._handle, min(end - start, READ_BLOCK), start)):
            parts.append(part)
            start += len(part)
        return b"".join(parts)


class _Packed:
    """The wanted stretches of a packed file and its end, kept while it is unpacked once."""

    def __init__(self, file: RunFile, room: int, spans: list[Span]) -> None:
        wide = 2 * MARGIN
        wanted = _merged([(0, room + 1 + wide), *((max(0, a - wide), b + wide) for a, b in spans)], 0)
        self._held: list[tuple[int, bytearray]] = [(a, bytearray()) for a, _ in wanted]
        tail, self.size = bytearray(), 0
        for block in blocks(file.path):
            for (a, b), (_, held) in zip(wanted, self._held, strict=True):
                if a < self.size + len(block) and b > self.size:
                    held += block[max(0, a - self.size) : b - self.size]
            tail += block
            self.size += len(block)
            del tail[: -(room + wide)]
            if self.size > PACKED_LIMIT:
                break
        self._held.append((self.size - len(tail), tail))

    def get(self, start: int, end: int) -> bytes:
        out = bytearray(max(0, min(end, self.size) - start))
        for at, held in self._held:
            low, high = max(start, at), min(end, at + len(held))
            if low < high:
                out[low - start : high - start] = held[low - at : high - at]
        return bytes(out)


def _cut(source: _Source, cleaning: Cleaning, room: int, focus: list[Span]) -> Excerpt:
    size = source.size
    half = room // 2
    ends = [(0, size)] if size <= room else [(0, half), (size - (room - half), size)]
    spans = _merged([*ends, *((a, min(b, size)) for a, b in focus if a < size)], NEAR)
    out, at, kept, nuls = [], 0, 0, 0
    for number, part in enumerate(spans, 1):
        until = spans[number][0] if number < len(spans) else size
        text, start, end, taken = _part(source, cleaning, part, (at, until))
        if end <= start:
            continue
        if start > at:
            out.append(f"[{start - at} bytes left out]\n")
        out.append(text)
        at, kept, nuls = end, kept + end - start, nuls + taken
    if at < size:
        out.append(("" if not out or out[-1].endswith("\n") else "\n") + f"[{size - at} bytes left out]\n")
    return Excerpt("".join(out), kept, size, nuls)


def _part(source: _Source, cleaning: Cleaning, part: Span, bounds: Span) -> tuple[str, int, int, int]:
    """Whole lines of a stretch, cleaned with what stands around them, where they begin and end, and NULs taken out.

    Args:
        bounds: up to where the stretch may grow to begin and end with a line.
    """
    start, end = part
    low, high = max(0, start - 2 * MARGIN), min(source.size, end + 2 * MARGIN)
    data = source.get(low, high)
    s, e = start - low, min(end - low, len(data))
    if start > 0:
        at = data.rfind(b"\n", max(0, s - MARGIN, bounds[0] - 1 - low), s)
        s = at + 1 if at >= 0 else (data.find(b"\n", s, e) + 1 or e)
    if low + e < source.size and s < e:
        at = data.find(b"\n", e - 1, min(e + MARGIN, bounds[1] - low))
        e = at + 1 if at >= 0 else (data.rfind(b"\n", s, e) + 1 or e)
    if s >= e:
        return "", low + e, low + e, 0
    before, within = data.count(b"\n", 0, s), data.count(b"\n", s, e)
    plain, nuls = _without_nuls(data)
    lines = cleaning.text(plain.decode(errors="replace")).split("\n")
    if data[e - 1] == 10:
        text = "\n".join(lines[before : before + within]) + "\n"
    elif e == len(data):
        text = "\n".join(lines[before : before + within + 1])
    else:  # one line longer than the stretch: its start, without what a cut might have kept from being judged
        text = lines[before][: max(0, min(e - s, len(lines[before]) - MARGIN))] + "\n"
    return text, low + s, low + e, nuls


def _without_nuls(data: bytes) -> tuple[bytes, int]:
    """Text without the holes that rotated and preallocated logs have.

    Raises:
        NotText: NULs or other control characters stand all over it.
    """
    if len(data.translate(None, _CONTROLS)) * 50 < len(data) * 49:
        raise NotText
    nuls = data.count(b"\0")
    if not nuls:
        return data, 0
    rest, holes = _NULS.subn(b"", data)
    if holes * _FEW_NULS > len(rest) + _FEW_NULS:
        raise NotText
    return rest, nuls


def _merged(spans: Iterable[Span], gap: int) -> list[Span]:
    """Sorted stretches, those joined that overlap or stand nearer than `gap`."""
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1] + gap:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


# ----------
# Where in the run's files to look: around what the report cites and around what broke.

BEFORE, AFTER = 64 << 10, 64 << 10  # bytes around the first failure
CITED = 8 << 10  # around a line that the report cites
EACH = 4 << 20  # bytes in focus of one file
FAILURES = 40  # of which a window is kept

Focus = dict[str, list[Span]]


def focus(report: Report | None, found: Failures | None) -> Focus:
    """Stretches of bytes by file, the most telling first and bounded for each file."""
    places: Focus = {}
    left: dict[str, int] = {}

    def add(name: str, start: int, end: int) -> None:
        room = left.setdefault(name, EACH)
        if room >= end - start:
            left[name] = room - (end - start)
            places.setdefault(name, []).append((max(0, start), end))

    if found is not None and found.first is not None:
        first = found.first
        begin = (first.start or first.line).offset
        add(first.file.name, begin - BEFORE, max(begin, first.line.offset) + AFTER)
    for e in report.evidence if report else ():
        if e.kind == "line" and e.file and e.offset is not None:
            add(e.file, e.offset - CITED, e.offset + len(e.text.encode()) + CITED)
    for group in found.groups[:FAILURES] if found else ():
        lead = group.lead
        begin = (lead.start or lead.line).offset
        add(lead.file.name, begin - CITED, max(begin, lead.line.offset) + CITED)
    return places


# ----------
# Quotations cleaned in their place: what stands around a line may tell that a word in it is a secret.

BLOCK = 64 << 10  # bytes that are cleaned at a time
BLOCKS = 256  # of them that are kept
PACKED = 4 << 20  # size of a packed file up to which it is unpacked again for a quotation
HIDDEN = "<SECRET>"


@dataclass(frozen=True, slots=True)
class _Block:
    """A stretch of a file: where its lines begin, its lines as they stand, and clean."""

    starts: list[int]
    raw: list[bytes]
    clean: list[str]


class Context:
    """Lines of the run's files, as they stand and cleaned together with their surroundings."""

    def __init__(self, ws: Workspace, cleaning: Cleaning) -> None:
        self.cleaning = cleaning
        self._files = {f.name: f for f in ws.everything}
        self._blocks: dict[tuple[str, int, int], _Block] = {}

    def lines(self, name: str, start: int, end: int) -> tuple[str, str]:
        """The lines from `start`, where one begins, to that which holds `end`: raw and clean. Empty where gone."""
        block = self._block(name, start // BLOCK, max(1, -(-(end - start) // BLOCK)))
        first = bisect_right(block.starts, start) - 1
        if first < 0 or block.starts[first] != start:
            return "", ""
        last = max(first + 1, bisect_right(block.starts, max(start, end - 1)))
        raw = b"\n".join(block.raw[first:last]).decode(errors="replace")
        return raw, "\n".join(block.clean[first:last])

    def value(self, value: Any, name: str, offset: int, size: int) -> Any:
        """A value that was read from a line. Where the line holds a secret, no more of it than the clean line shows."""
        if isinstance(value, list):
            return [self.value(v, name, offset, size) for v in value]
        if not isinstance(value, str):
            return value
        raw, clean = self.lines(name, offset, offset + size + (len(value) if "\n" in value else 0))
        return value if raw == clean or value in clean else HIDDEN

    def _block(self, name: str, number: int, count: int) -> _Block:
        """Stretch `number` of a file and `count` - 1 after it, with a margin on both sides."""
        key = (name, number, count)
        if key not in self._blocks:
            if len(self._blocks) >= BLOCKS:
                self._blocks.clear()
            self._blocks[key] = self._read(name, number * BLOCK, (number + count) * BLOCK)
        return self._blocks[key]

    def _read(self, name: str, start: int, end: int) -> _Block:
        file = self._files.get(name)
        if file is None or (file.path.suffix.lower() in (".gz", ".zst", ".bz2", ".xz") and file.size > PACKED):
            return _Block([], [], [])
        low = max(0, start - MARGIN)
        raw = span(file, low, end + 2 * MARGIN).split(b"\n")
        starts, at = [], low
        for line in raw:
            starts.append(at)
            at += len(line) + 1
        clean = self.cleaning.text(b"\n".join(raw).decode(errors="replace")).split("\n")
        return _Block(starts, raw, clean)


# ----------
# Every distinct error trace of a run as it stands in its log, the first failure first.

MOST = 100
BYTES = 64 << 10  # of one trace
TOTAL = 2 << 20
RANKS = 16


def traces_text(found: Failures, context: Context) -> str:
    """All of them, each under a line that says where it stands and how often it came."""
    out, size = [], 0
    groups = ordered(found)
    for number, group in enumerate(groups[:MOST], 1):
        text = f"== {number} of {len(groups)}: {headline(found, group)}\n{trace(group.lead, context)}\n"
        size += len(text)
        if size > TOTAL:
            out.append(f"[{len(groups) - number + 1} more left out]\n")
            break
        out.append(text)
    return "\n".join(out)


def ordered(found: Failures) -> list[Group]:
    """Events with that of the first failure in front; consequences last."""
    first = found.first

    def place(group: Group) -> tuple[bool, bool]:
        return not _holds(group, first), bool(group.lead.cascade)

    return sorted(found.groups, key=place)


def first_group(found: Failures) -> Group | None:
    """The event that the first failure belongs to."""
    return next((g for g in found.groups if _holds(g, found.first)), None)


def telling(found: Failures) -> Group | None:
    """The event to quote: the first failure's, or where only a launcher or a watchdog told of that, what has frames."""
    groups = ordered(found)
    first = first_group(found)
    if first is not None and not first.lead.cascade:
        return first
    return next((g for g in groups if g.lead.frames), None) or first or next(iter(groups), None)


def _holds(group: Group, first: Failure | None) -> bool:
    return first is not None and any(m is first or m.origin is first for m in group.members)


def headline(found: Failures, group: Group) -> str:
    """What, on which ranks, how often, where, when."""
    lead = group.lead
    told = [lead.text.split("\n")[0][:200]]
    if ranks := group.ranks:
        told.append(f"rank {_ranges(ranks)}")
    if len(group.members) > 1:
        told.append(f"{len(group.members)} times")
    told.append(f"{lead.file.name}:{(lead.start or lead.line).number}")
    if lead.frames:
        told.append(f"raised in {lead.frames[-1].path}:{lead.frames[-1].number}")
    if lead.stamp:
        told.append(lead.stamp.text)
    if lead.cascade:
        told.append(f"a consequence ({lead.cascade})")
    if _holds(group, found.first):
        told.append("the first failure" if found.first_known else "taken for the first failure; times do not tell")
    return ", ".join(told)


def trace(failure: Failure, context: Context) -> str:
    """The lines of one failure as its log has them, without secrets and those of other ranks in between."""
    begin = failure.start or failure.line
    chain, start = failure.cause, begin.offset
    while chain is not None and chain.file.name == failure.file.name:  # what it was raised from stands above it
        start = min(start, (chain.start or chain.line).offset)
        chain = chain.cause
    ends = [failure.line, *(line for line, _ in failure.details), *(f.line for f in failure.frames)]
    end = max(line.offset + len(line.data) for line in ends)
    text = context.lines(failure.file.name, start, min(end, start + BYTES))[1] or failure.line.text
    cut = f"\n[{end - start - BYTES} bytes left out]" if end - start > BYTES else ""
    return "\n".join(_own(text, failure)) + cut


def _own(text: str, failure: Failure) -> Iterator[str]:
    from ...reading.run.lines import strip

    for line in text.split("\n"):
        rank = strip(line).rank
        if rank is None or failure.rank is None or rank == failure.rank:
            yield line.rstrip("\r")


def _ranges(ranks: list[int]) -> str:
    """`0-7, 12`."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    told = [f"{a}" if a == b else f"{a}-{b}" for a, b in spans]
    return ", ".join(told[:RANKS]) + (f" and {len(told) - RANKS} more stretches" if len(told) > RANKS else "")
