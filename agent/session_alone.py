"""One process at a time goes on with a session: two at once would each plan from what the other has not written yet."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import UsageError


@contextmanager
def alone(state: Path, session: str) -> Iterator[None]:
    """Have a session for oneself; a kill gives it back. Where the file system knows no locks, nobody is kept out.

    Args:
        session: an id that is in use already: its folder is what is locked, so that no file is left behind.

    Raises:
        UsageError: another process is at work on it.
    """
    try:
        folder = os.open(state / "reports" / Path(session).name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):  # a NUL, or nothing is kept of it
        yield
        return
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another doctor is at work on session {session}", "ask again when it is done, or begin a new session"
            ) from None
        except OSError:  # no locks here
            pass
        yield
    finally:
        os.close(folder)
