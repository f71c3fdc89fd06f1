"""The thread that waits for a run that is not there yet."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from .follow import Screened

POLL = 2.0  # seconds between two looks


class Arrival:
    """Looks for some folders until they are there, then calls `on_there` once, on the thread of the screen."""

    def __init__(self, roots: list[Path], on_there: Callable[[], object]) -> None:
        self._roots, self._on_there = roots, on_there
        self._end = threading.Event()

    def start(self, app: Screened) -> None:
        """Begin to look."""
        # A daemon: a dead file server must not keep the program from ending.
        threading.Thread(target=self._run, args=(app,), name="arrival", daemon=True).start()

    def stop(self) -> None:
        """Nothing is called from now on."""
        self._end.set()

    def _run(self, app: Screened) -> None:
        from ...agent.chat.chat_following import arrived

        while not self._end.is_set():
            if arrived(self._roots):
                with contextlib.suppress(RuntimeError):  # the application has ended meanwhile
                    app.call_from_thread(self._there)
                return
            self._end.wait(POLL)

    def _there(self) -> None:
        if not self._end.is_set():
            self._on_there()
