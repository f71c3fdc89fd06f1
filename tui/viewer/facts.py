"""Evidence that is no line of a file, as rows: a command and its answer, what was searched, a record, a passage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...agent.telling.outline import place
from ...agent.telling.views.excerpt import SHOWN, Row

if TYPE_CHECKING:
    from ...agent.core.report import CitedEvidence


def rows_of(e: CitedEvidence) -> list[Row]:
    """What there is to read of a piece of evidence without its file."""
    said = e.text if isinstance(e.text, str) else ""
    value = "" if e.value is None or e.value is True else _plain(e.value)
    parts: list[str] = []
    if e.kind == "command":
        parts = ["what was run", f"  $ {' '.join(e.argv or ())}", "", "what it answered", *_indented(said or value)]
    elif e.kind == "absent":
        looked = e.searched or ["the files of the run"]
        parts = [f"looked for {e.key}: not there", "", "where it was searched", *(f"  {name}" for name in looked)]
        parts += ["", f"without it, this applies: {value}"] if value else []
    elif e.kind == "binary":
        parts = ["the record", f"  {place(e)}", "", "what it says", *_indented(said or value)]
    elif e.kind == "document":
        parts = ["from", f"  {place(e)}", "", "the passage", *_indented(said or value)]
    elif e.kind == "asked":
        parts = ["what the question says; it proves nothing", *_indented(said or value)]
    else:
        parts = ["what was cited", f"  {place(e)}", "", *_indented(said or value)]
    if value and said and e.kind not in ("absent", "asked"):
        parts += ["", f"{e.key} = {value}"]
    return [_row(n, text) for n, text in enumerate(parts)]


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.split("\n")]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _row(number: int, text: str) -> Row:
    return Row(number, None, text[:SHOWN], len(text.encode(errors="replace")), number + 1, len(text) > SHOWN)
