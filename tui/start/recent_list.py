"""Earlier diagnoses as a list that fills while it is read."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .looking import hand_over, look
from .recent_rows import row
from .rows import Rows

if TYPE_CHECKING:
    from ...agent.chat.recent import Recent

FIRST = 20  # rows shown before the rest is read


class RecentList(Rows):
    """Sessions, and reports that are added to them; newest first.

    Args:
        told: hears a word about the list whenever it changes, as `reading ...` or `12`.
        clock: gives the time that ages are counted from.
    """

    def __init__(self, told: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        super().__init__(id="recent", nothing="reading ...")
        self._told = told
        self._clock = clock
        self._found: dict[str, Recent] = {}
        self._words: list[str] = []
        self._whole = 0  # reports that there are, listed or not
        self._read = False
        self._trouble = ""

    @property
    def entry(self) -> Recent | None:
        """The one under the cursor."""
        return self._found.get(self.key or "")

    def read(self, state: Path) -> None:
        """Begin to read the sessions of a state folder."""
        look(self, lambda: self._reading(state), self._ready, self._failed)

    def add(self, entries: list[Recent]) -> None:
        """Put further entries among those that are shown; one with the same key is exchanged."""
        self._found |= {e.key: e for e in entries}
        self._show()

    def narrow(self, words: str) -> None:
        """Show only those that have all of the words somewhere."""
        self._words = words.lower().split()
        self._show()

    def _reading(self, state: Path) -> list[Recent]:
        """On another thread: the first at once, then all, then which runs are still there."""
        from ...agent.chat.recent import Presence, how_many, sessions

        self._whole = how_many(state)
        found, presence = sessions(state), Presence()
        first = list(itertools.islice(found, FIRST))
        hand_over(self, self.add, first)
        rest = list(found)
        hand_over(self, self._all, rest)
        return [presence.of(e) for e in (*first, *rest)]

    def _all(self, rest: list[Recent]) -> None:
        self._read = True
        self.add(rest)

    def _ready(self, known: list[Recent]) -> None:
        self.add(known)

    def _failed(self, why: str) -> None:
        self._read = True
        self._trouble = f"! cannot be read: {why}"
        self._show()

    def _show(self) -> None:
        now = self._clock()
        kept = [e for e in self._found.values() if all(w in _text(e) for w in self._words)]
        kept.sort(key=lambda e: (-e.time, e.key))
        nothing = "nothing has all of these words" if self._words else "none yet: ask, and it is kept here"
        self.fill([(e.key, row(e, now)) for e in kept], nothing if self._read else "reading ...")
        older = self._whole - sum(1 for e in self._found.values() if not e.foreign)
        if self._trouble:
            self._told(self._trouble)
            return
        more = f", {older:,} older: doctor sessions" if self._read and older > 0 else ""
        self._told((f"{len(kept):,} of {len(self._found):,}" if self._words else f"{len(kept):,}") + more)


def _text(e: Recent) -> str:
    return " ".join((e.session, e.status, e.cause, e.title, e.question, e.waiting, str(e.file or ""), *e.roots)).lower()
