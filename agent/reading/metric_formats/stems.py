"""Where metrics can stand at all: lines that hold one of a few word stems, found at gigabytes a second."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

try:
    import hyperscan
except ImportError:  # optional: `bytes.find` does the same work, slower
    hyperscan: Any = None

# One of these stands in every line that is read as metrics: they name a step, or something kept without one.
_STEMS = (
    b"loss", b"step", b"iter", b"epoch", b"it/s", b"/it", b"grad", b"norm", b"scale", b"kl", b"logprob", b"length",
    b"nll", b"ppl", b"perplex", b"std", b"expert", b"lr", b"prob", b"router", b"entropy", b"reward", b"trunc", b"clip",
    b"_len", b"throughput", b"#queue", b"/sec",
)  # fmt: skip
_MOST_HITS = 1 << 16  # in one block; beyond it every line is looked at
_local = threading.local()


def may_measure(text: bytes) -> bool:
    """Whether a line can hold metrics; wrong only by saying yes."""
    low = text.lower()
    return any(stem in low for stem in _STEMS)


def candidates(body: bytes, starts: np.ndarray) -> np.ndarray | None:
    """Mask of the lines that can hold metrics; None when there are so many that each is worth a look.

    Args:
        body: whole lines.
        starts: offset of each line in it.
    """
    if hyperscan is None:
        return None if may_measure(body) else np.zeros(len(starts), dtype=bool)
    ends: list[int] = []

    def hit(_id: int, _start: int, end: int, _flags: int, _context: object) -> bool:
        ends.append(end)
        return len(ends) >= _MOST_HITS

    try:
        _database().scan(body, match_event_handler=hit)
    except hyperscan.ScanTerminated:
        return None
    if len(ends) >= _MOST_HITS:
        return None
    mask = np.zeros(len(starts), dtype=bool)
    mask[np.searchsorted(starts, np.array(ends, dtype=np.int64) - 1, side="right") - 1] = True
    return mask


def _database() -> Any:
    """One database for each thread: its scratch space is not shared."""
    made = getattr(_local, "database", None)
    if made is None:
        made = hyperscan.Database()
        made.compile(
            expressions=[s.replace(b"/", rb"\/") for s in _STEMS], flags=[hyperscan.HS_FLAG_CASELESS] * len(_STEMS)
        )
        _local.database = made
    return made
