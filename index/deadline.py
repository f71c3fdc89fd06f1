"""Foreign native code on a leash: in a thread of its own, under a deadline, whatever it raises."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Stopped(Exception):
    """The work failed or did not end in time. `late` tells which."""

    def __init__(self, why: str, late: bool = False) -> None:
        super().__init__(why)
        self.late = late


class Work:
    """A call in a daemon thread. A thread that hangs is left behind; it does not keep the process alive."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self._outcome: list[Any] = []
        self._failure: list[str] = []
        self._thread = threading.Thread(target=self._run, args=(call, args), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            self._outcome.append(call(*args))
        except BaseException as e:  # noqa: BLE001 -- a Rust panic is no Exception, and tokenizers raises bare ones
            self._failure.append(f"{type(e).__name__}: {str(e)[:200]}")

    def result(self, seconds: float) -> Any:
        """What the call returned.

        Raises:
            Stopped: it raised, or is still running after `seconds`.
        """
        self._thread.join(seconds)
        if self._outcome:
            return self._outcome[0]
        if self._failure:
            raise Stopped(self._failure[0])
        raise Stopped(f"no answer within {seconds:g} s", late=True)
