"""Saved batches: token ids with labels and masks, row by row, from torch and numpy files, JSON lines and prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import ParseError
from ...types import Evidence
from ..dumps import dumps
from ..files import Line, RunFile
from .find import matches, sources
from .rows import Source
from .sampling import look
from .tokens import arrays, chunks

if TYPE_CHECKING:
    from ...workspace import Workspace

IGNORED = -100  # label that the loss leaves out
ELEMENTS = 4 << 20  # of one tensor that are read
ROWS = 512  # of one batch
FILE = 1 << 30  # bytes of a saved batch
_STATES = (".pt", ".pth", ".npz", ".safetensors", ".bin", ".pkl")  # the last two hold much else
SMALL = 32 << 20  # bytes of records that are looked at unasked
_IDS = re.compile(rb"\b(?:input_ids|token_ids|target_ids|labels)\b['\"\])]*\s*[:=]\s*(?:tensor|array)?\(?\s*\[")
TEXT = 512 << 10  # bytes of a text that may hold a printed tensor

_NAMES = {
    **dict.fromkeys(("input_ids", "tokens", "token_ids", "inputs", "x"), "ids"),
    **dict.fromkeys(("labels", "label", "targets", "target_ids", "y"), "labels"),
    **dict.fromkeys(("attention_mask", "padding_mask"), "attention"),
    **dict.fromkeys(("loss_mask", "completion_mask", "response_mask", "assistant_masks"), "counted"),
    "position_ids": "positions",
}


@dataclass(frozen=True, slots=True)
class Sequence:
    """One row of a batch.

    Attributes:
        ids, labels, attention, counted, positions: as saved; None where there is none. Where only a loss mask was
            saved, `labels` are the ids with `IGNORED` in the places it leaves out.
        line: where it stands in a text file.
    """

    file: RunFile
    number: int
    ids: list[int]
    labels: list[int] | None = None
    attention: list[int] | None = None
    positions: list[int] | None = None
    line: Line | None = None
    batch: str = ""

    def shown(self, ws: Workspace, key: str, value: Any, text: str = "") -> Evidence:
        """Evidence that points at this row."""
        if self.line is not None:
            return ws.cite(self.file, self.line, f"batch.{key}", value)
        return ws.binary(self.file, f"{self.batch}row {self.number}", f"batch.{key}", value, text=text)


@dataclass(slots=True)
class Batch:
    """The rows of one file, and why some of it was not read."""

    file: RunFile
    rows: list[Sequence] = field(default_factory=list)
    unread: str = ""


def batches(ws: Workspace, path: str = "") -> list[Batch]:
    """Every saved batch of the run, or those in the files named."""
    out: list[Batch] = []
    for file in ws.files:
        if not matches(file.name, path) or file.good:
            continue
        base = file.name.rsplit("/", 1)[-1].lower()
        if base.endswith(_STATES if path else _STATES[:4]):
            if (path or any(w in base for w in ("batch", "sample", "input", "collat"))) and file.size <= FILE:
                out += _saved(ws, file)
        elif base.endswith((".txt", ".log", ".out")) and file.size <= TEXT and _IDS.search(ws.read(file, TEXT)):
            out += _printed(ws, file)
    for source in sources(ws, path):
        if path or _tokenised(ws, source):
            out += _records(ws, source)
    return [b for b in out if b.rows or b.unread]


def _tokenised(ws: Workspace, source: Source) -> bool:
    """Whether a file of records holds token ids and is small enough to be looked at unasked."""
    small = source.kind in ("jsonl", "json") and source.file.size <= SMALL
    return small and bool(_IDS.search(ws.read(source.file, 64 << 10)))


def _saved(ws: Workspace, file: RunFile) -> Iterator[Batch]:
    """Tensors of a saved state, grouped by what stands before their last name."""
    if file.name.lower().endswith(".npz"):
        yield _numpy(file)
        return
    from ..checkpoints.state import state_of

    state = state_of(ws, file)
    groups: dict[str, dict[str, Any]] = {}
    for name, tensor in state.tensors.items():
        owner, _, last = name.removesuffix(".npy").rpartition(".")
        if (part := _NAMES.get(last.lower())) and len(tensor.shape) in (1, 2) and tensor.dtype in _WHOLE:
            groups.setdefault(owner, {}).setdefault(part, tensor)
    found = [Batch(file, list(_rows_of(ws, file, owner, parts))) for owner, parts in groups.items() if "ids" in parts]
    if not found and not state.readable:
        said = state.problems[0].text if state.problems else "its structure is not understood"
        found = [Batch(file, [], said)]
    yield from found


def _numpy(file: RunFile) -> Batch:
    """Arrays of an npz."""
    tables: dict[str, list[list[int]]] = {}
    try:
        for tokens in arrays(file):
            part = _NAMES.get(tokens.member.removesuffix(".npy").lower())
            if part and len(tokens.shape) in (1, 2) and tokens.count <= ELEMENTS:
                flat = [int(v) for _, ids in chunks(tokens) for v in ids]
                width = max(1, tokens.shape[-1])
                tables[part] = [flat[n : n + width] for n in range(0, len(flat), width)]
    except ParseError as e:
        return Batch(file, [], str(e))
    return Batch(file, list(_joined(file, "", tables)))


_WHOLE = ("int64", "int32", "int16", "uint8", "int8", "bool", "uint16", "uint32")


def _rows_of(ws: Workspace, file: RunFile, owner: str, parts: dict[str, Any]) -> Iterator[Sequence]:
    yield from _joined(file, owner, {part: _table(ws, tensor) for part, tensor in parts.items()})


def _joined(file: RunFile, owner: str, tables: dict[str, list[list[int]]]) -> Iterator[Sequence]:
    for n, row in enumerate(tables.get("ids", [])[:ROWS]):
        beside = {p: t[n] for p, t in tables.items() if len(t) > n and len(t[n]) == len(row)}
        yield _sequence(file, n, row, beside, None, f"{owner}, " if owner else "")


def _table(ws: Workspace, tensor: Any) -> list[list[int]]:
    from ..checkpoints.numbers import chunks as values_of

    flat: list[int] = []
    for part in values_of(ws, tensor):
        flat += [int(v) for v in part]
        if len(flat) >= ELEMENTS:
            break
    width = tensor.shape[-1] if tensor.shape else 1
    if len(tensor.shape) < 2:
        return [flat]
    return [flat[n : n + width] for n in range(0, len(flat) - width + 1, max(1, width))]


def _sequence(
    file: RunFile, number: int, ids: list[int], beside: dict[str, list[int]], line: Line | None, batch: str = ""
) -> Sequence:
    labels = beside.get("labels")
    counted = beside.get("counted")
    if labels is None and counted is not None:
        labels = [i if c else IGNORED for i, c in zip(ids, counted, strict=True)]
    return Sequence(file, number, ids, labels, beside.get("attention"), beside.get("positions"), line, batch)


def _records(ws: Workspace, source: Source) -> Iterator[Batch]:
    """Records with token ids: a sequence each, or a whole batch in lists of lists."""
    looked = look(ws, source, ROWS, 8 << 20, 10.0)
    rows: list[Sequence] = []
    for r in looked.rows:
        parts = {p: v for k, v in r.fields.items() if (p := _NAMES.get(k.lower())) and isinstance(v, list) and v}
        ids = parts.get("ids")
        if not ids:
            continue
        line = None if r.member else r.line
        batch = f"{r.member}, " if r.member else ""
        nested = isinstance(ids[0], list)
        for n in range(len(ids) if nested else 1):
            taken = {p: (v[n] if nested and len(v) > n else v) for p, v in parts.items()}
            one = {p: v for p, v in taken.items() if _whole(v) and len(v) == len(taken["ids"])}
            if "ids" in one:
                rows.append(_sequence(source.file, n if nested else r.number, one["ids"], one, line, batch))
    unread = "" if looked.every == 1 and not looked.stopped else f"{len(rows)} of {looked.seen} records were read"
    yield Batch(source.file, rows[:ROWS], unread if rows else "")


def _whole(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, int) for v in value)


def _printed(ws: Workspace, file: RunFile) -> Iterator[Batch]:
    """Tensors as they are printed, ids and what follows them; only where they were printed whole."""
    group: dict[str, tuple[list[list[int]], Line]] = {}
    rows: list[Sequence] = []
    for dump in [*dumps(list(ws.lines(file))), None]:
        part = _NAMES.get(dump.name) if dump else "ids"
        if part == "ids" and "ids" in group:
            table, line = group["ids"]
            alike = {p: v for p, (v, _) in group.items() if [*map(len, v)] == [*map(len, table)]}
            for n, ids in enumerate(table):
                rows.append(_sequence(file, len(rows), ids, {p: v[n] for p, v in alike.items()}, line))
            group = {}
        if dump and part and dump.numbers and all(abs(n) < 1e15 for n in dump.numbers):
            group.setdefault(part, ([[int(n) for n in row] for row in dump.rows], dump.line))
    yield Batch(file, rows[:ROWS])
