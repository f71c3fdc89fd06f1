"""Real copies, made beside their destination and moved there whole."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePath
from shlex import quote
from typing import Any, cast

import zstandard

from ...core.errors import UsageError

_BLOCK = 4 << 20
_SPARE = 64 << 20  # bytes that stay free
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # of some file systems

Progress = Callable[[int], None]


def refuse_existing(source: Path, output: Path) -> None:
    """Check both ends before anything is written.

    Raises:
        UsageError: no such file; the output exists, lies in what it is made from, or has no folder to lie in.
    """
    if not source.exists():
        raise UsageError(f"no such file or folder: {source}")
    if os.path.lexists(output):
        raise UsageError(f"{output} exists", "name a new folder or file; nothing is overwritten")
    if not output.parent.is_dir():
        raise UsageError(f"no such folder: {output.parent}")
    if output.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"{output} lies inside {source}, which it is made from")


def refuse_full(output: Path, needed: int) -> None:
    """Check that there is room for `needed` bytes.

    Raises:
        UsageError: there is not.
    """
    free = shutil.disk_usage(output.parent).free
    if free < needed + _SPARE:
        raise UsageError(f"{needed / 2**30:.2f} GiB are needed beside {output}, {free / 2**30:.2f} GiB are free")


@contextmanager
def beside(output: Path) -> Iterator[Path]:
    """A temporary folder next to the output, gone at the end whatever happened.

    Raises:
        UsageError: the folder cannot be written to.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{output.name}.doctor-", dir=output.parent))
    except OSError as e:
        raise UsageError(f"cannot write to {output.parent}: {e.strerror}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copy_bytes(source: Path, target: Path, progress: Progress) -> None:
    """Byte for byte, without sharing blocks with the source; on disk when it returns."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as old, target.open("xb") as new:
        while block := old.read(_BLOCK):
            new.write(block)
            progress(len(block))
        new.flush()
        os.fsync(new.fileno())
    shutil.copystat(source, target)


def publish(made: Path, output: Path) -> None:
    """Move what was made to its final name in one step; never over something that came to be there meanwhile.

    Raises:
        UsageError: the name was taken.
    """
    try:
        if made.is_dir():
            made.rename(output)  # takes the place of nothing, or of an empty folder
        else:
            _place(made, output)
    except (FileExistsError, NotADirectoryError):
        raise _taken(output) from None
    except OSError as e:
        if e.errno != errno.ENOTEMPTY:
            raise
        raise _taken(output) from None
    _settle(output.parent)


def _place(made: Path, output: Path) -> None:
    try:
        os.link(made, output)
    except OSError as e:
        if e.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(output):
            raise FileExistsError(errno.EEXIST, "exists", str(output)) from None
        made.rename(output)


def _taken(output: Path) -> UsageError:
    return UsageError(f"{output} came to exist meanwhile", "nothing was overwritten")


def _settle(folder: Path) -> None:
    """The new name on disk too; a file system that cannot do this for folders is let be."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


# ----------
# Packed files byte for byte: gz, bz2, xz and zst taken off by what a file's first bytes say, put on by a name.

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


# ----------
# Names of files as words of a shell: whatever they hold, the shell takes them for one word and no option.

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\udc80-\udcff]")
_ESCAPED = re.compile(rf"{_CONTROL.pattern}|['\\]")


def word(name: str | PurePath) -> str:
    """One word: quoted where need be, `./` before a dash, `$'...'` where it holds what a terminal would obey."""
    text = str(name)
    if text.startswith("-"):
        text = f"./{text}"
    if not _CONTROL.search(text):
        return quote(text)
    return f"$'{_ESCAPED.sub(_bytes, text)}'"


def _bytes(found: re.Match[str]) -> str:
    return "".join(f"\\x{b:02x}" for b in found[0].encode("utf-8", "surrogateescape"))
