"""Work on many tensors in a few threads, with the time of the call and what cannot be read in mind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from ...errors import ToolError

T = TypeVar("T")
R = TypeVar("R")
_THREADS = 4


def in_threads(todo: Sequence[T], work: Callable[[T], R]) -> Iterator[R | None]:
    """What `work` makes of each, in their order; None where the time was over or the bytes could not be read."""
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        jobs = [pool.submit(copy_context().run, work, one) for one in todo]
        for job in jobs:
            try:
                yield job.result()
            except (TimeoutError, ToolError):
                yield None
