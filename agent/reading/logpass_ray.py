"""The log pass spread over workers of another place, with the same result as the one made here.

A worker reads a batch of files (or stretches of large ones) by the same code and sends back what it kept. It takes
only files that it sees as we do: the same size, time and inode; the rest, and whatever a lost worker leaves, is read
here. So a cluster that is away costs time and a line in the report, never evidence.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..deadline import stopper
from .harvest import Harvest
from .logpass import WHOLE, Job, Read, read_stretch
from .patterns import Pattern, Scanner, scanner

if TYPE_CHECKING:
    from ..workspace import Workspace

BATCHES = 4  # for each worker, so that a slow one does not keep all others waiting
OPENING = 1 << 16  # bytes that opening a file is worth
_MOST = 2000  # jobs of one batch

Identity = tuple[int, int, int]  # size, time of the last change (ns), inode
Order = tuple[bytes, str, list[tuple[str, Identity, int, int]]]  # patterns, engine, jobs
Kept = tuple[Harvest | None, bool, list[str]]  # None where the worker does not see that file


class Spread(Protocol):
    """Workers that can read the files of a run."""

    notes: list[str]  # what went wrong, for the report

    def workers(self) -> int:
        """How many read at the same time; 0 where nobody can be reached."""
        ...

    def read(self, orders: Sequence[tuple[bytes, int]]) -> Iterator[tuple[int, bytes | None]]:
        """Give out orders for `read_batch` and their sizes in bytes; each one's number with its result, as they come.

        None where no worker could; never raises for that.
        """
        ...


def read_batch(order: bytes) -> bytes:
    """What a worker does with an order; both are pickled, so that what is in between passes them on unread."""
    packed, engine, jobs = pickle.loads(order)
    patterns, scan = _ready(packed, engine)
    kept: list[Kept] = []
    for name, identity, start, end in jobs:
        told: list[str] = []
        path = Path(name)
        if _identity(path) != identity:
            kept.append((None, False, told))
            continue
        harvest, labels = read_stretch(path, patterns, scan, start, end, told.append, lambda stream: stream)
        same = _identity(path) == identity  # of a file that changed under the pass nothing is known: read anew
        kept.append((harvest if same else None, labels, told))
    return pickle.dumps(kept, pickle.HIGHEST_PROTOCOL)


def read_abroad(
    ws: Workspace,
    spread: Spread,
    patterns: list[Pattern],
    engine: str,
    jobs: list[Job],
    here: Callable[[Job], Read],
) -> Iterator[Read]:
    """All jobs, in order.

    Args:
        here: reads one job on this machine.

    Raises:
        TimeoutError: nobody wants the answer any more.
    """
    stopped = stopper()
    results: list[Kept | None] = [None] * len(jobs)
    workers = spread.workers()
    batches = _batches(jobs, workers) if workers else []
    packed = pickle.dumps(patterns, pickle.HIGHEST_PROTOCOL)
    orders = [
        (_order(packed, engine, [jobs[i] for i in batch]), sum(_weight(jobs[i]) for i in batch)) for batch in batches
    ]
    for number, answer in spread.read(orders) if orders else ():
        if stopped():
            raise TimeoutError("stopped")
        for index, kept in zip(batches[number], _kept(answer, len(batches[number])), strict=True):
            results[index] = kept
            if kept is not None and kept[0] is not None:
                ws.progress.add(kept[0].bytes)
    left = sum(kept is None or kept[0] is None for kept in results)
    if workers and left:
        spread.notes.append(
            f"{left} of {len(jobs)} log files were read here: the workers do not see them as they are here"
        )
    ws.limits.extend(note for note in spread.notes if note not in ws.limits)
    for job, kept in zip(jobs, results, strict=True):
        if kept is None or kept[0] is None:
            yield here(job)
            continue
        for why in kept[2]:
            ws.tell(job[0].name, why)
        yield job[0], kept[0], kept[1]


def _kept(answer: bytes | None, count: int) -> Sequence[Kept | None]:
    """An answer unpacked; what is not one counts as none."""
    if answer is None:
        return [None] * count
    found: Any = pickle.loads(answer)
    return found if isinstance(found, list) and len(found) == count else [None] * count


@lru_cache(maxsize=2)
def _ready(packed: bytes, engine: str) -> tuple[list[Pattern], Scanner]:
    """Patterns compiled once in a worker's life."""
    patterns = pickle.loads(packed)
    return patterns, scanner(patterns, engine)


def _order(packed: bytes, engine: str, jobs: list[Job]) -> bytes:
    listed = [(str(file.path.resolve()), _identity(file.path), start, end) for file, start, end in jobs]
    return pickle.dumps((packed, engine, listed), pickle.HIGHEST_PROTOCOL)


def _identity(path: Path) -> Identity | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - of thousands of files
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _weight(job: Job) -> int:
    file, start, end = job
    return (file.size if end == WHOLE else end) - start + OPENING


def _batches(jobs: list[Job], workers: int) -> list[list[int]]:
    """Jobs in runs of about the same weight, several for each worker, the order kept."""
    whole = sum(map(_weight, jobs))
    enough = max(whole // (workers * BATCHES), 1)
    batches: list[list[int]] = [[]]
    held = 0
    for index, job in enumerate(jobs):
        if held >= enough or len(batches[-1]) >= _MOST:
            batches.append([])
            held = 0
        batches[-1].append(index)
        held += _weight(job)
    return batches
