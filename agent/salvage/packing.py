"""Packed files byte for byte: gz, bz2, xz and zst taken off by what a file's first bytes say, put on by a name."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import zstandard

from ..errors import UsageError

_STEP = 64 << 10  # packed bytes at a time: they may become a thousand times as many
_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zst"}
_BROKEN = (zlib.error, zstandard.ZstdError, lzma.LZMAError, OSError, EOFError, ValueError)


def unpacked(path: Path) -> Iterator[bytes | None]:
    """Plain bytes in blocks; None at the end where the file is cut off or broken there.

    Raises:
        UsageError: it is UTF-16, whose lines are not told apart here.
    """
    with path.open("rb") as raw:
        head = raw.read(6)
        raw.seek(0)
        packing = _packing(head)
        blocks = iter(lambda: raw.read(_STEP if packing else 1 << 20), b"")
        plain = _plain(blocks, packing) if packing else blocks
        first = True
        for block in plain:
            if first and block and block[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise UsageError(f"{path} is UTF-16", "make it UTF-8 first, as with iconv -f UTF-16 -t UTF-8")
            first = False
            yield block


def _packing(head: bytes) -> str:
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")


def _plain(blocks: Iterator[bytes], packing: str) -> Iterator[bytes | None]:
    """The members of a packed file one after the other; zeros behind the last are padding."""
    one = _unpacker(packing)
    for block in blocks:
        while block:
            if one.eof:
                if not block.strip(b"\0"):
                    break
                one = _unpacker(packing)
            try:
                if plain := one.decompress(block):
                    yield plain
            except _BROKEN:
                yield None
                return
            block = one.unused_data if one.eof else b""
    if not one.eof:
        yield None


def _unpacker(packing: str) -> Any:
    if packing == "gz":
        return zlib.decompressobj(31)
    if packing == "zst":
        return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
    return bz2.BZ2Decompressor() if packing == "bz2" else lzma.LZMADecompressor()


def packed(path: Path, name: str) -> AbstractContextManager[Any]:
    """A new file to write plain bytes to, packed as the end of a name says."""
    suffix = name.rsplit(".", 1)[-1].lower()
    if suffix == "gz":
        return gzip.GzipFile(path, "xb", mtime=0)
    if suffix in ("bz2", "xz"):
        return bz2.open(path, "xb") if suffix == "bz2" else lzma.open(path, "xb")
    if suffix == "zst":
        return cast(AbstractContextManager[Any], zstandard.open(path, "xb"))
    return path.open("xb")
