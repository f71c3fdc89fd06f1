"""Which records of a data file are bad: named by a person, cited by a report, or found by the checks of records."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import ParseError, UsageError
from ..reading.datasets.bad_rows import NAMES, faults_of, held_media
from ..reading.datasets.limits import limits
from ..reading.datasets.rows import Fault, Source
from ..reading.datasets.sampling import Look, stream
from ..reading.datasets.tokenizer import tokenizer
from ..workspace import Workspace
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
