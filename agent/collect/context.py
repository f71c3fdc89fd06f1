"""Quotations cleaned in their place: what stands around a line may tell that a word in it is a secret."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cleaning import Cleaning
from .pieces import MARGIN, span

if TYPE_CHECKING:
    from ..workspace import Workspace

BLOCK = 64 << 10  # bytes that are cleaned at a time
BLOCKS = 256  # of them that are kept
PACKED = 4 << 20  # size of a packed file up to which it is unpacked again for a quotation
HIDDEN = "<SECRET>"


@dataclass(frozen=True, slots=True)
class _Block:
    """A stretch of a file: where its lines begin, its lines as they stand, and clean."""

    starts: list[int]
    raw: list[bytes]
    clean: list[str]


class Context:
    """Lines of the run's files, as they stand and cleaned together with their surroundings."""

    def __init__(self, ws: Workspace, cleaning: Cleaning) -> None:
        self.cleaning = cleaning
        self._files = {f.name: f for f in ws.files}
        self._blocks: dict[tuple[str, int, int], _Block] = {}

    def lines(self, name: str, start: int, end: int) -> tuple[str, str]:
        """The lines from `start`, where one begins, to that which holds `end`: raw and clean. Empty where gone."""
        block = self._block(name, start // BLOCK, max(1, -(-(end - start) // BLOCK)))
        first = bisect_right(block.starts, start) - 1
        if first < 0 or block.starts[first] != start:
            return "", ""
        last = max(first + 1, bisect_right(block.starts, max(start, end - 1)))
        raw = b"\n".join(block.raw[first:last]).decode(errors="replace")
        return raw, "\n".join(block.clean[first:last])

    def value(self, value: Any, name: str, offset: int, size: int) -> Any:
        """A value that was read from a line. Where the line holds a secret, no more of it than the clean line shows."""
        if isinstance(value, list):
            return [self.value(v, name, offset, size) for v in value]
        if not isinstance(value, str):
            return value
        raw, clean = self.lines(name, offset, offset + size + (len(value) if "\n" in value else 0))
        return value if raw == clean or value in clean else HIDDEN

    def _block(self, name: str, number: int, count: int) -> _Block:
        """Stretch `number` of a file and `count` - 1 after it, with a margin on both sides."""
        key = (name, number, count)
        if key not in self._blocks:
            if len(self._blocks) >= BLOCKS:
                self._blocks.clear()
            self._blocks[key] = self._read(name, number * BLOCK, (number + count) * BLOCK)
        return self._blocks[key]

    def _read(self, name: str, start: int, end: int) -> _Block:
        file = self._files.get(name)
        if file is None or (file.path.suffix.lower() in (".gz", ".zst", ".bz2", ".xz") and file.size > PACKED):
            return _Block([], [], [])
        low = max(0, start - MARGIN)
        raw = span(file, low, end + 2 * MARGIN).split(b"\n")
        starts, at = [], low
        for line in raw:
            starts.append(at)
            at += len(line) + 1
        clean = self.cleaning.text(b"\n".join(raw).decode(errors="replace")).split("\n")
        return _Block(starts, raw, clean)
