"""A time limit that readers ask about while they read: a thread cannot be stopped from outside."""

from __future__ import annotations

import time
from contextvars import ContextVar, Token

_ends: ContextVar[float | None] = ContextVar("deadline", default=None)


class Deadline:
    """Within the block, `check()` raises TimeoutError once the seconds are over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._token: Token[float | None] | None = None

    def __enter__(self) -> Deadline:
        self._token = _ends.set(time.monotonic() + self._seconds)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._token is not None:
            _ends.reset(self._token)


def check() -> None:
    """Raise TimeoutError when the call that is running has used up its time."""
    ends = _ends.get()
    if ends is not None and time.monotonic() > ends:
        raise TimeoutError("stopped at its time limit")
