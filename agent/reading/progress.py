"""How far a long pass over files has come. One thread reads the files, another may look, or end it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import Lock


class Progress:
    """Bytes read of those that a pass has to read; packed files count what they hold, so it may come to more.

    Attributes:
        what: the pass in words; empty where none is under way.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.what = ""
        self.done = self.total = 0

    def begin(self, what: str, total: int) -> None:
        """A pass over so many bytes starts."""
        with self._lock:
            self.what, self.done, self.total = what, 0, total

    def end(self) -> None:
        """It is over."""
        with self._lock:
            self.what, self.done, self.total = "", 0, 0

    def add(self, size: int) -> None:
        """So many bytes were read elsewhere."""
        with self._lock:
            self.done += size

    def counted(self, blocks: Iterable[bytes], stopped: Callable[[], bool]) -> Iterator[bytes]:
        """The same blocks, counted.

        Raises:
            TimeoutError: nobody wants them any more.
        """
        for block in blocks:
            if stopped():
                raise TimeoutError("stopped")
            with self._lock:
                self.done += len(block)
            yield block
