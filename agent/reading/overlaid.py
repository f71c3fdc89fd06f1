"""A run as if some of its files had another text: what a patch is checked against. Nothing is written.

reading = reread(read_settings(workspace), {file: text})     -> Settings as they would then be read
Overlaid(workspace, reading, {file: text})                   -> a workspace in which these files read so
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..workspace import Workspace
from .changed_settings import Supposed
from .files import LINE_LIMIT, Line, RunFile
from .settings import Settings, read_lines


def numbered(text: str) -> list[Line]:
    """The lines of a text, as the reader of files would give them."""
    lines, offset = [], 0
    for number, row in enumerate(text.split("\n"), 1):
        data = row.encode()
        lines.append(Line(number, offset, data[:LINE_LIMIT], len(data) > LINE_LIMIT))
        offset += len(data) + 1
    return lines[:-1] if text.endswith("\n") or not text else lines


def reread(reading: Settings, texts: Mapping[RunFile, str]) -> Settings:
    """The settings with those of the given files read from other texts; the rest is taken as it was read."""
    names = {f.name for f in texts}
    made = Settings()
    for file, text in texts.items():
        read_lines(file, numbered(text), made)
    return replace(
        reading,
        all=[*(s for s in reading.all if s.file.name not in names), *made.all],
        sources=[*(s for s in reading.sources if s.file.name not in names), *made.sources],
        duplicates=[*(d for d in reading.duplicates if d[0].name not in names), *made.duplicates],
        problems=[*(p for p in reading.problems if p.partition(":")[0] not in names), *made.problems],
    )


class Overlaid(Supposed):
    """The same run with other texts. Readings are shared, but for those that settings enter."""

    def __init__(self, ws: Workspace, reading: Settings, texts: Mapping[RunFile, str]) -> None:
        super().__init__(ws, reading)
        self._texts = {f.name: text.encode() for f, text in texts.items()}

    def blocks(self, file: RunFile) -> Iterator[bytes]:
        """The other text where there is one."""
        return iter([self._texts[file.name]]) if file.name in self._texts else self._actual.blocks(file)

    def lines(self, file: RunFile) -> Iterator[Line]:
        """The lines of the other text where there is one."""
        if file.name in self._texts:
            return iter(numbered(self._texts[file.name].decode()))
        return self._actual.lines(file)
