"""A data file without its bad records: the lines that are kept are the same bytes; other formats get a list."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ...core.errors import UsageError
from ...reading.datasets.dataset_files import Source, sources
from ...reading.run.workspace import Workspace
from .chosen_records import LISTED, Chosen, list_of, look_through, offset_of, snippet
from .copying import Progress, beside, packed, publish, refuse_existing, refuse_full, unpacked

# ----------
# Records of a text file as the bytes they are: lines, rows of a table that span lines, elements of a JSON array.


MARK = b"\xef\xbb\xbf"
ARRAY = 512 << 20  # bytes of a JSON array that is held in memory
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|"|[{}\[\]]', re.DOTALL)
_BETWEEN = re.compile(rb"\s*,\s*")


@dataclass(slots=True)
class Piece:
    """A stretch of the file. `number` counts records from 0; None where it is none (a header, a blank line)."""

    data: bytes
    number: int | None
    line: int
    torn: bool = False


def lines(blocks: Iterator[bytes | None]) -> Iterator[Piece]:
    """Lines with their ends; blank ones are no records.

    Args:
        blocks: as `packing.unpacked` gives them.
    """
    number = 0
    for line, (data, torn) in enumerate(_raw_lines(blocks), start=1):
        content = data.strip(b" \t\r\n\xef\xbb\xbf" if line == 1 else b" \t\r\n")
        yield Piece(data, number if content else None, line, torn)
        number += bool(content)


def rows(blocks: Iterator[bytes | None], separator: str) -> Iterator[Piece]:
    """Rows of a table with a header, each with all of its lines.

    Raises:
        UsageError: its rows cannot be told apart.
    """
    feed = _Feed(blocks)
    number, header = 0, False
    csv.field_size_limit(sys.maxsize)
    try:
        for cells in csv.reader(feed, delimiter=separator):
            data, line, torn = feed.take()
            if not cells or not header:
                header = header or bool(cells)
                yield Piece(data, None, line, torn)
                continue
            yield Piece(data, number, line, torn)
            number += 1
    except csv.Error as e:
        raise UsageError(f"line {feed.line}: its rows cannot be told apart: {e}") from None
    finally:
        csv.field_size_limit(131072)


class _Feed:
    """Text lines for a CSV reader; their bytes are kept until the row is complete."""

    def __init__(self, blocks: Iterator[bytes | None]) -> None:
        self._lines = _raw_lines(blocks)
        self._held: list[bytes] = []
        self._torn = False
        self.line = 0  # of the row under way
        self._count = 0

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        data, self._torn = next(self._lines)
        self._count += 1
        if not self._held:
            self.line = self._count
        self._held.append(data)
        text = data.decode(errors="replace").replace("\0", "\ufffd")
        return text.removeprefix("\ufeff") if self._count == 1 else text

    def take(self) -> tuple[bytes, int, bool]:
        """Bytes of the row, its first line, whether the file ends within it."""
        data, self._held = b"".join(self._held), []
        return data, self.line, self._torn


def elements(path: Path, data: bytes) -> tuple[bytes, list[Piece], bytes]:
    """The objects of the first array of objects: what stands before them, each with what parts it from the one
    before, what stands after.

    Raises:
        UsageError: there is no such array, or something else stands between its objects.
    """
    spans = _spans(data)
    if not spans:
        raise UsageError(f"{path}: no array of records", "nothing was written")
    found: list[Piece] = []
    end = line_at = 0
    line = 1
    for number, (start, stop) in enumerate(spans):
        if number and not _BETWEEN.fullmatch(data[end:start]):
            raise UsageError(f"{path}: something else than objects stands in the array", "nothing was written")
        line += data.count(b"\n", line_at, start)
        found.append(Piece(data[end if number else start : stop], number, line))
        end, line_at = stop, start
    return data[: spans[0][0]], found, data[end:]


def _spans(data: bytes) -> list[tuple[int, int]]:
    """Start and end of each object that stands directly in the first array of objects."""
    stack: list[bytes] = []
    spans: list[tuple[int, int]] = []
    level = start = 0
    for m in _TOKEN.finditer(data):
        token = m[0]
        if token in (b"{", b"["):
            if token == b"{" and stack[-1:] == [b"["] and not level:
                level = len(stack)
            if token == b"{" and level == len(stack):
                start = m.start()
            stack.append(token)
        elif token in (b"}", b"]"):
            if not stack:
                return []
            stack.pop()
            if level and len(stack) == level and token == b"}":
                spans.append((start, m.end()))
            elif level and len(stack) < level:
                return spans
    return []


def _raw_lines(blocks: Iterator[bytes | None]) -> Iterator[tuple[bytes, bool]]:
    """Lines with their ends; the second is set for what stands at the end of a file that was cut off."""
    parts: list[bytes] = []
    for block in blocks:
        if block is None:
            yield b"".join(parts), True
            return
        first, newline, rest = block.partition(b"\n")
        parts.append(first + newline)
        if not newline:
            continue
        yield b"".join(parts), False
        whole = rest.rfind(b"\n") + 1
        for line in io.BytesIO(rest[:whole]):
            yield line, False
        parts = [rest[whole:]]
    if any(parts):
        yield b"".join(parts), False


# ----------

_MANY = 0.1  # share of the records from which the checks rather than the data may be at fault
_TABLES = {"csv": ",", "tsv": "\t"}


@dataclass(slots=True)
class Excluded:
    """What was written: records kept and left out, and how to use the new file.

    Attributes:
        records: all of them, kept and excluded.
        excluded: places of those left out with why, the first ones.
        use: how to train without them.
        notes: what a person must know.
    """

    output: Path
    kind: str
    records: int = 0
    kept: int = 0
    excluded: list[str] = field(default_factory=list)
    use: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def exclude(data: Path, output: Path, chosen: Chosen, scan: bool, also: list[Path], progress: Progress) -> Excluded:
    """Write `output` without the bad records of `data`, which is only read.

    Args:
        chosen: the bad records; `scan` looks through the file for more (of the kinds in `chosen`, else of all).
        also: folders of the run, whose settings say how long a record may be.

    Raises:
        UsageError: either end does not fit, the format holds no records, or nothing is to be left out.
    """
    if data.is_dir():
        found = sorted(p.name for p in data.iterdir() if p.is_file())[:6]
        raise UsageError(f"{data} is a folder", f"name one file of it: {', '.join(found)}")
    refuse_existing(data, output)
    try:
        ws, source = _opened(data, also)
        unread = look_through(ws, source, chosen, progress) if scan else []
        done = _written(data, output, source, chosen, progress)
    except OSError as e:
        raise UsageError(f"{output} was not written: {e.strerror or e}") from None
    done.notes += [f"not looked at: {why}" for why in unread[:5]]
    if scan and len(done.excluded) > _MANY * done.records:
        share = len(done.excluded) / done.records
        done.notes.append(f"That is {share:.0%} of the records: look at some of them before you train without them.")
    return done


def _opened(data: Path, also: list[Path]) -> tuple[Workspace, Source]:
    roots = [p for p in dict.fromkeys(also) if p.exists() and p.resolve() != data.resolve()]
    ws = Workspace([data, *roots], live=False, may_be_empty=True)
    file = next((f for f in ws.files if f.run == "r1"), None)
    if file is None:
        why = next((why for _, why in ws.skipped), "not a regular file")
        raise UsageError(f"{data} cannot be read: {why}")
    found = sources(ws, file.name)
    return ws, found[0] if found else Source(file, "jsonl")


def _written(data: Path, output: Path, source: Source, chosen: Chosen, progress: Progress) -> Excluded:
    kind = source.kind
    if kind in ("megatron", "tokens", "array"):
        raise UsageError(
            f"{data.name} holds token ids and no records",
            "leave the records out of the text that it was made of, and tokenize that again",
        )
    whole = kind == "json" and not _is_lines(data)
    refuse_full(output, 64 << 20 if kind in LISTED else data.stat().st_size)
    with beside(output) as folder:
        made = folder / "made"
        if kind in LISTED or (whole and data.stat().st_size > ARRAY):
            done = _listed(data, output, source, chosen, made)
        else:
            done = _copied(data, output, "json" if whole else kind, chosen, made, progress)
        made.chmod(data.stat().st_mode & 0o666)
        publish(made, output)
    return done


def _is_lines(data: Path) -> bool:
    """Whether a .json holds one object a line in spite of its name."""
    head = b"".join(b or b"" for b, _ in zip(unpacked(data), range(4), strict=False)).strip()
    first = head.split(b"\n", 1)[0].rstrip()
    return head[:1] == b"{" and first[-1:] == b"}" and b"\n" in head


def _copied(data: Path, output: Path, kind: str, chosen: Chosen, made: Path, progress: Progress) -> Excluded:
    """A text without the bad records; every other byte as it was."""
    done = Excluded(output, kind, use=[f"train on {output} in place of {data}"])
    met = _Met(chosen)
    with packed(made, output.name) as new:
        if kind == "json":
            _array(data, new, met, done)
        else:
            pieces = rows(unpacked(data), _TABLES[kind]) if kind in _TABLES else lines(unpacked(data))
            _stream(pieces, new, met, done, progress)
    with made.open("rb") as f:
        os.fsync(f.fileno())
    met.check(data, done)
    return done


def _stream(pieces: Iterator[Piece], new: IO[bytes], met: _Met, done: Excluded, progress: Progress) -> None:
    first = True
    for piece in pieces:
        progress(len(piece.data))
        if piece.torn:
            done.notes.append(f"the file is cut off or broken after {done.records} records; its torn end is left out")
            met.torn(piece)
            continue
        done.records += piece.number is not None
        if why := met.why(piece):
            done.excluded.append(f"line {piece.line} (record {piece.number}): {why}")
            if first and piece.data.startswith(MARK):
                new.write(MARK)  # it belongs to the file, not to the record
        else:
            new.write(piece.data)
        first = False
    done.kept = done.records - len(done.excluded)


def _array(data: Path, new: IO[bytes], met: _Met, done: Excluded) -> None:
    before, found, after = elements(data, b"".join(b or b"" for b in unpacked(data)))
    met.parted(data, Counter(p.line for p in found))
    new.write(before)
    for piece in found:
        if why := met.why(piece):
            done.excluded.append(f"record {piece.number} (line {piece.line}): {why}")
            continue
        new.write(piece.data if done.kept else piece.data[piece.data.index(b"{") :])
        done.kept += 1
    new.write(after)
    done.records = len(found)


def _listed(data: Path, output: Path, source: Source, chosen: Chosen, made: Path) -> Excluded:
    """The numbers of the bad records in a file of their own, and the lines of code that leave them out."""
    found = list_of(data, source, chosen)
    written = {
        "schema": "traindoctor.excluded/1", "data": str(data.absolute()), "records": found.records,
        "kept": found.records - len(found.rows), "excluded": sorted(found.rows),
    }  # fmt: skip
    if found.keys:
        written["keys"] = sorted(found.keys)
    offset = offset_of(data)
    beside_it = sorted(p.name for p in data.parent.glob(f"*{data.suffix}") if p != data)
    notes = []
    if beside_it and not found.keys and not offset.known:
        notes = [f"Numbers count within {data.name} alone: {beside_it[0]} lies beside it."]
    made.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    named = [f"record {n}: {why}" for n, why in sorted(found.rows.items())]
    use = snippet(source.kind, output, offset.rows)
    return Excluded(output, source.kind, found.records, written["kept"], named, use, notes)


class _Met:
    """Which of the named records were met."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self._numbers: set[int] = set()
        self._lines: set[int] = set()

    def why(self, piece: Piece) -> str:
        """Why a record is left out; empty where it is kept."""
        if piece.number is None:
            return ""
        by_number, by_line = self._chosen.numbers.get(piece.number), self._chosen.lines.get(piece.line)
        if by_number is not None:
            self._numbers.add(piece.number)
        if by_line is not None:
            self._lines.add(piece.line)
        return by_number or by_line or ""

    def torn(self, piece: Piece) -> None:
        """What is left of the last record is left out in any case."""
        self._lines.add(piece.line)
        if piece.number is not None:
            self._numbers.add(piece.number)

    def parted(self, data: Path, held: Counter[int]) -> None:
        """Take back lines that hold several records: which one is meant only a look through the file tells.

        Raises:
            UsageError: there was none.
        """
        for line in [n for n in self._chosen.lines if held[n] > 1]:
            if not self._chosen.kinds:
                raise UsageError(f"line {line} of {data} holds {held[line]} records", "name them with --rows")
            del self._chosen.lines[line]

    def check(self, data: Path, done: Excluded) -> None:
        """Refuse names that stand for no record, and a new file that would be the old one.

        Raises:
            UsageError: so.
        """
        for kind, named, met in (
            ("record", self._chosen.numbers, self._numbers), ("line", self._chosen.lines, self._lines),
        ):  # fmt: skip
            if missing := sorted(named.keys() - met):
                there = f"there are {done.records} records, 0 to {done.records - 1}" if kind == "record" else (
                    "no record starts on it"
                )  # fmt: skip
                raise UsageError(f"{kind} {missing[0]} of {data} is none: {there}", "nothing was written")
        if not done.excluded and not done.notes:
            raise UsageError(f"no bad record among the {done.records} of {data}", "name them with --rows or --lines")
