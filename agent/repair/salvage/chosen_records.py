"""Which records of a data file are bad: named by a person, cited by a report, or found by the checks of records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from ...core.errors import ParseError, UsageError
from ...reading.datasets.dataset_files import Fault, Source, limits
from ...reading.datasets.record_questions import NAMES, faults_of, held_media
from ...reading.datasets.sampling import Look, stream
from ...reading.datasets.tokenizers import tokenizer
from ...reading.run.files import open_regular
from ...reading.run.workspace import Workspace
from .copying import Progress

_RANGES = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
_MOST = 10_000_000  # records that a list may name
_NOT_BAD = ("step", "range", "order", "logged_indices", "mapping", "of_step")  # keys below `sample.` that blame nothing
_BY_NAME = ("loss_not_finite", "loss_outlier")  # their value is the identity of a sample
_IDENTITY = ("id", "idx", "index", "sample_id", "sample_idx", "example_id", "uid", "data_id")
_TORN = ("torn_records", "broken_media", "empty_member")  # faults of a file that are those of one record


@dataclass(slots=True)
class Chosen:
    """Bad records in the words they were named in, each with why.

    Attributes:
        numbers: by their number, from 0.
        lines: by the line that they start on, from 1.
        places: by their place in a file without lines: `row group 3, row 17`, the key of a sample in a shard.
        names: by the value of a field such as `id`.
        kinds: keys below `sample.` of which all records of the file are meant.
    """

    numbers: dict[int, str] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)

    @property
    def scanned(self) -> bool:
        """Whether the file has to be looked through to know its bad records."""
        return bool(self.kinds or self.names)


def numbered(text: str, what: str) -> dict[int, str]:
    """Numbers and ranges such as `12,17-20`.

    Raises:
        UsageError: they are none, or far too many.
    """
    text = re.sub(r"\s", "", text)
    if not _RANGES.fullmatch(text):
        raise UsageError(f"{what} {text[:60]!r} are no numbers", "as in 12,17-20")
    found: dict[int, str] = {}
    for part in text.split(","):
        first, _, last = part.partition("-")
        span = range(int(first), int(last or first) + 1)
        if not span or len(span) + len(found) > _MOST:
            raise UsageError(f"{what} {part[:60]!r} {'run backwards' if not span else 'are too many'}")
        found.update(dict.fromkeys(span, "named"))
    return found


def cited(data: Path, roots: dict[str, Path], evidence: Iterable[Any]) -> Chosen:
    """What the evidence of a report says about a file.

    Args:
        roots: folders of the runs by their ids; file names count from them.
        evidence: the report's, as `CitedEvidence`.
    """
    found = Chosen()
    for e in evidence:
        family, _, kind = str(e.key).partition(".")
        kind = str(NAMES.get(kind, kind)) if family == "data" else kind
        blamed = family == "sample" or (family == "data" and kind in (*NAMES.values(), "torn_records"))
        if e.kind == "absent" or not blamed or kind in _NOT_BAD:
            continue
        if kind in _BY_NAME:
            found.names[str(e.value)] = kind
        elif e.file and _is(data, roots, e):
            if kind != "bad_in_step":
                found.kinds.add(kind)
            if e.line:
                found.lines[e.line] = kind
            elif e.member:
                found.places[e.member] = kind
    return found


def _is(data: Path, roots: dict[str, Path], evidence: Any) -> bool:
    """Whether evidence speaks of this file; by its last name where the run is no longer there."""
    name = evidence.file.removeprefix(f"{evidence.run}/") if len(roots) > 1 else evidence.file
    root = roots.get(evidence.run)
    if root is None or not root.exists():
        return PurePosixPath(name).name == data.name
    there = root / name if root.is_dir() else root.parent / name
    return there.resolve() == data.resolve()


def look_through(ws: Workspace, source: Source, chosen: Chosen, progress: Progress) -> list[str]:
    """Add the records that the checks find to those that are known; what could not be read is returned.

    With no kinds and no names in `chosen`, all that is wrong with a record counts.
    """
    known, encoder, held = limits(ws), tokenizer(ws), held_media(ws)
    vocabulary = known.vocabulary or (encoder.size if encoder else None)
    every = not chosen.scanned
    one = _Every(source)
    unread: list[str] = []
    try:
        for row in stream(ws, source, one):
            progress(row.size)
            bad = [key for key, _ in faults_of(row, known, vocabulary, held) if every or key in chosen.kinds]
            name = next((str(row.fields[n]) for n in _IDENTITY if n in row.fields), str(row.number))
            if name in chosen.names:
                bad.append(chosen.names[name])
            if bad:
                chosen.numbers.setdefault(row.number, ", ".join(bad))
    except ParseError as e:
        unread.append(str(e))
    for fault in one.faults:
        _add(chosen, fault, every, unread)
    return unread


class _Every(Look):
    """A pass that forgets no fault: here each one counts."""

    def tell(self, fault: Fault) -> None:
        self.faults.append(fault)


def _add(chosen: Chosen, fault: Fault, every: bool, unread: list[str]) -> None:
    if fault.kind not in _TORN:
        unread.append(fault.text)
    elif not every and fault.kind not in chosen.kinds:
        return
    elif fault.line is not None:
        chosen.lines.setdefault(fault.line.number, fault.kind)
    elif fault.member:
        chosen.places.setdefault(sample_of(fault.member), fault.kind)


def sample_of(member: str) -> str:
    """The key of the sample that a member of a shard belongs to: its name up to the first dot of the last part."""
    folder, slash, base = member.rpartition("/")
    return f"{folder}{slash}{base.partition('.')[0]}"


# ----------
# Bad records of formats that are not copied (Parquet, Arrow, tar shards): their numbers, and code that uses them.

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

    pass

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
