"""Evaluation items that stand in the training data: word n-grams shared by both, templates left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ... import deadline
from ..minhash import grams, words
from .rows import Row

if TYPE_CHECKING:
    import numpy as np

WORDS, FEWEST = 13, 8  # words of an n-gram; an item of fewer words than the second says nothing
SHARE = 0.5  # of an item's n-grams that must occur
ITEMS = 20_000
TEXT = 1_000_000  # characters of one training text
_HELD_OUT = re.compile(
    r"(?i)(^|[/_.\-])(test|eval(?:uation)?|val(?:id(?:ation)?)?|dev|h[oe]ldout|benchmark)([/_.\-\d]|$)"
)
_QUESTION = ("question", "prompt", "instruction", "problem", "query", "input", "text", "doc", "messages", "content")


@dataclass(frozen=True, slots=True)
class Shared:
    """An evaluation item and where in training most of it was met."""

    item: Row
    train: Row
    share: float


def held_out(name: str) -> bool:
    """Whether a file's name says that it is an evaluation set."""
    return bool(_HELD_OUT.search(name))


def question_of(row: Row) -> str:
    """What identifies an evaluation item: its question, else all its text."""
    for name in _QUESTION:
        value = row.fields.get(name)
        if isinstance(value, str) and len(value.split()) >= FEWEST:
            return value
    return max(row.texts(), key=len, default="")


def shared(items: Sequence[Row], train: Sequence[Row]) -> list[Shared]:
    """Items of which at least half of the n-grams occur in one training record.

    n is 13, or the length of an item of 8 to 12 words. n-grams that many items have in common are a template and
    do not count.
    """
    import numpy as np

    by_size: dict[int, list[tuple[int, np.ndarray]]] = {}
    for n, row in enumerate(items[:ITEMS]):
        parts = words(question_of(row))
        if len(parts) >= FEWEST:
            size = min(WORDS, len(parts))
            by_size.setdefault(size, []).append((n, np.unique(grams(parts, size))))
    best: dict[int, Shared] = {}
    for size, known in by_size.items():
        hashes, owners, sizes = _table(known)
        for row in train:
            deadline.check()
            seen = np.unique(np.concatenate([grams(words(t, TEXT), size) for t in row.texts()] or [grams([], size)]))
            if not len(seen) or not len(hashes):
                continue
            left, right = np.searchsorted(hashes, seen, "left"), np.searchsorted(hashes, seen, "right")
            met: Counter[int] = Counter()
            for a, b in zip(left[right > left], right[right > left], strict=True):
                met.update(owners[a:b].tolist())
            for n, count in met.items():
                share = count / sizes[n]
                if share >= SHARE and (n not in best or best[n].share < share):
                    best[n] = Shared(items[n], row, round(share, 3))
    return [best[n] for n in sorted(best)]


def _table(known: list[tuple[int, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, dict[int, int]]:
    """Hashes in order, the item of each, and how many each item has; without those of a template."""
    import numpy as np

    hashes = np.concatenate([h for _, h in known])
    owners = np.concatenate([np.full(len(h), n) for n, h in known])
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    own = counts[inverse] <= max(2, 0.02 * len(known))
    hashes, owners = hashes[own], owners[own]
    order = np.argsort(hashes, kind="stable")
    sizes = Counter(owners.tolist())
    few = {n for n, _ in known if sizes[n] == 0}
    return hashes[order], owners[order], {n: sizes[n] for n, _ in known if n not in few}
