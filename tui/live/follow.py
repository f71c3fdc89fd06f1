"""The thread that follows a running job, and what it brings to the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ...agent.chat.chat_following import Following, Look, Pulse
    from ...agent.reading.run.workspace import Workspace


class Screened(Protocol):
    """What of an application is needed: its way to the thread of the screen."""

    def call_from_thread(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call something there and wait for it."""


class Follow:
    """Follows the files of a job until it is stopped. All callbacks are made on the thread of the screen.

    Attributes:
        on_pulse: after every look, with how the job stands.
        on_told: with each line that is worth saying, once, and whether it is trouble; made by us, but it may hold names
            of files.
        on_workspace: with fresh readings, the curves among them read already.
        on_wants_diagnosis: once for each trouble, with why.
    """

    def __init__(
        self,
        roots: list[Path],
        *,
        good: list[Path] | None = None,
        on_pulse: Callable[[Pulse], object],
        on_told: Callable[[str, bool], object],
        on_workspace: Callable[[Workspace], object],
        on_wants_diagnosis: Callable[[str], object],
        following: Following | None = None,
    ) -> None:
        self.roots, self.good = roots, good or []
        self.on_pulse, self.on_told, self.on_workspace = on_pulse, on_told, on_workspace
        self.on_wants_diagnosis = on_wants_diagnosis
        self._following = following
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, app: Screened) -> None:
        """Begin to look; the second time does nothing."""
        if self._thread is None:
            # A daemon: a look that hangs on a dead file server must not keep the program from ending.
            self._thread = threading.Thread(target=self._run, args=(app,), name="following", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """No callback is made from now on. Returns at once, also while a look hangs."""
        self._end.set()

    def _run(self, app: Screened) -> None:
        try:
            from ...agent.chat.chat_following import Following

            following = self._following or Following(self.roots, self.good)
            while not self._end.is_set():
                look = following.look()
                self._bring(app, self._seen, look)
                self._end.wait(look.pulse.wait)
        except Exception as e:  # noqa: BLE001 - a fault of the following is told; the chat goes on without it
            self._bring(app, self._broken, f"bug in doctor: the job is followed no more: {type(e).__name__}: {e}")

    def _bring(self, app: Screened, what: Callable[..., None], *values: object) -> None:
        if self._end.is_set():
            return
        try:
            app.call_from_thread(what, *values)
        except RuntimeError:  # the application has ended meanwhile
            self._end.set()

    def _broken(self, text: str) -> None:
        if not self._end.is_set():
            self.on_told(text, True)

    def _seen(self, look: Look) -> None:
        """On the thread of the screen: the state first, then the words, then the readings a diagnosis is made of."""
        if self._end.is_set():
            return
        self.on_pulse(look.pulse)
        for text in look.told:
            self.on_told(text, text in look.troubles)
        if look.workspace is not None:
            self.on_workspace(look.workspace)
        if look.diagnose:
            self.on_wants_diagnosis(look.diagnose)
