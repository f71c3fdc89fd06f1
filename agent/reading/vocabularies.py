"""Vocabularies that configs name: a run that goes on from another's weights with the same words under other numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .files import Line, RunFile
from .settings import Setting, read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

BYTES = 16 << 20
FEWEST = 20  # words, below which a file is no vocabulary
ALIKE, MOVED = 0.8, 0.2  # of the words: in both; under another number
_NAMES_IT = re.compile(
    r"(?i)(?:^|[._-])(?:vocab(?:ulary)?|tokenizer|dict(?:ionary)?|token_?map|word_?map)(?:_?(?:file|path))?$"
)
_WRITES = re.compile(r"(?i)(?:^|[._-])(?:out|output|save|ckpt|checkpoint|model)(?:put)?(?:_?(?:dir|path|folder|to))?$")


@dataclass(frozen=True, slots=True)
class Renumbered:
    """Two vocabularies of one line of models, the lines that name them, and how many words have another number."""

    one: Setting
    other: Setting
    moved: int
    words: int

    @property
    def places(self) -> tuple[tuple[RunFile, Line], ...]:
        return (self.other.file, self.other.line), (self.one.file, self.one.line)

    @property
    def says(self) -> str:
        """Both names and the count, in words."""
        return f"{self.moved} of {self.words} words have other ids in {self.other.value} than in {self.one.value}"


def renumbered(ws: Workspace) -> Iterator[Renumbered]:
    """Configs that load what another config wrote, and name another vocabulary than that one did."""
    own = [s for s in read_settings(ws).all if not s.file.good and s.file.role == "config"]
    asked = [s for s in own if isinstance(s.value, str)]
    named = [s for s in asked if _NAMES_IT.search(s.key)]
    for one in named:
        for other in named:
            if one.file == other.file or one.value == other.value or not _goes_on(asked, one.file, other.file):
                continue
            a, b = _words(ws, one.value), _words(ws, other.value)
            both = a.keys() & b.keys()
            moved = sum(a[w] != b[w] for w in both)
            if len(both) >= max(FEWEST, ALIKE * max(len(a), len(b))) and moved >= MOVED * len(both):
                yield Renumbered(one, other, moved, len(both))


def _goes_on(asked: list[Setting], first: RunFile, second: RunFile) -> bool:
    """Whether the second config reads from where the first one writes."""
    written = [s.value.strip("./ ") for s in asked if s.file == first and _WRITES.search(s.key)]
    read = [s.value.strip("./ ") for s in asked if s.file == second and not _WRITES.search(s.key)]
    return any(w and (r == w or r.startswith(w + "/")) for w in written for r in read)


def _words(ws: Workspace, name: str) -> dict[str, int]:
    """Number by word of a vocabulary among the run's files: JSON of words, or one word a line; empty where none."""
    end = name.replace("\\", "/").lstrip("./")
    file = next((f for f in ws.files if f.name == end or f.name.endswith("/" + end)), None)
    if file is None or file.size > BYTES:
        return {}
    return ws.memo(("vocabulary", file.name), lambda: _read(ws, file))


def _read(ws: Workspace, file: RunFile) -> dict[str, int]:
    text = ws.text(file, BYTES)
    if text.lstrip()[:1] != "{":
        lines = text.splitlines()
        return {w: n for n, w in enumerate(lines)} if file.name.endswith(".txt") and len(lines) >= FEWEST else {}
    try:
        known = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    inner = known.get("model", {}).get("vocab") if isinstance(known.get("model"), dict) else known
    return {w: n for w, n in inner.items() if isinstance(n, int)} if isinstance(inner, dict) else {}
