"""Rows of parquet and arrow files, batch by batch, with what is broken told by row group or record batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ... import deadline
from ...errors import ParseError
from ..files import RunFile, open_regular
from .rows import NO_LINE, Fault, Row
from .text_rows import Tell

if TYPE_CHECKING:
    import pyarrow as pa

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
