"""The nouns of a dataset: rows with the place they stand in, and what is broken about a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...types import Evidence
from ..files import Line, RunFile
from ..records import Record

if TYPE_CHECKING:
    from ...workspace import Workspace

NO_LINE = Line(0, 0, b"")
PREVIEW = 400  # characters of a row without lines that evidence shows


@dataclass(frozen=True, slots=True)
class Row(Record):
    """A record of a dataset and its place.

    Attributes:
        file: the file it stands in.
        number: its number in that file, from 0.
        member: where it stands in a file without lines (`row group 3, row 17`); empty where `line` tells it.
        size: bytes it takes in the file, or of its values.
    """

    file: RunFile
    number: int
    member: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something broken about a file: `kind` is a key below `data.`, `member` or `line` say where."""

    file: RunFile
    kind: str
    text: str
    member: str = ""
    line: Line | None = None


@dataclass(slots=True)
class Source:
    """A file that holds samples.

    `kind` is one of jsonl, json, csv, tsv, text, parquet, arrow, megatron, tokens, array, tar.
    """

    file: RunFile
    kind: str


def cited(ws: Workspace, row: Row, key: str, value: Any, text: str = "") -> Evidence:
    """Evidence that shows a row: its line where it has one, otherwise its place and the start of its fields."""
    if row.member:
        return ws.binary(row.file, row.member, key, value, text=text or preview(row.fields))
    return ws.cite(row.file, row.line, key, value)


def place(row: Row) -> str:
    """Where a row stands, in words."""
    return f"{row.file.name}, {row.member}" if row.member else f"{row.file.name}:{row.line.number}"


def told(ws: Workspace, fault: Fault) -> Evidence:
    """Evidence of a fault."""
    if fault.line is not None:
        return ws.cite(fault.file, fault.line, f"data.{fault.kind}", fault.text)
    return ws.binary(fault.file, fault.member or "file", f"data.{fault.kind}", fault.text, text=fault.text)


def preview(fields: dict[str, Any], limit: int = PREVIEW) -> str:
    """The fields in one line, cut."""
    try:
        said = json.dumps(fields, ensure_ascii=False, default=_short)
    except (ValueError, RecursionError, TypeError):
        said = str(list(fields))
    said = said.encode("utf-8", "replace").decode()  # JSON may carry half of a surrogate pair
    return said if len(said) <= limit else f"{said[:limit]}... ({len(said)} characters)"


def _short(value: Any) -> str:
    return f"<{type(value).__name__}, {len(value)} bytes>" if isinstance(value, bytes) else str(value)[:200]
