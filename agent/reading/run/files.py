"""Bytes of a run's files: opened safely, decompressed within bounds, cut into lines."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import zstandard

from ...core.errors import ParseError

# ----------
# Packed and re-encoded files as plain UTF-8 blocks: gz, zst, bz2, xz within bounds, UTF-16 by its mark.


INFLATED_LIMIT = 2 << 30  # bytes that one packed file may become
RATIO_LIMIT = 200  # and how many times its own size, once it is past the grace
RATIO_GRACE = 32 << 20
STEP = 1 << 20

Tell = Callable[[str], None]

_MAGIC: dict[bytes, str] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
_BROKEN = (zlib.error, zstandard.ZstdError, lzma.LZMAError, OSError, EOFError, ValueError)


class _Packed(io.RawIOBase):
    """The packed blocks as a stream that knows how much was taken from it."""

    def __init__(self, packed: Iterator[bytes]) -> None:
        self._packed, self._rest, self.eaten = packed, b"", 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        self._rest = self._rest or next(self._packed, b"")
        part = self._rest[: len(into)]
        into[: len(part)] = part
        self._rest = self._rest[len(part) :]
        self.eaten += len(part)
        return len(part)


def decoded(raw: Iterator[bytes], tell: Tell) -> Iterator[bytes]:
    """The blocks of a file with packing and UTF-16 taken off; plain bytes pass through untouched."""
    head = next(raw, b"")
    whole = chain((head,), raw)
    if packing := packing_of(head):
        plain = _inflate(_Packed(whole), packing, tell)
        head = next(plain, b"")
        whole = chain((head,), plain)
    encoding = utf16(head)
    yield from _recoded(whole, encoding) if encoding else (block for block in whole if block)


def packing_of(head: bytes) -> str | None:
    """The packing that the first bytes show."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def utf16(head: bytes) -> str | None:
    """The UTF-16 codec a text is in, by its mark or by where its zero bytes lie; None for anything else."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = head[:2048]
    if len(sample) < 8:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) // 2
    if odd > 0.8 * half and even < 0.1 * half:
        return "utf-16-le"
    if even > 0.8 * half and odd < 0.1 * half:
        return "utf-16-be"
    return None


def _recoded(plain: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for block in plain:
        if text := decoder.decode(block):
            yield text.encode(errors="replace")
    if text := decoder.decode(b"", final=True):
        yield text.encode(errors="replace")


def _inflate(packed: _Packed, packing: str, tell: Tell) -> Iterator[bytes]:
    """Unpack within the bounds; a broken or cut-off end is told, what came before it stands."""
    made = 0
    read = _reader(packed, packing)
    try:
        while plain := read(STEP):
            made += len(plain)
            if made > INFLATED_LIMIT or (made > RATIO_GRACE and made > RATIO_LIMIT * packed.eaten):
                tell(f"{packing}: unpacks to more than allowed, stopped after {made >> 20} MiB")
                return
            yield plain
    except _BROKEN as e:
        tell(f"{packing}: cut off or broken after {made} bytes ({e or type(e).__name__})")


def _reader(packed: _Packed, packing: str) -> Callable[[int], bytes]:
    source: Any = io.BufferedReader(packed, 1 << 14)
    if packing == "gzip":
        return gzip.GzipFile(fileobj=source).read1
    if packing == "zstd":
        return zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(source, read_across_frames=True).read
    return bz2.BZ2File(source).read1 if packing == "bzip2" else lzma.LZMAFile(source).read1


# ----------

BLOCK = 1 << 20
LINE_LIMIT = 1 << 16  # bytes of one line that are looked at; the rest is passed over and counted
SIZELESS_LIMIT = 64 << 20  # of files that claim no size (as in /proc)

FilesTell = Callable[[str], None]


def _quiet(_why: str) -> None:
    """Nobody listens to what could not be read."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file of the run.

    `name` is relative to the run (with `r2/` in front when there are several); `role` is one of log, config,
    metrics, checkpoint, data, code, environment, capture, trace, note, record, other. `rank`, `host`, `attempt` and
    `variant` are what the file's name and folders tell.
    """

    name: str
    path: Path
    role: str
    size: int
    run: str = "r1"
    rank: int | None = None
    attempt: int | None = None
    variant: str | None = None
    good: bool = False
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file: number from 1 by counting newlines, byte offset, bytes without the newline.

    In a compressed or UTF-16 file offsets count decoded bytes.
    """

    number: int
    offset: int
    data: bytes
    cut: bool = False

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


