"""Bad records of formats that are not copied (Parquet, Arrow, tar shards): their numbers, and code that uses them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from ..errors import ParseError, UsageError
from ..reading.datasets.rows import Source
from ..reading.files import open_regular
from .chosen import Chosen

LISTED = ("parquet", "arrow", "tar")


@dataclass(slots=True)
class RowList:
    """How many records there are, which are bad and why, and the keys of those of a shard."""

    records: int
    rows: dict[int, str] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)


def list_of(data: Path, source: Source, chosen: Chosen) -> RowList:
    """The bad records of a file by their numbers.

    Raises:
        UsageError: the file cannot be read, or a named record is none.
    """
    if chosen.lines:
        raise UsageError(f"{data} has no lines", "name its records with --rows")
    names: dict[str, int] = {}
    try:
        if source.kind == "tar":
            names = _samples(data)
            total = len(names)
        else:
            first, total = _parquet(data) if source.kind == "parquet" else _arrow(data)
            names = {p: _number(p, first) for p in chosen.places}
    except (OSError, ValueError, ParseError) as e:
        raise UsageError(f"{data} cannot be read: {str(e).splitlines()[0][:200]}") from None
    found = RowList(total, dict(chosen.numbers))
    for place, why in chosen.places.items():
        if names.get(place, -1) < 0:
            raise UsageError(f"{place} is no record of {data}", "nothing was written")
        found.rows.setdefault(names[place], why)
    if beyond := [n for n in found.rows if not 0 <= n < total]:
        raise UsageError(f"record {beyond[0]} of {data} is none: there are {total}, 0 to {total - 1}")
    if not found.rows:
        raise UsageError(f"no bad record among the {total} of {data}", "name them with --rows")
    if source.kind == "tar":
        by_number = {n: key for key, n in names.items()}
        found.keys = {by_number[n] for n in found.rows}
    return found


@dataclass(frozen=True, slots=True)
class Offset:
    """Rows of a saved dataset that stand before one of its files, and whether its `state.json` tells them."""

    rows: int = 0
    known: bool = False


def offset_of(data: Path) -> Offset:
    """Where the rows of an arrow file begin in the dataset that `save_to_disk` wrote it for."""
    state = data.parent / "state.json"
    try:
        listed = json.loads(state.read_text(encoding="utf-8"))["_data_files"]
        names = [str(one["filename"]) for one in listed]
        before = names[: names.index(data.name)]
        return Offset(sum(_arrow(data.parent / PurePath(n).name)[1] for n in before), True)
    except (OSError, ValueError, KeyError, TypeError, ParseError):
        return Offset()


def snippet(kind: str, output: Path, offset: int) -> list[str]:
    """Code that leaves the records out.

    Args:
        offset: rows of the dataset that stand before those of the file.
    """
    what = "keys" if kind == "tar" else "excluded"
    bad = f"bad = set(json.load(open({str(output)!r}))[{what!r}])"
    if kind == "tar":
        return [bad, 'dataset = dataset.select(lambda sample: sample["__key__"] not in bad)']
    own = f"i - {offset}" if offset else "i"
    return [bad, f"dataset = dataset.select([i for i in range(len(dataset)) if {own} not in bad])"]


def _number(place: str, first: dict[str, int]) -> int:
    """`row group 3, row 17` as a number in the file; -1 where it is none."""
    group, _, row = place.partition(", row ")
    return first[group] + int(row) if group in first and row.isdigit() else -1


def _parquet(data: Path) -> tuple[dict[str, int], int]:
    import pyarrow.parquet as pq

    first, count = {}, 0
    with pq.ParquetFile(data, memory_map=False) as opened:
        for n in range(opened.metadata.num_row_groups):
            first[f"row group {n}"] = count
            count += opened.metadata.row_group(n).num_rows
    return first, count


def _arrow(data: Path) -> tuple[dict[str, int], int]:
    import pyarrow as pa

    first, count = {}, 0
    with open_regular(data) as raw:
        head = raw.read(6)
        raw.seek(0)
        stream: Any = pa.PythonFile(raw, mode="r")
        batches: Any
        if head == b"ARROW1":
            opened = pa.ipc.open_file(stream)
            batches = (opened.get_batch(n) for n in range(opened.num_record_batches))
        else:
            batches = pa.ipc.open_stream(stream)
        for n, batch in enumerate(batches):
            first[f"record batch {n}"] = count
            count += batch.num_rows
    return first, count


def _samples(data: Path) -> dict[str, int]:
    """Keys of the samples of a shard, in their order."""
    import tarfile

    from .chosen import sample_of

    found: dict[str, int] = {}
    last = None
    try:
        with tarfile.open(data, mode="r:*") as opened:
            for member in opened:
                if member.isfile() and (key := sample_of(member.name)) != last:
                    last = key
                    found.setdefault(key, len(found))
    except (tarfile.TarError, EOFError) as e:
        if not found:
            raise ValueError(str(e)) from None
    return found
