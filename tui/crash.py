"""The end of the chat in bad hours: a bug becomes one line and a file in the state folder, a signal an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from textual._context import NoActiveAppError
from textual.app import ScreenError
from textual.css.query import QueryError
from textual.events import Resize
from textual.geometry import Size
from textual.widget import WidgetError
from textual.worker import WorkerFailed

from ..agent.safety.fences import inert, one_line
from .text import shortened

if TYPE_CHECKING:
    from textual.app import App

    _Base = App[int]
else:
    _Base = object

SMALLEST = Size(16, 6)  # Textual raises where a padding is wider than the window
TAKEN_APART = (NoActiveAppError, QueryError, ScreenError, WidgetError)  # raised where a part of the screen is gone
FOLDER = "crashes"
KEPT = 10  # files; the oldest go
_FRAMES = 60  # a bug that calls itself has a thousand
_LINE = 300  # characters of the message on the terminal; an error may quote megabytes of a log


class Sturdy(_Base):
    """A program of Textual that outlives what a terminal does to it, and ends in one line where it cannot.

    Mix it in before `App`. An unexpected exception leaves its line in `last_words`, for the terminal once the screen is
    gone, not pages of a traceback with the values of variables; the exit code is 1. Told to end (SIGTERM), it gives the
    terminal back first. A window too small for any layout is drawn as the smallest that is not. Once it ends, what
    comes late for a part of the screen that is gone already is no bug.
    """

    state: Path
    last_words: str

    def on_load(self) -> None:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not on the main thread: no signals
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._told_to_end)

    def _told_to_end(self) -> None:
        self.last_words = "doctor: told to end (SIGTERM); the session so far is kept"
        self.exit(return_code=128 + signal.SIGTERM)

    async def _on_resize(self, event: Resize) -> None:
        event.prevent_default()  # App's own is called here
        event.stop()
        size = Size(max(event.size.width, SMALLEST.width), max(event.size.height, SMALLEST.height))
        await super()._on_resize(Resize(size, size))

    def _handle_exception(self, error: Exception) -> None:
        cause = error.error if isinstance(error, WorkerFailed) else error
        if not (self._exit and isinstance(cause, TAKEN_APART)):
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        self.last_words = kept(self.state, self._exception or RuntimeError("unknown"))
        self._close_messages_no_wait()

    def panic(self, *renderables: object) -> None:
        """Errors that would print themselves, as those of markup and of styles, end in the same way."""
        if self._exception is None:
            self._exception = RuntimeError(" ".join(map(str, renderables)))
        self._return_code = 1
        self._fatal_error()


def kept(state: Path, error: BaseException) -> str:
    """Keep what is known of a bug in a file; what to tell of it in one line. Never raises.

    The file has the places in the code, no values of variables; the message without secrets.
    """
    told = f"{type(error).__name__}: {_said(error)}"
    try:
        path = _written(state / FOLDER, _account(error, told))
    except OSError as e:
        where = f"no report of it could be kept: {e.strerror or type(e).__name__}"
    else:
        where = f"kept in {one_line(str(path))}"
    return f"bug in doctor: {shortened(one_line(told), _LINE)} ({where}); the session so far is kept"


def _said(error: BaseException) -> str:
    """The error's message without secrets: it may quote a line of a log."""
    try:
        from ..agent.safety.redact import Redactor

        return Redactor().redact(str(error)[:20_000].encode("utf-8", "backslashreplace").decode())
    except Exception:  # noqa: BLE001 - the way out must not fail
        return "(its message cannot be shown)"


def _account(error: BaseException, told: str) -> str:
    from importlib.metadata import version

    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    lines = [
        f"doctor {version('traindoctor')}, textual {version('textual')}, Python {platform.python_version()}",
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        told,
        *(f"  {_short(f.filename)}:{f.lineno} in {f.name}" for f in frames),
    ]
    return inert("\n".join(lines)) + "\n"


def _short(name: str) -> str:
    """The last parts of a path: what stands before them is about the user's machine."""
    return "/".join(Path(name).parts[-3:])


def _written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in sorted(folder.glob("*.txt"))[: -KEPT + 1]:
        with contextlib.suppress(OSError):
            old.unlink()
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path
