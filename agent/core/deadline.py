"""A time limit that readers ask about while they read: a thread cannot be stopped from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar, Token

_Limit = tuple[float, Callable[[], bool] | None]  # when it ends, and whether somebody has ended it before
_limit: ContextVar[_Limit | None] = ContextVar("deadline", default=None)


class Deadline:
    """Within the block, `check()` raises TimeoutError once the seconds are over, or `stopped()` says so."""

    def __init__(self, seconds: float, stopped: Callable[[], bool] | None = None) -> None:
        self._seconds = seconds
        self._stopped = stopped
        self._token: Token[_Limit | None] | None = None

    def __enter__(self) -> Deadline:
        self._token = _limit.set((time.monotonic() + self._seconds, self._stopped))
        return self

    def __exit__(self, *exc: object) -> None:
        if self._token is not None:
            _limit.reset(self._token)


def check() -> None:
    """Raise TimeoutError when the call that is running has used up its time, or nobody wants it any more."""
    limit = _limit.get()
    if limit is None:
        return
    if time.monotonic() > limit[0]:
        raise TimeoutError("stopped at its time limit")
    check_wanted()


def check_wanted() -> None:
    """Raise TimeoutError when nobody wants the call that is running any more; for what has a time limit of its own."""
    if stopper()():
        raise TimeoutError("stopped")


def stopper() -> Callable[[], bool]:
    """Says whether the call of this thread is wanted no more: for threads that work for it, which know no limit."""
    limit = _limit.get()
    return (limit[1] if limit else None) or _never


def _never() -> bool:
    return False
