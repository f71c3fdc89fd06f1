"""Rows of parquet and arrow files, batch by batch, with what is broken told by row group or record batch."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...core import deadline
from ...core.errors import ParseError
from ..run.files import RunFile, open_regular
from .dataset_files import NO_LINE, Fault, Row
from .text_rows import Tell

if TYPE_CHECKING:
    import pyarrow as pa

    from ..run.workspace import Workspace

ROWS = 256  # read at a time
FOOTER = 64 << 20  # bytes of a parquet footer that are believed
GROUP = 2 << 30  # uncompressed bytes of one row group that are read
BATCH = 512 << 20  # bytes of one arrow record batch that are read
CELLS = 20_000  # elements of a list in a cell that are looked at
MAGIC = b"PAR1"

Wanted = Callable[[int], bool]


def parquet_rows(file: RunFile, tell: Tell, wanted: Wanted) -> Iterator[Row]:
    """Rows of a parquet file. A row group that cannot be read is told, and the others are read."""
    why = _parquet_shape(file)
    if why:
        tell(Fault(file, "corrupt", why, member="footer"))
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file.path, memory_map=False, pre_buffer=False, page_checksum_verification=True) as opened:
            first = 0
            for group in range(opened.metadata.num_row_groups):
                shape = opened.metadata.row_group(group)
                if any(wanted(n) for n in range(first, first + shape.num_rows)):
                    yield from _group(opened, group, shape, first, file, tell, wanted)
                first += shape.num_rows
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as e:
        tell(Fault(file, "corrupt", f"parquet: {_said(e)}", member="footer"))


def _parquet_shape(file: RunFile) -> str:
    """What is wrong with the outermost structure, before a reader is let at it."""
    if file.size < 12:
        return f"{file.size} bytes are no parquet file"
    try:
        with open_regular(file.path) as raw:
            head = raw.read(4)
            raw.seek(file.size - 8)
            tail = raw.read(8)
    except (OSError, ParseError) as e:
        return f"cannot be read: {e}"
    if head != MAGIC:
        return "does not begin with PAR1"
    if tail[4:] != MAGIC:
        return "does not end with PAR1: cut off, or still being written"
    size = int.from_bytes(tail[:4], "little")
    return f"a footer of {size} bytes" if size > min(FOOTER, file.size - 12) else ""


def _group(opened: Any, group: int, shape: Any, first: int, file: RunFile, tell: Tell, wanted: Wanted) -> Iterator[Row]:
    import pyarrow as pa

    place = f"row group {group}"
    if shape.total_byte_size > GROUP:
        tell(Fault(file, "not_read", f"{place} of {shape.total_byte_size} bytes is not read", member=place))
        return
    seen = 0
    try:
        for batch in opened.iter_batches(batch_size=ROWS, row_groups=[group], use_threads=False):
            deadline.check()
            yield from _rows(batch, first + seen, seen, place, file, wanted)
            seen += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as e:
        tell(Fault(file, "corrupt", f"{place}: {_said(e)}", member=place))
        return
    if seen != shape.num_rows:
        tell(Fault(file, "corrupt", f"{place}: {seen} rows instead of {shape.num_rows}", member=place))


def arrow_rows(file: RunFile, tell: Tell, wanted: Wanted) -> Iterator[Row]:
    """Rows of an arrow file (random access or stream, as the datasets library writes it)."""
    import pyarrow as pa

    first = number = 0
    try:
        with open_regular(file.path) as raw:
            batches = _batches(raw, file, tell)
            for number, batch in enumerate(batches):
                deadline.check()
                if batch.nbytes > BATCH:
                    place = f"record batch {number}"
                    tell(Fault(file, "not_read", f"{place} of {batch.nbytes} bytes is not read", member=place))
                else:
                    batch.validate(full=True)
                    yield from _rows(batch, first, 0, f"record batch {number}", file, wanted)
                first += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError, ParseError) as e:
        tell(Fault(file, "corrupt", f"arrow, after {first} rows: {_said(e)}", member=f"record batch {number}"))


def _batches(raw: Any, file: RunFile, tell: Tell) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    head = raw.read(6)
    raw.seek(0)
    if head == b"ARROW1":
        opened = pa.ipc.open_file(pa.PythonFile(raw, mode="r"))
        for number in range(opened.num_record_batches):
            yield opened.get_batch(number)
        return
    with contextlib.closing(pa.ipc.open_stream(pa.PythonFile(raw, mode="r"))) as opened:
        yield from opened
    raw.seek(max(0, file.size - 8))
    if b"\xff\xff\xff\xff\0\0\0\0" not in raw.read(8) and file.size > 8:
        tell(Fault(file, "corrupt", "the stream has no end mark: cut off, or still being written", member="end"))


def _rows(batch: Any, first: int, within: int, place: str, file: RunFile, wanted: Wanted) -> Iterator[Row]:
    names = batch.schema.names
    size = batch.nbytes // max(1, batch.num_rows)
    for n in range(batch.num_rows):
        if not wanted(first + n):
            continue
        fields = {}
        for name, column in zip(names, batch.columns, strict=True):
            fields[name] = _value(column[n])
        yield Row(NO_LINE, fields, file, first + n, f"{place}, row {within + n}", size)


def _value(cell: Any) -> Any:
    """A cell as plain values. Text that is no UTF-8 stays text, with replacement."""
    try:
        value = cell.as_py()
    except UnicodeDecodeError:
        buffer = cell.as_buffer()
        return buffer.to_pybytes().decode(errors="replace") if buffer else None
    except (ValueError, OverflowError) as e:  # a time out of range
        return f"<{type(cell).__name__}: {_said(e)}>"
    return value[:CELLS] if isinstance(value, list) and len(value) > CELLS else value


def _said(e: BaseException) -> str:
    return (str(e).splitlines() or [type(e).__name__])[0][:200]


# ----------
# Images and sounds by their bytes: empty, cut off, or not what their name says. Nothing is decoded.

HEAD, TAIL = 64, 64  # bytes looked at

_MAGIC: dict[str, tuple[bytes, ...]] = {
    "jpg": (b"\xff\xd8\xff",), "jpeg": (b"\xff\xd8\xff",), "png": (b"\x89PNG\r\n\x1a\n",), 
    "gif": (b"GIF87a", b"GIF89a"),
    "bmp": (b"BM",), "webp": (b"RIFF",), "wav": (b"RIFF", b"RF64"), "flac": (b"fLaC",), "ogg": (b"OggS",),
    "mp3": (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa"), "tif": (b"II*\0", b"MM\0*"),
    "tiff": (b"II*\0", b"MM\0*"), "npy": (b"\x93NUMPY",),
}  # fmt: skip
_SUFFIX = re.compile(r"\.(\w+)$")


def medium_of(name: str) -> str:
    """The kind of picture or sound that a name claims; empty for anything else."""
    m = _SUFFIX.search(name.lower())
    return m[1] if m and m[1] in _MAGIC else ""


def fault_of(name: str, size: int, head: bytes, tail: bytes) -> str:
    """What is wrong with a picture or sound; empty where nothing is seen.

    Args:
        size: bytes of it.
        head: its first `HEAD` bytes.
        tail: its last `TAIL` bytes.
    """
    kind = medium_of(name)
    if not kind:
        return ""
    if size == 0:
        return "empty file"
    if not head.strip(b"\0"):
        return "only zero bytes at its start"
    if not head.startswith(_MAGIC[kind]):
        return f"no {kind}: it begins with {head[:8].hex(' ')}"
    if kind in ("jpg", "jpeg") and b"\xff\xd9" not in tail:
        return "cut off: a JPEG without its end mark"
    if kind == "png" and b"IEND" not in tail:
        return "cut off: a PNG without its end chunk"
    if kind == "gif" and not tail.rstrip(b"\0").endswith(b";"):
        return "cut off: a GIF without its trailer"
    if kind in ("wav", "webp") and head[:4] == b"RIFF":
        return _riff(kind, size, head)
    return ""


def _riff(kind: str, size: int, head: bytes) -> str:
    said = int.from_bytes(head[4:8], "little") + 8
    if said > size + 1 and said < 0xFFFFFF00:
        return f"cut off: {size} of {said} bytes"
    at = head.find(b"data")
    if kind == "wav" and 0 < at <= HEAD - 8 and int.from_bytes(head[at + 4 : at + 8], "little") == 0:
        return "a sound of length zero"
    return ""


# ----------
# Members of a tar shard (webdataset): listed without unpacking, samples that lack a part, pictures cut off.

MEMBERS = 1_000_000
MARK, KEPT = 512, 64 << 10  # bytes of the zeros that end an archive; bytes of the stream that are kept for them
TEXT = 1 << 20  # bytes of a text or JSON member that are read

_TEXTS = ("json", "txt", "cls", "caption", "text")
_BROKEN = (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError)


def archive_rows(ws: Workspace, file: RunFile, tell: Tell, wanted: Callable[[int], bool]) -> Iterator[Row]:
    """Samples of a shard: members of one key together, text parts read, other parts as their size in bytes."""
    number, key, parts = 0, "", {}
    stream = _Blocks(ws, file)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as opened:
            for count, member in enumerate(opened):
                deadline.check()
                if count >= MEMBERS:
                    tell(Fault(file, "not_read", f"only the first {MEMBERS} members were listed"))
                    break
                if not member.isfile():
                    continue
                name, _, suffix = _split(member.name)
                if name != key and parts:
                    if wanted(number):
                        yield Row(NO_LINE, parts, file, number, key, 0)
                    number, parts = number + 1, {}
                key = name
                if suffix in parts:
                    tell(Fault(file, "torn_records", f"{member.name} occurs twice in one sample", member=member.name))
                parts[suffix] = _part(opened, member, suffix, file, tell)
            else:
                if why := stream.ends(opened.offset):
                    tell(Fault(file, "corrupt", f"tar, after {key or 'nothing'}: {why}", member=key or "start"))
    except _BROKEN as e:
        said = (str(e).splitlines() or [type(e).__name__])[0][:200]
        tell(Fault(file, "corrupt", f"tar, after {key or 'nothing'}: {said}", member=key or "start"))
    if parts and wanted(number):
        yield Row(NO_LINE, parts, file, number, key, 0)


def _split(name: str) -> tuple[str, str, str]:
    folder, slash, base = name.rpartition("/")
    stem, dot, suffix = base.partition(".")
    return f"{folder}{slash}{stem}", dot, suffix.lower()


def _part(opened: tarfile.TarFile, member: tarfile.TarInfo, suffix: str, file: RunFile, tell: Tell) -> Any:
    last = suffix.rsplit(".", 1)[-1]
    if member.size == 0:
        tell(Fault(file, "empty_member", f"{member.name} is empty", member=member.name))
        return ""
    if not (medium_of(member.name) or last in _TEXTS):
        return member.size
    stream = opened.extractfile(member)
    if stream is None:
        return member.size
    if last in _TEXTS:
        data = stream.read(TEXT)
        if last != "json":
            return data.decode(errors="replace").strip()
        value = _json(data)
        if value is None and data.strip() != b"null":
            tell(Fault(file, "torn_records", f"{member.name} is no JSON", member=member.name))
        return value
    head = stream.read(HEAD)
    tail, left = head, member.size - len(head)
    while left > 0 and (block := stream.read(min(left, 1 << 20))):
        left -= len(block)
        tail = (tail + block)[-TAIL:]
    if why := fault_of(member.name, member.size, head, tail):
        tell(Fault(file, "broken_media", f"{member.name}: {why}", member=member.name))
    return member.size


def _json(data: bytes) -> Any:
    try:
        return json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


class _Blocks(io.RawIOBase):
    """The unpacked blocks of a file as the stream that tarfile reads."""

    def __init__(self, ws: Workspace, file: RunFile) -> None:
        self._blocks = ws.blocks(file)
        self._rest = memoryview(b"")
        self._kept, self._count = b"", 0  # the last bytes given out, and how many there were in all

    def ends(self, offset: int) -> str:
        """Why the archive does not end at `offset`, where the listing stopped; empty where its end mark is there."""
        start = offset - (self._count - len(self._kept))
        mark = self._kept[start : start + MARK] if start >= 0 else b""
        if len(mark) < MARK:
            return "no end mark: cut off, or still being written"
        return "a header that is none" if mark.strip(b"\0") else ""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        """As many bytes as are at hand, none only at the end."""
        if not self._rest:
            self._rest = memoryview(next(self._blocks, b""))
        part = self._rest[: len(into)]
        into[: len(part)] = part
        self._rest = self._rest[len(part) :]
        self._kept = (self._kept + bytes(part))[-KEPT:]
        self._count += len(part)
        return len(part)
