"""The bytes of a pickle as a stream: taken in order, read in blocks, and what they turn into is paid for."""

from __future__ import annotations

from typing import NoReturn

from .parts import Damaged
from .source import Window

BUDGET = 160 << 20  # bytes of Python objects that a pickle may turn into, roughly
WORD_LIMIT = 1 << 16  # bytes of a line of the text protocol
_BLOCK = 1 << 18


class Instructions:
    """The bytes from a place in a window on."""

    def __init__(self, window: Window, at: int) -> None:
        self._window, self._base = window, at
        self._buffer, self._at = b"", 0
        self._spent = 0

    def _bad(self, why: str) -> NoReturn:
        raise Damaged("pickle_invalid", f"the pickle {why}, at its byte {self._base + self._at}")

    def _more(self, count: int) -> None:
        """Have at least `count` bytes after the current place."""
        place = self._base + self._at
        left = self._window.size - place
        if count > left:
            raise Damaged("truncated", f"the pickle ends at its byte {self._window.size} in the middle")
        self._buffer = self._window.read(place, min(left, max(count, _BLOCK)))
        self._base, self._at = place, 0

    def _take(self, count: int) -> bytes:
        at = self._at
        if at + count > len(self._buffer):
            if count > _BLOCK:
                self._pay(count)
            self._more(count)
            at = 0
        self._at = at + count
        return self._buffer[at : at + count]

    def _number(self, count: int) -> int:
        return int.from_bytes(self._take(count), "little")

    def _line(self) -> bytes:
        end = self._buffer.find(b"\n", self._at)
        if end < 0:
            self._more(min(WORD_LIMIT, self._window.size - self._base - self._at))
            end = self._buffer.find(b"\n")
            if end < 0:
                self._bad("has a line without end")
        line = self._buffer[self._at : end]
        self._at = end + 1
        return line

    def _pay(self, count: int) -> None:
        self._spent += count
        if self._spent > BUDGET:
            raise Damaged("too_large", "the pickle turns into more objects than are held here")
