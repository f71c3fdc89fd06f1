"""What the tests of evaluations share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest


class _Here(Executor):
    """Does at once what is submitted."""

    def __init__(self, _processes: int, mp_context: object = None) -> None: ...

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as e:  # noqa: BLE001 - as a pool hands it on
            done.set_exception(e)
        return done


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations diagnose in this process; new ones, as in `test_evals.py`, cost seconds of imports each time."""
    monkeypatch.setattr("traindoctor.evals.run.ProcessPoolExecutor", _Here)
