"""Single records that can spoil a step: not finite, empty, far too long, out of range, without their picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ... import deadline
from ...errors import ParseError
from .. import samples
from ..files import RunFile, open_regular
from ..records import MEDIA, Record
from ..records import tokens as estimate
from . import questions
from .limits import Limits
from .media import HEAD, TAIL, fault_of, medium_of
from .rows import Row

if TYPE_CHECKING:
    from ...workspace import Workspace

FAR = 4  # times the length the run allows
LONGEST = 200_000  # tokens, where no length is set
PICTURES = 20_000  # files looked at
PICTURES_LEFT = "pictures"  # the name by which those beyond are told
_IDENTITY = ("id", "idx", "index", "sample_id", "sample_idx", "example_id", "uid", "data_id")
_LOSS = ("loss", "sample_loss", "nll", "per_sample_loss")
# Keys below `data.` that blame a record, with what they are called below `sample.`.
NAMES = {
    "empty_fields": "empty", "encoding_damage": "encoding", "label_out_of_range": "out_of_range",
    "not_finite": "not_finite",
    "token_out_of_range": "out_of_range", "all_masked": "all_masked", "control_characters": "encoding",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Held:
    """The pictures and sounds of a run, by their last names and by their kinds."""

    bases: Set[str]
    media: Set[str]

    def misses(self, path: str) -> bool:
        """Whether a picture is named that is not there, in a run that holds pictures of that kind."""
        return medium_of(path) in self.media and path.replace("\\", "/").rsplit("/", 1)[-1] not in self.bases


def held_media(ws: Workspace) -> Held:
    """What a record may refer to."""
    named = {f.name.rsplit("/", 1)[-1] for f in ws.files if medium_of(f.name)}
    return Held(named, {medium_of(n) for n in named})


def faults_of(row: Row, limits: Limits, vocabulary: int | None, held: Held) -> Iterator[tuple[str, Any]]:
    """What is wrong with one record: key below `sample.` and value.

    Args:
        held: pictures and sounds of the run, to miss one that a record refers to.
    """
    one: list[Record] = [row]
    found = [
        *samples.empties(one),
        *samples.damage(one),
        *samples.ranges(one, limits.classes, vocabulary),
        *questions.numbers([row]),
        *questions.ranges([row], vocabulary),
        *questions.controls([row]),
        *questions.halves([row]),
    ]
    said: set[str] = set()
    for key, value, _ in found:
        if (name := NAMES[key]) not in said:
            said.add(name)
            yield name, value
    length = sum(estimate(t) for t in row.texts()) or max(
        (len(v) for v in row.fields.values() if isinstance(v, list)), default=0
    )
    if length > (FAR * limits.tokens if limits.tokens else LONGEST):
        yield "too_long", length
    for name in MEDIA:
        value = row.fields.get(name)
        for path in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
            if isinstance(path, str) and medium_of(path) and held.misses(path):
                yield "media_missing", path[:200]
                return


def broken_pictures(ws: Workspace) -> Iterator[tuple[RunFile, str]]:
    """Picture and sound files of the run that are empty, cut off or something else."""
    pictures = [f for f in ws.files if medium_of(f.name) and not f.good]
    if len(pictures) > PICTURES:
        ws.tell(PICTURES_LEFT, f"{len(pictures) - PICTURES} of {len(pictures)} were not looked at")
    for file in pictures[:PICTURES]:
        deadline.check()
        try:
            with open_regular(file.path) as raw:
                head = raw.read(HEAD)
                raw.seek(max(0, file.size - TAIL))
                tail = raw.read(TAIL)
        except (OSError, ParseError) as e:
            ws.tell(file.name, f"cannot be read: {e}")
            continue
        if why := fault_of(file.name, file.size, head, tail):
            yield file, why


def losses(rows: Sequence[Row]) -> Iterator[tuple[str, Any, Row]]:
    """Records of a per-sample loss log: not finite, or far above all others."""
    given = [(v, r) for r in rows if (v := _loss(r)) is not None]
    finite = sorted(v for v, _ in given if v == v and abs(v) != float("inf"))
    for v, r in given:
        if v != v or abs(v) == float("inf"):
            yield "loss_not_finite", str(_identity(r)), r
    if len(finite) < 20:
        return
    median = finite[len(finite) // 2]
    spread = sorted(abs(v - median) for v in finite)[len(finite) // 2] * 1.4826
    high = [(v, r) for v, r in given if abs(v) != float("inf") and v > max(median + 12 * spread, 3 * abs(median))]
    for _, r in sorted(high, key=lambda pair: -pair[0]):
        yield "loss_outlier", str(_identity(r)), r


def is_loss_log(row: Row) -> bool:
    """Whether a record names a sample and its loss."""
    return _loss(row) is not None and any(n in row.fields for n in _IDENTITY)


def _identity(row: Row) -> Any:
    return next((row.fields[n] for n in _IDENTITY if n in row.fields), row.number)


def _loss(row: Row) -> float | None:
    value = next((row.fields[n] for n in _LOSS if n in row.fields), None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None