def open_regular(path: Path) -> BinaryIO:
    """Open for reading, refusing anything that is not a regular file.

    Raises:
        ParseError: not a regular file, or not readable.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as e:
        raise ParseError(f"cannot open: {getattr(e, 'strerror', None) or e}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ParseError("not a regular file")
    return os.fdopen(fd, "rb", buffering=0)


def raw_blocks(path: Path, start: int = 0, tell: FilesTell = _quiet, size: int = BLOCK) -> Iterator[bytes]:
    """Bytes as they lie on disk from `start`, up to the size the file has when it is opened.

    A file that grows meanwhile is read as it was, one that shrinks or fails ends early and says so.

    Args:
        size: of a block.
    """
    with open_regular(path) as raw:
        left = (os.fstat(raw.fileno()).st_size or SIZELESS_LIMIT) - start
        try:
            if start:
                raw.seek(start)
            while left > 0 and (block := raw.read(min(size, left))):
                left -= len(block)
                yield block
        except OSError as e:
            tell(f"reading stopped: {e.strerror}")
            return
    if left > 0 and left < SIZELESS_LIMIT - start:
        tell("shrank while it was read")


def blocks(path: Path, tell: FilesTell = _quiet) -> Iterator[bytes]:
    """Content in blocks of about 1 MiB: gz, zst, bz2 and xz decompressed within bounds, UTF-16 as UTF-8.

    Args:
        tell: hears one line about what could not be read (a truncated archive, a bomb); what was read stands.
    """
    return decoded(raw_blocks(path, tell=tell), tell)


def head(path: Path, size: int) -> bytes:
    """The first decompressed bytes, for which no more of the file is read than they take."""
    data = bytearray()
    for block in decoded(raw_blocks(path, size=max(size, 1024)), _quiet):
        data += block
        if len(data) >= size:
            break
    return bytes(data[:size])


def holds(path: Path, literals: tuple[bytes, ...]) -> bool:
    """Whether any of these short texts is in a file; far cheaper than to read its lines."""
    overlap, rest = max(map(len, literals)) - 1, b""
    for block in blocks(path):
        data = rest + block
        if any(text in data for text in literals):
            return True
        rest = data[-overlap:] if overlap else b""
    return False


def lines(path: Path, tell: FilesTell = _quiet) -> Iterator[Line]:
    """Every line of a file in order; of a line over `LINE_LIMIT` only the start is kept, in bounded memory."""
    number, offset, rest, lost = 0, 0, b"", 0
    for block in blocks(path, tell):
        parts = block.split(b"\n")
        for part in parts[:-1]:
            number += 1
            data = rest + part
            size = len(data) + lost
            yield Line(number, offset, data[:LINE_LIMIT], size > LINE_LIMIT)
            offset += size + 1
            rest, lost = b"", 0
        rest += parts[-1]
        if len(rest) > LINE_LIMIT:
            lost += len(rest) - LINE_LIMIT
            rest = rest[:LINE_LIMIT]
    if rest:
        yield Line(number + 1, offset, rest, lost > 0)


# ----------
# Blocks of whole lines out of a stream of bytes, in bounded memory whatever the lines are like.

LONGEST = 4 << 20  # bytes of one line that are held together; a longer one is cut at a carriage return, or anywhere


@dataclass(frozen=True, slots=True)
class Piece:
    """A block that ends where a line ends (or where a huge line was cut).

    `offset` is its place in the file, `lines` the number of newlines before it, counted from where reading began;
    `line_offset` where the line it starts in began (its own offset, except within a huge line).
    """

    offset: int
    lines: int
    line_offset: int
    data: bytes


def newlines(data: bytes) -> int:
    """Newlines in a block; the fastest count at hand."""
    return int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8) == 10))


def pieces(stream: Iterable[bytes], offset: int = 0) -> Iterator[Piece]:
    """Cut a stream into pieces."""
    rest, lines, line_offset = b"", 0, offset
    for data in stream:
        held = rest + data if rest else data
        cut = held.rfind(b"\n") + 1
        if not cut:
            if len(held) < LONGEST:
                rest = held
                continue
            cut = held.rfind(b"\r") + 1 or len(held)
        block = held[:cut] if cut < len(held) else held
        yield Piece(offset, lines, line_offset, block)
        offset += cut
        if block.endswith(b"\n"):
            line_offset = offset
        lines += newlines(block)
        rest = held[cut:]
    if rest:
        yield Piece(offset, lines, line_offset, rest)


def part(stream: Iterable[bytes], start: int, end: int) -> Iterator[Piece]:
    """Pieces of the lines that start in `[start, end)`; `stream` begins at `start - 1` (or at 0).

    Several parts that touch give every line of a file exactly once.
    """
    cut = _from_first_line(stream) if start else ((0, data) for data in stream)
    first = next(cut, None)
    if first is None:
        return
    skipped, data = first
    begin = start - 1 + skipped if start else 0
    for piece in pieces(_chain(data, cut), begin):
        if piece.line_offset >= end:
            return
        stop = piece.offset + len(piece.data)
        if stop > end:
            at = piece.data.find(b"\n", max(end - 1 - piece.offset, 0)) + 1
            if at:
                yield Piece(piece.offset, piece.lines, piece.line_offset, piece.data[:at])
                return
        yield piece


def _chain(data: bytes, rest: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
    if data:
        yield data
    for _, block in rest:
        yield block


def _from_first_line(stream: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """What follows the first newline; the first item also tells how many bytes were passed over."""
    skipped, found = 0, False
    for data in stream:
        if found:
            yield 0, data
            continue
        at = data.find(b"\n")
        if at < 0:
            skipped += len(data)
            continue
        found = True
        yield skipped + at + 1, data[at + 1 :]


# ----------
# The end of a file: its last line with text, numbered without keeping the file.


def last_line(file: RunFile) -> Line | None:
    """The last line that is not blank; None when there is none or the file cannot be read."""
    number, offset, rest = 1, 0, b""
    try:
        for block in blocks(file.path):
            data = rest + block
            # keep from the start of the last line with text that this block shows
            start = data.rfind(b"\n", 0, len(data.rstrip())) + 1
            number += data.count(b"\n", 0, start)
            offset += start
            rest = data[start:]
    except (OSError, EOFError, ParseError):
        if not rest:
            return None
    line = rest.split(b"\n", 1)[0]
    return Line(number, offset, line[:LINE_LIMIT], len(line) > LINE_LIMIT) if line.strip() else None
