"""A record of which samples each batch took: does a later start of the run begin with those of the first one again?"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from ...run.files import Line

LINES = 20_000
IDS = 4  # sample ids of one batch, below which the same row twice is chance
SAME = 8  # batches in a row that must be the same
_ROW = re.compile(r"\s*[\w.:-]{1,40}\s*[,;\t](?:\s*\d{1,12}\s*[,;\t]){3,}\s*\d{1,12}\s*$")
_START = re.compile(r"^(?:slurm_?)?(?:job|run|attempt|start|restart|launch|session|pid)(?:_?id)?$", re.IGNORECASE)


@dataclass(slots=True)
class Start:
    """Batches that one start of the run took, in their order."""

    label: str
    lines: list[Line] = field(default_factory=list)
    batches: list[tuple[int, ...]] = field(default_factory=list)


def taken_again(lines: Iterable[Line]) -> Iterator[tuple[Line, Line, int]]:
    """Starts that begin with the batches with which the one before began: both first lines, and how many are the same.

    A line is a batch: a label of the start and then the ids, as CSV or as a JSON object with a list. A run in which
    all batches carry one label tells nothing.
    """
    for one, other in pairwise(_without_evaluations(_starts(lines))):
        same = 0
        for a, b in zip(one.batches, other.batches, strict=False):
            if a != b:
                break
            same += 1
        if same >= SAME and len(set(one.batches[:same])) == same:
            yield one.lines[0], other.lines[0], same


def _without_evaluations(starts: list[Start]) -> list[Start]:
    """Without the batches that one start takes time and again: an evaluation has the same ones each time.

    Where a start begins with such a batch, it is the epochs that are alike, and nothing is left out.
    """
    again = {b for s in starts for b, n in Counter(s.batches).items() if n > 1}
    if any(s.batches[0] in again for s in starts):
        return starts
    kept = []
    for s in starts:
        own = [(line, b) for line, b in zip(s.lines, s.batches, strict=True) if b not in again]
        kept.append(Start(s.label, [line for line, _ in own], [b for _, b in own]))
    return kept


def _starts(lines: Iterable[Line]) -> list[Start]:
    found: list[Start] = []
    for number, line in enumerate(lines):
        if number >= LINES or len(line.data) > 8192:
            break
        batch = _object(line.text) if line.data[:1] == b"{" else _row(line.text)
        if batch is None:
            if number > 2 and not found:
                break  # no such record
            continue
        label, ids = batch
        if not found or found[-1].label != label:
            found.append(Start(label))
        found[-1].lines.append(line)
        found[-1].batches.append(ids)
    return found if len({s.label for s in found}) == len(found) else []


def _row(text: str) -> tuple[str, tuple[int, ...]] | None:
    if not _ROW.match(text):
        return None
    label, *ids = re.split(r"[,;\t]", text.strip())
    return label.strip(), tuple(int(i) for i in ids)


def _object(text: str) -> tuple[str, tuple[int, ...]] | None:
    try:
        known = json.loads(text)
    except (ValueError, RecursionError):
        return None
    label = next((v for k, v in known.items() if _START.match(k) and isinstance(v, str | int)), None)
    ids = next((v for v in known.values() if isinstance(v, list) and len(v) >= IDS), [])
    if label is None or not ids or not all(isinstance(i, int) for i in ids):
        return None
    return str(label), tuple(ids)
