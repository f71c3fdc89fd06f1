"""Packed and re-encoded files as plain UTF-8 blocks: gz, zst, bz2, xz within bounds, UTF-16 by its mark."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import zstandard

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
